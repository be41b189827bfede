"""Held-out trials of solutions, inverses and traces of f(A), beside references in many digits.

The estimates from random vectors have a campaign of their own: each answer states that it holds
with 95%, and the rows are broken where answers lie beside the truth more often than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import flint
import jax
import numpy as np

import gnjax
from tests.held_out import campaigns, many_digits, networks
from tests.held_out import matrices as drawn
from tests.held_out.verdicts import REFUSED, Row, asked, within_judge

_DIGITS = many_digits.FACTOR_DIGITS
_STATED = 0.05  # the chance at which an estimate may lie beside the truth
_EASY = 1e-8  # of the norm: a smallest eigenvalue above it is no reason to refuse
_ORDINARY = 1e90  # numbers up to here, and from its inverse on, have answers in float64
_BY_PRODUCTS = gnjax.Limits(whole_rows=1)
_SIDES = {"in memory": gnjax.Limits(), "by products": _BY_PRODUCTS}
_TRACES = ("log", "inverse", "sqrt")
_NEW = 3  # samples at which a network predicts

Rng = np.random.Generator


@dataclass(frozen=True)
class Truth:
    """What is true of A + s I, for A (n, n) in many digits with the eigenvalues ``values``."""

    shift: float
    values: list[flint.arb]  # of A + s I
    inverse: flint.arb_mat | None  # None where A + s I is not positive definite

    @property
    def is_easy(self) -> bool:
        """Whether the smallest eigenvalue is far above rounding, and no number out of range."""
        least, largest = float(self.values[-1].mid()), float(self.values[0].mid())
        return least > _EASY * max(largest, -least) and 1 / _ORDINARY < largest < _ORDINARY

    def solution(self, right: np.ndarray) -> np.ndarray:
        """(A + s I)^{-1} B for columns B (n, b)."""
        assert self.inverse is not None
        with flint.ctx.workdps(_DIGITS):
            return _array(self.inverse * many_digits.exact(right))

    def variances(self, rows: flint.arb_mat) -> np.ndarray:
        """diag(R (A + s I)^{-1} R^T) for rows R."""
        assert self.inverse is not None
        with flint.ctx.workdps(_DIGITS):
            return np.diagonal(_array(rows * self.inverse * rows.transpose()))

    def diagonal(self) -> np.ndarray:
        """diag((A + s I)^{-1})."""
        assert self.inverse is not None
        return np.diagonal(_array(self.inverse))

    def trace(self, f: str) -> flint.arb:
        """tr f(A + s I), or for an effective dimension that of A (A + s I)^{-1}."""
        with flint.ctx.workdps(_DIGITS):
            return sum((_OF[f](y, flint.arb(self.shift)) for y in self.values), flint.arb(0))


_OF: dict[str, Callable[[flint.arb, flint.arb], flint.arb]] = {
    "log": lambda y, s: y.log(),
    "inverse": lambda y, s: 1 / y,
    "sqrt": lambda y, s: y.sqrt(),
    "effective_dimension": lambda y, s: (y - s) / y,
}
_QUESTIONS: dict[str, Callable[..., Any]] = {
    **{f: partial(gnjax.trace_of, f) for f in _TRACES},
    "effective_dimension": gnjax.effective_dimension,
}


def _array(matrix: flint.arb_mat) -> np.ndarray:
    entries = np.empty(matrix.nrows() * matrix.ncols(), dtype=object)
    entries[:] = matrix.entries()
    return entries.reshape(matrix.nrows(), matrix.ncols())


def truth_of(matrix: flint.arb_mat, values: Sequence[flint.arb], shift: float) -> Truth:
    """The truth about A + s I for a matrix A with these eigenvalues, from the largest down."""
    with flint.ctx.workdps(_DIGITS):
        size, s = matrix.nrows(), flint.arb(shift)
        identity = many_digits.exact(np.eye(size))
        shifted = [v + s for v in values]
        definite = shifted[-1] > 0
        return Truth(shift, shifted, (matrix + s * identity).inv() if definite else None)


def of_matrices(seed: int, count: int, *, sizes: Sequence[int] = drawn.SIZES) -> list[Row]:
    """``count`` stored symmetric matrices of all classes in turn."""
    rows: list[Row] = []
    names = list(drawn.MATRICES)
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        name = names[index % len(names)]
        matrix = drawn.symmetric(rng, name, 1 if name == "1 x 1" else int(rng.choice(sizes)))
        values = list(many_digits.of_matrix(matrix).values)
        truth = truth_of(many_digits.exact(matrix), values, _shift(rng, values[0]))
        row = Row("inverses", name, f"{seed}:{index}", "", "")
        rows += _asked(row, gnjax.dense(matrix), truth, rng)
    return rows


def of_factors(
    seed: int, count: int, *, shapes: Sequence[tuple[int, int]] = drawn.SHAPES
) -> list[Row]:
    """``count`` operators F F^T from a stored factor F."""
    rows: list[Row] = []
    for index, name, factor, rng in drawn.factors_in_turn(seed, count, shapes):
        values = many_digits.of_stored_factor(factor).padded(len(factor))
        with flint.ctx.workdps(_DIGITS):
            balls = many_digits.exact(factor)
            gram = balls * balls.transpose()
        truth = truth_of(gram, values, _shift(rng, values[0]))
        row = Row("inverses", name, f"{seed}:{index}", "", "")
        rows += _asked(row, gnjax.factored(factor), truth, rng)
    return rows


def of_networks(seed: int, count: int, **options: Any) -> list[Row]:
    """N G of ``count`` random networks, and the variances of their outputs at new samples."""
    rows: list[Row] = []
    for index, (draw, case) in enumerate(campaigns.network_cases(seed, count, **options)):
        rng = np.random.default_rng([seed, index, 1])  # not that of the network
        about = f"{draw} {case.architecture.name}, {len(case.x)} samples, {case.dtype}, {case.loss}"
        row = Row("inverses of networks", case.regime, about, "", "")
        with flint.ctx.workdps(_DIGITS):
            params = networks.lifted(case)
            n, gauss_newton = len(case.x), networks.gauss_newton(case, params)
            matrix = many_digits.exact(n * (gauss_newton + gauss_newton.T) / flint.arb(2))
            values = networks.truths(case).gauss_newton.padded(len(gauss_newton))
            truth = truth_of(matrix, [n * v for v in values], _shift(rng, n * values[0]))
        model = case.architecture.jax, jax.device_put(dict(case.params))
        if case.loss == "cross_entropy" and case.architecture.outputs == 1:
            continue  # which is zero, and refused
        op = len(case.x) * gnjax.gauss_newton(model, case.x, loss=case.loss)
        rows += _asked(row, op, truth, rng)
        if not case.architecture.coupled and truth.inverse is not None:
            rows.append(_asked_variances(row, op, model, case, truth, rng))
    return rows


def _shift(rng: Rng, largest: flint.arb) -> float:
    """A damping of the size that people take, from 1e-12 of the largest eigenvalue to it; or 0."""
    size = abs(float(largest.mid())) or 1.0
    return 0.0 if rng.random() < 0.15 else float(size * 10.0 ** rng.uniform(-12, 0.5))


def _asked(row: Row, op: Any, truth: Truth, rng: Rng) -> Iterator[Row]:
    """Every question about A + s I that needs no random vectors, or few."""
    size, s = op.shape[0], truth.shift
    right = rng.standard_normal((size, int(rng.integers(1, 4))))
    exact = None if truth.inverse is None else truth.solution(right)
    for side, limits in _SIDES.items():
        rtol = float(10.0 ** rng.uniform(-12, -2))
        question = partial(gnjax.solve, op, right, damping=s, rtol=rtol, limits=limits)
        yield _judged(row, "solve", side, question, exact, truth, _of_columns)
    exact = None if truth.inverse is None else truth.diagonal()
    question = partial(gnjax.inverse_diagonal, op, damping=s)
    yield _judged(row, "inverse_diagonal", "exact", question, exact, truth, _of_entries)
    for f in _TRACES:
        exact = None if truth.inverse is None else np.array([truth.trace(f)])
        question = partial(gnjax.trace_of, f, op, damping=s)
        yield _judged(row, f"trace_of {f}", "exact", question, exact, truth, _of_number)
    if s and truth.values[-1] >= s:  # a semidefinite A
        question = partial(gnjax.effective_dimension, op, damping=s)
        exact = np.array([truth.trace("effective_dimension")])
        yield _judged(row, "effective_dimension", "exact", question, exact, truth, _of_number)


def _asked_variances(
    row: Row, op: Any, model: Any, case: networks.Case, truth: Truth, rng: Rng
) -> Row:
    """The variances of the outputs at new samples."""
    x_new = rng.standard_normal((_NEW, *case.architecture.inputs))
    with flint.ctx.workdps(_DIGITS):
        params = networks.lifted(case)
        _, jacobian = networks.outputs_and_jacobian(case.architecture, params, x_new)
        exact = truth.variances(many_digits.exact(jacobian))

    def question() -> Any:
        outputs = gnjax.ntk(model, x_new)
        return gnjax.predictive_variance(op, outputs, damping=truth.shift)

    return _judged(row, "predictive_variance", "exact", question, exact, truth, _of_entries)


def _judged(
    row: Row,
    what: str,
    method: str,
    question: Callable[[], Any],
    exact: np.ndarray | None,
    truth: Truth,
    parts: Callable[[Any], tuple[np.ndarray, np.ndarray]],
) -> Row:
    """The answer beside the truth. No number is right for a matrix that is not positive definite.

    A refusal of one whose smallest eigenvalue is far above rounding is wrong, too.
    """
    row = asked(replace(row, what=what, method=method), question, within_judge(exact, parts))
    coarse = "bfloat16" in row.draw and method == "by products"  # which no small shift withstands
    if row.outcome == REFUSED and exact is not None and truth.is_easy and not coarse:
        return replace(row, inside=False)
    return row


def _of_number(answer: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.array([answer.value]), np.array([answer.error])


def _of_entries(answer: Any) -> tuple[np.ndarray, np.ndarray]:
    return answer.values, answer.errors


def _of_columns(answer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Columns x (n, b), each with a bound (b,) on its distance from the exact one."""
    return answer.value, answer.errors


