"""Modules of PyTorch as functions of JAX: their graph, and what each operator computes."""
