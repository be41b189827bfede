"""Which method computes a condition number: the one asked for, or the cheapest that applies."""

from __future__ import annotations

from gnjax.conditioning.ends import Problem
from gnjax.conditioning.methods import METHODS, Method, methods_for
from gnjax.operators.facts import factorisation_of, facts_of


def asked_for(problem: Problem, name: str) -> Method:
    """The method called ``name``; raises a ValueError if it does not apply to the problem."""
    method = methods_for(problem.op)[name]
    refused = method.refuses(problem)
    if refused:
        raise ValueError(refused)
    return method


def cheapest(problem: Problem) -> Method:
    """The cheapest of the methods that use structure; if none of them applies, the cheapest of all.

    A preconditioner that the caller has given decides at once. Methods that use structure are those
    that the operator itself brings, and those that are preferred for A = J J^T with a small J:
    singular values of J resolve the smallest eigenvalues, and are preferred where they take at most
    ``limits.factor_work`` multiplications. For a larger J the eigenvalues of A, or products with J,
    take a tenth of the time. Where these leave kappa unresolved, the caller computes the singular
    values after them.
    """
    if problem.preconditioner is not None:
        return asked_for(problem, "preconditioned")
    methods = methods_for(problem.op).values()
    by_structure = {method.name for method in facts_of(problem.op).methods}
    if small_factor(problem):
        few = METHODS["factored"].cost(problem) <= problem.limits.factor_work
        by_structure |= {"factored"} if few else {"dense", "preconditioned"}
    preferred = [method for method in methods if method.name in by_structure]
    for candidates in (preferred, methods):
        applying = [method for method in candidates if not method.refuses(problem)]
        if len(applying) == 1:  # its cost need not be asked, which may take work
            return applying[0]
        if applying:
            return min(applying, key=lambda method: method.cost(problem))
    reasons = "; ".join(method.refuses(problem) for method in methods)
    msg = f"no method applies: {reasons}"
    raise ValueError(msg)


def small_factor(problem: Problem) -> bool:
    """Whether the operator states a factor whose shorter side is at most ``limits.factor_rows``."""
    factor = factorisation_of(problem.op)
    return factor is not None and min(factor.shape) <= problem.limits.factor_rows
