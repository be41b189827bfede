"""Campaigns: random cases from a seed, every question asked of the library, a table of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import flint
import jax
import numpy as np

import gnjax
from gnjax import papers
from tests.held_out import input_types, many_digits, networks
from tests.held_out import matrices as drawn
from tests.held_out.architectures import ARCHITECTURES
from tests.held_out.many_digits import Truth
from tests.held_out.verdicts import FAILED, Judge, Row, asked, kappa_judge, spectrum_judge

_CERTIFICATES = ("ritz", "inertia")
_METHODS = ("auto", "dense", "inverse", "krylov")
_HESSIANS_UP_TO = 4  # samples


def asked_kappa(
    row: Row, op: Any, methods: Iterable[str], judge: Judge, **options: Any
) -> Iterator[Row]:
    """kappa by every method, and with a proof by inertia where a method would rest on chance."""
    for method in methods:
        for certify in _CERTIFICATES if method in ("krylov", "inverse") else _CERTIFICATES[:1]:
            question = partial(
                gnjax.condition_number, op, method=method, certify=certify, **options
            )
            named = _named(row, row.what or "kappa", f"{method}, {certify}")
            yield asked(named, question, judge)


def _named(row: Row, what: str, method: str) -> Row:
    return Row(row.campaign, row.case_class, row.draw, what, method)


def _asked_spectra(row: Row, op: Any, truth: list[flint.arb], k: int | None = None) -> Iterator:
    yield asked(
        _named(row, "eigenvalues", "all"), partial(gnjax.eigenvalues, op), spectrum_judge(truth)
    )
    for which in ("largest", "smallest") if k else ():
        question = partial(gnjax.eigenvalues, op, k=k, which=which)
        yield asked(_named(row, "eigenvalues", which), question, spectrum_judge(truth, which))


def matrices(
    seed: int,
    count: int,
    *,
    sizes: Sequence[int] = drawn.SIZES,
    classes: Iterable[str] = tuple(drawn.MATRICES),
) -> list[Row]:
    """``count`` stored symmetric matrices of all classes in turn: spectra, and kappa."""
    rows: list[Row] = []
    names = list(classes)
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        name = names[index % len(names)]
        size = 1 if name == "1 x 1" else int(rng.choice(sizes))
        matrix = drawn.symmetric(rng, name, size)
        size = len(matrix)
        truth = many_digits.of_matrix(matrix)
        row = Row("matrices", name, f"{seed}:{index}", "", "")
        op = gnjax.dense(matrix)
        rows += _asked_spectra(row, op, list(truth.values), int(rng.integers(1, size + 1)))
        if name not in drawn.WITHOUT_KAPPA and truth.values[0] >= 0:
            rows += asked_kappa(row, op, _METHODS, kappa_judge(truth), seed=index)
            rows += _asked_at_given_rank(row, op, truth, rng, _METHODS)
    return rows


def _asked_at_given_rank(
    row: Row, op: Any, truth: Truth, rng: np.random.Generator, methods: Iterable[str]
) -> Iterator[Row]:
    """kappa at the exact rank, and at an assumed one: what the caller says is answered."""
    if truth.rank == 0:
        return
    for what, rank in (
        ("kappa at the exact rank", truth.rank),
        ("kappa at an assumed rank", int(rng.integers(1, op.shape[0] + 1))),
    ):
        named = _named(row, what, "")
        yield from asked_kappa(named, op, methods, kappa_judge(truth, rank), rank=rank)


def factors(
    seed: int, count: int, *, shapes: Sequence[tuple[int, int]] = drawn.SHAPES
) -> list[Row]:
    """``count`` operators J J^T from a stored factor."""
    rows: list[Row] = []
    for index, name, factor, rng in drawn.factors_in_turn(seed, count, shapes):
        truth = many_digits.of_stored_factor(factor)
        row = Row("matrices", name, f"{seed}:{index}", "", "")
        op = gnjax.factored(factor)
        rows += _asked_spectra(row, op, truth.padded(len(factor)))
        methods = ("auto", "factored", "dense", "krylov", "inverse")
        rows += asked_kappa(row, op, methods, kappa_judge(truth), seed=index)
        rows += _asked_at_given_rank(row, op, truth, rng, ("auto", "krylov"))
    return rows


def kroneckers(
    seed: int,
    count: int,
    *,
    shapes: Sequence[tuple[int, int, int]] = drawn.KRONECKER_SHAPES,
    sizes: Sequence[tuple[int, ...]] = drawn.LINEAR_SIZES,
) -> list[Row]:
    """``count`` sums of Kronecker products, and linear networks, in turn."""
    rows: list[Row] = []
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        kind = ("sum of Kroneckers", *drawn.LINEAR)[index % (1 + len(drawn.LINEAR))]
        if kind == "sum of Kroneckers":
            k, d, terms = shapes[rng.integers(len(shapes))]
            sides = drawn.kronecker_terms(rng, k, d, terms)
            op, truth = (
                papers.sum_of_kroneckers(*sides),
                many_digits.sum_of_kroneckers(*sides),
            )
            methods = _METHODS
        else:
            op, truth = _linear(rng, sizes[rng.integers(len(sizes))], kind)
            kind, methods = f"linear network, {kind}", (*_METHODS, "factored", "closed_form")
        row = Row("matrices", kind, f"{seed}:{index}", "", "")
        rows += _asked_spectra(row, op, truth.padded(op.shape[0]))
        rows += asked_kappa(row, op, methods, kappa_judge(truth), seed=index)
        rows += _asked_at_given_rank(row, op, truth, rng, ("auto", "krylov"))
    return rows


def _linear(rng: np.random.Generator, sizes: tuple[int, ...], kind: str) -> tuple[Any, Truth]:
    weights = drawn.linear_weights(rng, sizes, kind)
    skip = float(rng.choice([0.0, 0.5])) if len(set(sizes)) == 1 else 0.0
    sigma = None
    if rng.random() < 0.5:
        data = rng.standard_normal((sizes[0], 3 * sizes[0]))
        sigma = data @ data.T / data.shape[1]
        sigma = (sigma + sigma.T) / 2
    op = papers.linear_gauss_newton(weights, sigma, skip)
    return op, many_digits.linear_network(weights, sigma, skip)


def large_kroneckers(seed: int, count: int, *, side: int = 56) -> list[Row]:
    """A few eigenvalues of A (x) I + I (x) B, too large for a dense method.

    The eigenvalues are the sums of those of A and B; where A has repeated ones, so has the sum.
    """
    rows: list[Row] = []
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        name = ("definite", "repeated", "outlier", "graded spectrum")[index % 4]
        a, b = (drawn.symmetric(rng, each, side) for each in (name, "definite"))
        b *= 2.0 ** np.round(np.log2(np.linalg.norm(a, 2) / np.linalg.norm(b, 2)))
        found = [many_digits.eigenvalues(m, many_digits.MATRIX_DIGITS) for m in (a, b)]
        with flint.ctx.workdps(many_digits.MATRIX_DIGITS):
            truth = sorted((u + v for u in found[0] for v in found[1]), reverse=True)
        identity = np.eye(side)
        op = papers.sum_of_kroneckers([a, identity], [identity, b])
        row = Row("matrices", f"large Kronecker sum, {name}", f"{seed}:{index}", "", "")
        question = partial(gnjax.eigenvalues, op, k=int(rng.integers(1, 6)), which="largest")
        judge = spectrum_judge(truth, "largest")
        rows.append(asked(_named(row, "eigenvalues", "largest"), question, judge))
    return rows


def network_cases(
    seed: int,
    count: int,
    *,
    names: Sequence[str] = (),
    samples: Sequence[int] = (),
) -> Iterator[tuple[str, networks.Case]]:
    """Every regime in turn; dtype and loss at random, and architecture and samples where named.

    Otherwise all have the architecture and the number of samples of the seed, as one compilation
    serves for them: 36 seeds in a row go through all, each architecture with two numbers of samples
    of the three.
    """
    regimes = list(networks.REGIMES)
    every = list(ARCHITECTURES)
    place = seed % len(every)
    other = networks.MANY if place % 2 else networks.FEW
    again = seed // len(every) % 2
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        name = str(rng.choice(names or every[place : place + 1]))
        n = int(rng.choice(samples or (other if again else networks.SEVERAL,)))
        loss = str(rng.choice(networks.LOSSES))
        yield f"{seed}:{index}", networks.draw(rng, name, n, loss, regimes[index % len(regimes)])


def random_networks(
    seed: int,
    count: int,
    *,
    methods: Sequence[str] = ("auto", "dense", "factored", "krylov", "inverse"),
    **options: Any,
) -> list[Row]:
    """``count`` random networks: kappa and spectra of the NTK, G, H and H_F."""
    rows: list[Row] = []
    for draw, case in network_cases(seed, count, **options):
        rows += asked_network(draw, case, methods)
    return rows


def inputs_of_every_type(
    seed: int,
    count: int,
    *,
    methods: Sequence[str] = ("auto", "dense", "krylov"),
    name: str = "",
) -> list[Row]:
    """``count`` networks on booleans, integers and floats of every width."""
    rows: list[Row] = []
    for draw, case in input_types.cases(seed, count, name=name):
        rows += asked_network(draw, case, methods)
    return rows


def asked_network(
    draw: str, case: networks.Case, methods: Sequence[str], *, hessians: bool = True
) -> Iterator[Row]:
    small = hessians and len(case.x) <= _HESSIANS_UP_TO
    about = f"{draw} {case.architecture.name}, {len(case.x)} samples, {case.dtype}, {case.loss}"
    row = Row("networks", case.regime, about, "", "")
    try:
        truths = networks.truths(case, hessians=small)
    except ArithmeticError as failure:  # a reference that contradicts itself ends no campaign
        yield replace(_named(row, "reference", "many digits"), outcome=FAILED, note=str(failure))
        return
    model = case.architecture.jax, jax.device_put(dict(case.params))
    arguments = {
        "ntk": (gnjax.ntk, (case.x,), {}),
        "gauss_newton": (gnjax.gauss_newton, (case.x,), {"loss": case.loss}),
        "hessian": (gnjax.hessian, (case.x, case.y), {"loss": case.loss}),
        "functional_hessian": (gnjax.functional_hessian, (case.x, case.y), {"loss": case.loss}),
    }
    for name, (make, given, options) in arguments.items():
        truth = getattr(truths, name)
        if truth is None:
            continue
        made: list[Any] = []
        refused = asked(
            _named(row, name, "operator"),
            partial(make, model, *given, **options),
            lambda row, op, made=made: made.append(op) or row,
        )
        if not made:
            yield refused
            continue
        (op,) = made
        semidefinite = isinstance(truth, Truth)
        values = truth.padded(op.shape[0]) if semidefinite else list(truth)
        named = _named(row, f"eigenvalues of {name}", "all")
        yield asked(named, partial(gnjax.eigenvalues, op), spectrum_judge(values))
        if semidefinite:
            yield from asked_kappa(
                _named(row, f"kappa of {name}", ""), op, methods, kappa_judge(truth)
            )


def chances(seed: int, count: int, *, sizes: Sequence[int] = (120, 200)) -> list[Row]:
    """``count`` runs of the Lanczos certificate on spectra that hide an end.

    A diagonal matrix is as hard as any other with its eigenvalues, for a start that is uniformly
    random, and its truth is on the diagonal. One eigenvalue at either end lies just beyond a bulk,
    where a run that works towards a wide interval may stop without it.
    """
    rows: list[Row] = []
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        size, rtol = int(rng.choice(sizes)), float(rng.choice([0.05, 0.2, 0.5]))
        name = list(drawn.HARD)[index % len(drawn.HARD)]
        values = drawn.HARD[name](rng, size, rtol)
        method = str(rng.choice(["krylov", "krylov", "inverse"]))
        row = Row("chances", name, f"{seed}:{index}", "kappa", f"{method}, ritz")
        question = partial(
            gnjax.condition_number,
            gnjax.dense(np.diag(values)),
            method=method,
            rtol=rtol,
            seed=int(rng.integers(2**31)),
        )
        rows.append(asked(row, question, kappa_judge(diagonal_truth(values))))
    return rows


def diagonal_truth(values: np.ndarray) -> Truth:
    ordered = sorted(values.tolist(), reverse=True)
    return Truth(tuple(flint.arb(v) for v in ordered), len(ordered))