# Spectra of the estimates: many eigenvalues that count, and few, whose samples are far from normal.
SPECTRA: dict[str, Callable[[Rng, int], np.ndarray]] = {
    "decay": lambda rng, n: np.geomspace(1.0, 10.0 ** -rng.uniform(1, 8), n),
    "flat": lambda rng, n: rng.uniform(0.5, 1.5, n),
    "one large": lambda rng, n: np.r_[10.0 ** rng.uniform(2, 6), rng.uniform(0, 1e-3, n - 1)],
    "two large": lambda rng, n: np.r_[np.full(2, 10.0 ** rng.uniform(1, 3)), np.full(n - 2, 1e-9)],
    "one small": lambda rng, n: np.r_[np.full(n - 1, 1e3), 1e-6],
    "low rank": lambda rng, n: np.r_[rng.uniform(1, 2, n // 4), np.zeros(n - n // 4)],
}


def estimates(seed: int, count: int, *, size: int = 40) -> list[Row]:
    """``count`` estimates from random vectors about one matrix A of a spectrum by the seed.

    Of an inverse's diagonal one entry is judged, drawn beforehand, as those of one estimate share
    their vectors.
    """
    rng = np.random.default_rng([seed, size])
    name = list(SPECTRA)[seed % len(SPECTRA)]
    factor = drawn.rotated(rng, np.sqrt(SPECTRA[name](rng, size)))
    with flint.ctx.workdps(_DIGITS):
        balls = many_digits.exact(factor)
        gram = balls * balls.transpose()
    values = many_digits.eigenvalues(gram, many_digits.MATRIX_DIGITS)
    truth = truth_of(gram, values, float(10.0 ** rng.uniform(-6, 1)))
    op, diagonal = gnjax.factored(factor), truth.diagonal()
    rows: list[Row] = []
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        probes, stream = int(rng.choice([10, 20, 50, 200])), int(rng.integers(2**31))
        options: dict[str, Any] = {"damping": truth.shift, "probes": probes, "seed": stream}
        what = ("inverse_diagonal", "effective_dimension", *_TRACES)[index % 5]
        row = Row("estimates", name, f"{seed}:{index}", what, f"{probes} vectors")
        if what == "inverse_diagonal":
            place = int(rng.integers(size))
            exact, parts = diagonal[place : place + 1], partial(_of_entry, place)
            options |= {"method": "estimate", "limits": _BY_PRODUCTS}
            question = partial(gnjax.inverse_diagonal, op, **options)
        else:
            exact, parts = np.array([truth.trace(what)]), _of_number
            steps, rtol = int(rng.choice([5, 12, 40])), float(10.0 ** rng.uniform(-4, -0.5))
            options |= {"method": "quadrature", "steps": steps, "rtol": rtol}
            question = partial(_QUESTIONS[what], op, **options)
        rows.append(asked(row, question, within_judge(exact, parts, _STATED)))
    return rows


def _of_entry(place: int, answer: Any) -> tuple[np.ndarray, np.ndarray]:
    return answer.values[place : place + 1], answer.errors[place : place + 1]
