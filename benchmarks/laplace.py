"""What a Laplace approximation needs of N G + I, beside the tools that people use for it.

    python -m benchmarks.rivals.install curvlinops matfree laplace-torch
    OPENBLAS_NUM_THREADS=1 python -m benchmarks.laplace [--save]

The network is 64-50-10 with tanh, 3,760 parameters in float64, the cross-entropy of 100 digits, and
the prior precision 1. Every tool begins at the weights: gnjax makes its operator, laplace-torch
fits, and nothing is kept from one run to the next. Tools take turns, on one core, and seconds are
those of the processor, which other work on the machine moves less. Errors are against the dense
matrix in float64; what a tool states as its own error stands beside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import threadpoolctl

import gnjax
from benchmarks import cases, harness, record
from benchmarks.harness import Case
from benchmarks.record import Row
from benchmarks.rivals import install, jax_models

_SAMPLES, _HIDDEN, _NEW = 100, 50, 20
_VECTORS, _STEPS = 100, 50  # of stochastic Lanczos quadrature
_PATIENCE = 1800.0  # seconds for one rival
_ABOUT = "64-50-10, tanh, 3,760 parameters, 100 digits"
_SOLVE = f"(N G + I) x = b to a residual of 1e-10; {_ABOUT}"
_LOGDET = "log det (N G + I) of the same network"
_VARIANCES = "the variances of its 10 outputs at 20 new samples"


@dataclass(frozen=True)
class Question:
    """One question: gnjax's answer of a run, and how far off and how sure an answer is in words."""

    title: str
    ours: Callable[[int], Any]
    remark: Callable[[Any], str]


def measure(repeats: int = 5) -> Iterator[Row]:
    gnjax.enable_x64()
    harness.limit_cores(1)
    with threadpoolctl.threadpool_limits(1):
        case = _case()
        dense = _dense(case)
        yield from _solutions(case, dense, repeats)
        yield from _log_determinants(case, dense, repeats)
        yield from _predictions(case, dense, repeats)


def _case() -> Case:
    """The network and its samples, and a right side."""
    case = cases.hessian(_SAMPLES, _HIDDEN)
    size = sum(a.size for a in case.weights.values())
    vectors = np.random.default_rng(1).standard_normal((size, 1))
    return Case(case.weights, case.x, case.y, vectors=vectors)


def _dense(case: Case) -> np.ndarray:
    """N G + I in the order of JAX, column by column from products that share nothing with gnjax."""
    flat, product = jax_models.gauss_newton_product(case)
    columns = jax.jit(lambda identity: jax.lax.map(product, identity, batch_size=128))
    matrix = np.asarray(columns(jnp.eye(flat.size)))
    return len(case.x) * (matrix + matrix.T) / 2 + np.eye(flat.size)


def _solutions(case: Case, dense: np.ndarray, repeats: int) -> Iterator[Row]:
    order = jax_models.order(case.weights)
    right = case.vectors[order, 0]
    exact = scipy.linalg.solve(dense, right, assume_a="pos")
    in_case = np.empty_like(exact)
    in_case[order] = exact
    size = float(np.linalg.norm(exact))

    def ask(limits: gnjax.Limits, run: int) -> Any:
        op = _operator(case, run)
        return gnjax.solve(op, right, damping=1.0, rtol=harness.RESIDUAL, limits=limits)

    def remark(answer: Any) -> str:
        far = float(np.linalg.norm(answer.value - exact))
        return f"{answer.method}, {_off(far / size, answer.error / size)}"

    by_products = Question(_SOLVE, partial(ask, gnjax.Limits(whole_rows=1)), remark)
    question = Question(_SOLVE, partial(ask, gnjax.Limits()), remark)
    yield _own(question, repeats)
    yield _own(by_products, repeats)
    yield _rival(
        question,
        "curvlinops",
        "solve",
        case,
        repeats,
        lambda found: _off(float(np.linalg.norm(found["solution"] - in_case) / size)),
    )


