"""Metrics on the parameters, and operators in them: what an optimiser divides its gradients by."""
