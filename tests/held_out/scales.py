"""The campaign for scale: kappa does not depend on the norm of a matrix, and no answer may either.

Every kind of operator is multiplied by a power of two: mostly so that squares of its numbers have
room in float64, and else down to subnormal numbers, where an answer is right or refused. The truth
in many digits is that of the stored numbers times the opposite power, which is exact. What is
random is compared with the same draw at the ordinary scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import flint
import jax.numpy as jnp
import numpy as np

import gnjax
from tests.held_out import campaigns, many_digits, networks
from tests.held_out import matrices as drawn
from tests.held_out.architectures import ARCHITECTURES
from tests.held_out.many_digits import FACTOR_DIGITS, Truth
from tests.held_out.verdicts import Judge, Row, asked, kappa_judge, spectrum_judge

_FAR = 140  # an exponent of numbers whose squares have room, also those of a factor
_MOST, _LEAST = 1000, -1074  # exponents of float64, subnormal numbers included
_CLASSES = ("definite", "repeated", "integer Gram", "outlier", "graded spectrum")
_SIZES = (3, 8, 20)  # few, as JAX compiles for every size
_OF_NETWORKS = ("auto", "dense", "factored", "krylov", "inverse")
_REFERENCE = 1e-60  # of a trace: its reference is a sum of eigenvalues of 80 digits
_SATURATES = 10  # larger weights make units constant, which is another campaign's subject


class _User:
    """An operator of a user's own, known by its products and its matrix alone."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix = matrix
        self.shape, self.dtype = matrix.shape, jnp.dtype(float)

    def facts(self) -> gnjax.operators.Facts:
        return gnjax.operators.Facts(error=0.0, symmetric=True)

    def mv(self, v: Any) -> Any:
        return self.matrix @ np.asarray(v)

    def as_matrix(self) -> Any:
        return self.matrix


@dataclass(frozen=True)
class _Far:
    """An operator, 2^-exponent of it as an ordinary one, and the truth about the latter."""

    op: Any
    near: Any
    truth: Truth
    exponent: int
    methods: tuple[str, ...] = ("auto", "dense", "inverse", "krylov")


