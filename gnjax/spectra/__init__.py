"""Numbers from operators: eigenvalues, densities and traces, each with its error.

Each question is a module that is read from its public function downwards: ``eigenvalues``,
``certify``, ``density``, ``trace`` and ``diagonal_estimate``; ``distance`` compares two answers.
The modules ``spectrum`` and ``certified_pairs`` are answers that others look into, too. What the
questions share stands in ``whole`` (all eigenvalues by LAPACK), ``eigenvectors`` (how far they are
from exact ones), ``semidefinite`` (refusals of others) and ``watch`` (progress and Ctrl-C), and in
three folders: ``krylov`` (Lanczos runs), ``stochastic`` (random vectors) and
``preconditioned_ends`` (with a preconditioner). The words of errors and certificates are explained
in ``docs/reference/evidence.md``.
"""