def _log_determinants(case: Case, dense: np.ndarray, repeats: int) -> Iterator[Row]:
    exact = np.linalg.slogdet(dense)[1]

    def ask(method: str, run: int) -> Any:
        return gnjax.logdet(_operator(case, run), damping=1.0, method=method, seed=run)

    def remark(answer: Any) -> str:
        vectors = f"{answer.products} products, " if answer.products else ""
        off = _off(abs(answer.value / exact - 1), answer.error / abs(exact))
        return f"{answer.method}, {vectors}{off}"

    question = Question(_LOGDET, partial(ask, "exact"), remark)
    yield _own(question, repeats)
    yield _own(Question(_LOGDET, partial(ask, "quadrature"), remark), repeats)
    more: dict[str, Any] = {"vectors": _VECTORS, "steps": _STEPS}

    def of_rival(found: dict[str, Any]) -> str:
        stated = found["stated"] / abs(exact) if "stated" in found else None
        return _off(abs(found["value"] / exact - 1), stated)

    yield _rival(question, "matfree", "logdet", case, repeats, of_rival, **more)
    for structure in ("full", "kron"):
        more = {"structure": structure}
        yield _rival(question, "laplace-torch", "logdet", case, repeats, of_rival, **more)


def _predictions(case: Case, dense: np.ndarray, repeats: int) -> Iterator[Row]:
    x_new = np.random.default_rng(2).permutation(case.x)[:_NEW] + 0.5
    model = (jax_models.tanh_mlp, jax_models.to_jax(case.weights))
    rows = jax.jacobian(lambda w: jax_models.tanh_mlp(w, jnp.asarray(x_new)))(model[1])
    jacobian = np.concatenate(
        [np.asarray(part).reshape(_NEW * cases.CLASSES, -1) for part in jax.tree.leaves(rows)],
        axis=1,
    )
    exact = (jacobian * scipy.linalg.solve(dense, jacobian.T, assume_a="pos").T).sum(axis=1)

    def ask(run: int) -> Any:
        """The variances, as the how-to has them, and their errors."""
        op = _operator(case, run)
        factor = gnjax.ntk(_model(case, run), x_new).factor()
        answer = gnjax.solve(op, factor.T, damping=1.0)
        variances = (factor * answer.value.T).sum(axis=1)
        return variances, np.linalg.norm(factor, axis=1) * answer.errors

    def remark(answer: Any) -> str:
        variances, errors = answer
        return _off(np.abs(variances / exact - 1).max(), (errors / exact).max())

    question = Question(_VARIANCES, ask, remark)
    yield _own(question, repeats)
    yield _rival(
        question,
        "laplace-torch",
        "variances",
        case,
        repeats,
        lambda found: _off(np.abs(found["variances"] / exact - 1).max()),
        x_new=x_new,
    )


def _model(case: Case, run: int) -> tuple[Any, Any]:
    """The network of a run, whose weights are others from the second on, as along a training."""
    weights = jax_models.to_jax(case.weights)
    return jax_models.tanh_mlp, {name: (1 + 1e-3 * run) * w for name, w in weights.items()}


def _operator(case: Case, run: int) -> Any:
    """N G at the weights of a run."""
    return len(case.x) * gnjax.gauss_newton(_model(case, run), case.x, loss="cross_entropy")


def _off(relative: float, stated: float | None = None) -> str:
    said = "none stated" if stated is None else f"{stated:.0e} stated"
    return f"error {relative:.0e}, {said}"


def _in_runs(question: Question) -> Callable[[], Any]:
    """The question at the weights of the case, and then at others with every call."""
    runs = iter(range(1_000_000))
    return lambda: question.ours(next(runs))


def _own(question: Question, repeats: int) -> Row:
    note = question.remark(question.ours(0))
    seconds, _ = harness.timed(_in_runs(question), repeats, clock=time.process_time)
    return Row(question.title, "gnjax", seconds, note=note)


def _rival(
    question: Question,
    name: str,
    task: str,
    case: Case,
    repeats: int,
    remark: Callable[[dict[str, Any]], str],
    **more: Any,
) -> Row:
    if (reason := install.missing(name)) is not None:
        return Row(question.title, name, None, note=reason)
    function = f"benchmarks.rivals.{name.replace('-', '_')}:{task}"
    given = {"case": vars(case), "repeats": repeats, **more}
    ours = _in_runs(question)
    ours()
    try:
        found = harness.apart(
            function, given, install.interpreter(name), 1, _PATIENCE, ours, time.process_time
        )
    except harness.NoAnswerError as reason:
        return Row(question.title, name, None, note=f"failed: {reason}")
    runs = found["runs"].tolist()
    notes = found.get("note", ""), remark(found)
    return Row(
        question.title,
        found["tool"],
        runs,
        record.ratios(runs, found["ours"]),
        gigabytes=found["gigabytes"],
        note=", ".join(note for note in notes if note),
    )


if __name__ == "__main__":
    record.command(measure)