def _scaled(rng: np.random.Generator, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Numbers far from 1, what they are without the power of two, and the exponent.

    Subnormal numbers are rounded, so that the others are not those that were given.
    """
    size = int(np.frexp(np.abs(numbers).max())[1])
    if rng.random() < 0.25:
        exponent = int(rng.integers(_LEAST, _MOST))
    else:
        exponent = int(rng.integers(-_FAR, _FAR))
    far = np.ldexp(numbers, exponent - size)
    return far, np.ldexp(far, size - exponent), exponent - size


def _stored(rng: np.random.Generator, make: Callable[[np.ndarray], Any]) -> _Far:
    matrix = drawn.symmetric(rng, str(rng.choice(_CLASSES)), int(rng.choice(_SIZES)))
    far, near, exponent = _scaled(rng, matrix)
    return _Far(make(far), make(near), many_digits.of_matrix(near), exponent)


def _factored(rng: np.random.Generator) -> _Far:
    name = str(rng.choice(list(drawn.FACTORS)))
    factor = drawn.FACTORS[name](rng, *[(3, 8), (8, 3), (8, 8)][rng.integers(3)])
    far, near, exponent = _scaled(rng, factor)
    ops = gnjax.factored(far), gnjax.factored(near)
    methods = ("auto", "factored", "dense", "inverse", "krylov")
    return _Far(*ops, many_digits.of_stored_factor(near), 2 * exponent, methods)


def _diagonal(rng: np.random.Generator) -> _Far:
    far, near, exponent = _scaled(rng, 10 ** rng.uniform(-9, 9, int(rng.choice(_SIZES))))
    ops = gnjax.diagonal(far), gnjax.diagonal(near)
    truth = many_digits.of_matrix(np.diag(near))
    return _Far(*ops, truth, exponent, ("auto", "stated", "dense", "inverse", "krylov"))


def _combined(rng: np.random.Generator) -> _Far:
    """A multiple of a stored matrix, where weight and matrix share the power of two."""
    matrix = drawn.symmetric(rng, "integer Gram", int(rng.choice(_SIZES)))
    far, near, exponent = _scaled(rng, matrix)
    weight = int(rng.integers(-_FAR, _FAR))
    op = 2.0**weight * gnjax.dense(far)
    return _Far(op, 1.0 * gnjax.dense(near), many_digits.of_matrix(near), exponent + weight)


def _damped(rng: np.random.Generator) -> _Far:
    """A + s I for the smaller of J J^T and J^T J of integers, so that both sums are exact."""
    factor = rng.integers(-9, 10, (3, 8)).astype(float)
    half = int(rng.integers(-_FAR, _FAR))
    shift = int(rng.integers(0, 10))
    op = gnjax.factored(np.ldexp(factor, half)) + float(np.ldexp(2.0**shift, 2 * half))
    near = factor @ factor.T + 2.0**shift * np.eye(3)
    ops = op, gnjax.factored(factor) + 2.0**shift
    return _Far(*ops, many_digits.of_matrix(near), 2 * half, ("auto", "dense", "damped"))


def _kroneckers(rng: np.random.Generator) -> _Far:
    sides = drawn.kronecker_terms(rng, 2, 3, int(rng.integers(1, 4)))
    left, right = (int(rng.integers(-_FAR, _FAR)) for _ in range(2))
    pairs = zip(sides, (left, right), strict=True)
    far = [[np.ldexp(term, power) for term in side] for side, power in pairs]
    ops = gnjax.papers.sum_of_kroneckers(*far), gnjax.papers.sum_of_kroneckers(*sides)
    return _Far(*ops, many_digits.sum_of_kroneckers(*sides), left + right)


def _linear(rng: np.random.Generator) -> _Far:
    """A linear network whose layers have all the same power of two."""
    sizes = [(4, 3), (4, 6, 3), (4, 2, 3), (5, 3, 4, 3, 2)][rng.integers(4)]
    weights = drawn.linear_weights(rng, sizes, str(rng.choice(["ordinary", "pruned"])))
    sigma = None
    if rng.random() < 0.5:
        data = rng.standard_normal((sizes[0], 3 * sizes[0]))
        sigma = data @ data.T / data.shape[1]
        sigma = (sigma + sigma.T) / 2
    layers = len(weights)
    power = int(rng.integers(-_FAR, _FAR) // max(layers - 1, 1) // 2)
    far = [np.ldexp(w, power) for w in weights]
    inputs = 0 if sigma is None else int(rng.integers(-_FAR, _FAR))
    far_sigma = None if sigma is None else np.ldexp(sigma, inputs)
    ops = (
        gnjax.papers.linear_gauss_newton(far, far_sigma),
        gnjax.papers.linear_gauss_newton(weights, sigma),
    )
    truth = many_digits.linear_network(weights, sigma)
    methods = ("auto", "dense", "inverse", "krylov", "factored", "closed_form")
    return _Far(*ops, truth, 2 * (layers - 1) * power + inputs, methods)


KINDS: dict[str, Callable[[np.random.Generator], _Far]] = {
    "dense": partial(_stored, make=gnjax.dense),
    "user's own": partial(_stored, make=_User),
    "factored": _factored,
    "diagonal": _diagonal,
    "combination": _combined,
    "damped": _damped,
    "Kroneckers": _kroneckers,
    "linear network": _linear,
}


def scales(seed: int, count: int) -> list[Row]:
    """``count`` operators of all kinds in turn, by every method."""
    rows: list[Row] = []
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        kind = list(KINDS)[index % len(KINDS)]
        far = KINDS[kind](rng)
        row = Row("scale", kind, f"{seed}:{index}, 2^{far.exponent}", "", "")
        rows += _asked_far(row, far, rng, index)
    return rows


def _asked_far(row: Row, far: _Far, rng: np.random.Generator, index: int) -> Iterator[Row]:
    size = far.op.shape[0]
    with flint.ctx.workdps(FACTOR_DIGITS):
        power = flint.arb(2) ** far.exponent
        values = [value * power for value in far.truth.padded(size)]
    k = int(rng.integers(1, size + 1))
    few = {"k": k, "limits": gnjax.Limits(whole_rows=1)}
    for which, options in (("all", {}), ("largest", few), ("smallest", few)):
        question = partial(gnjax.eigenvalues, far.op, which=which, **options)
        yield asked(
            replace(row, what="eigenvalues", method=which),
            question,
            spectrum_judge(values, which, slack=0.0),
        )
    if far.truth.values[0] >= 0:
        named = replace(row, what="kappa")
        yield from campaigns.asked_kappa(
            named, far.op, far.methods, kappa_judge(far.truth), seed=index
        )
    for method in ("exact", "hutchinson", "hutch++", "xtrace"):
        question = partial(gnjax.trace, far.op, method=method, probes=3 * size)
        judge = _trace_judge(values, far, question)
        yield asked(replace(row, what="trace", method=method), question, judge)
    question = partial(gnjax.spectral_density, far.op, probes=2, steps=8)
    yield asked(replace(row, what="density", method="quadrature"), question, _density_judge(far))


def _are_unknown(*traces: gnjax.answers.Trace) -> bool:
    """Whether each has an infinite standard error: equal samples that may be chance."""
    return all(np.isinf(each.standard_error) for each in traces)


def _trace_judge(values: list[flint.arb], far: _Far, question: partial) -> Judge:
    """The trace itself, or where it is random the same draw at the ordinary scale."""

    def judge(row: Row, answer: Any) -> Row:
        with flint.ctx.workdps(FACTOR_DIGITS):
            true = sum(values, flint.arb(0))
            if answer.method == "hutchinson":
                near = gnjax.trace(far.near, **question.keywords)
                true = flint.arb(near.value) * flint.arb(2) ** far.exponent
                spread = flint.arb(near.standard_error) * flint.arb(2) ** far.exponent
                apart = abs(spread - answer.standard_error)
                if not (apart <= 1e-9 * spread + 2e-323 or _are_unknown(near, answer)):
                    return replace(row, inside=False, note="another standard error")
            error = sum(flint.arb(part.value) for part in answer.certificate.parts)
            apart = abs(flint.arb(answer.value) - true)
            inside = bool(apart <= error + abs(true) * _REFERENCE)
        kind = answer.certificate.kind
        return replace(row, inside=inside, kind=kind, truth=true.str(20), lower=answer.value)

    return judge


def _density_judge(far: _Far) -> Judge:
    """The mean of a density, without quadrature error, beside that at the ordinary scale."""

    def judge(row: Row, answer: Any) -> Row:
        near = gnjax.spectral_density(far.near, probes=2, steps=8)
        known, found = near.moment(1), answer.moment(1)
        parts = (p for p in found.certificate.parts if not p.reason.startswith("the spread"))
        rounding = sum(part.value for part in parts)
        with flint.ctx.workdps(FACTOR_DIGITS):
            power = flint.arb(2) ** far.exponent
            allowed = flint.arb(rounding) + power * near.floor
            pairs = ((found.value, known.value), (found.standard_error, known.standard_error))
            apart = [flint.arb(float(a)) - power * flint.arb(float(b)) for a, b in pairs]
            inside = all(bool(abs(each) <= allowed) for each in apart)
        return replace(row, inside=inside, kind=answer.certificate.kind)

    return judge


def far_networks(seed: int, count: int) -> list[Row]:
    """``count`` networks whose weights all have a power of two, at one architecture of the seed."""
    rows: list[Row] = []
    every = list(ARCHITECTURES)
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        case = networks.draw(rng, every[seed % len(every)], 4, "mse", "ordinary")
        most = 70 if case.dtype == "float64" else 10
        powers = np.full(len(case.params), rng.integers(-most, _SATURATES))
        if rng.random() < 0.3:
            powers = rng.integers(-most // 2, _SATURATES, len(case.params))
        pairs = zip(case.params.items(), powers.tolist(), strict=True)
        params = {
            key: np.ldexp(value.astype(np.float64), power).astype(value.dtype)
            for (key, value), power in pairs
        }
        scaled = replace(case, regime="far from 1", params=params)
        # The references of Hessians take differences, with a step that may be above such weights.
        asking = campaigns.asked_network(f"{seed}:{index}", scaled, _OF_NETWORKS, hessians=False)
        rows += asking
    answers = (row for row in rows if row.what != "reference")  # some are beyond its digits
    return [replace(row, campaign="scale") for row in answers]
