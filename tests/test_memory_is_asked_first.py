"""What does not fit is refused in a sentence before memory is taken, and limits are kept.

The class: a size is known from an argument or a shape, and is looked at only after something of
that size was allocated, copied or scanned. The matrices here take no memory, whatever their shape.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import gnjax
from gnjax import papers
from gnjax.operators.facts import facts_of
from gnjax.operators.of_networks import network_gram as module
from tests.allocation import MEBIBYTE, at_most
from tests.compiled import compiled

HUGE = 10**9


class Doubling:
    """The matrix 2 I of any size, by NumPy, so that its products are seen by ``at_most``."""

    def __init__(self, size: int) -> None:
        self.shape, self.dtype = (size, size), np.dtype(float)

    def mv(self, v: Any) -> Any:
        return 2 * v

    def facts(self) -> gnjax.operators.Facts:
        return gnjax.operators.Facts(error=0.0, symmetric=True, product=lambda: self.mv)

    def as_matrix(self) -> Any:
        pytest.fail("the matrix was asked for")


@pytest.mark.parametrize("size", [40_000, HUGE])
def test_a_matrix_beyond_the_limit_is_neither_copied_nor_scanned(size: int) -> None:
    matrix = np.broadcast_to(1.0, (size, size))
    with (
        at_most(MEBIBYTE),
        pytest.raises(ValueError, match=r"limits allow 20,000 rows; pass limits"),
    ):
        gnjax.dense(matrix)


def test_a_factor_or_a_row_beyond_the_memory_of_the_machine() -> None:
    """A limit of the machine, where no limit of the library applies."""
    for call in (
        lambda: gnjax.factored(np.broadcast_to(1.0, (10**6, 10**8))),
        lambda: gnjax.diagonal(np.broadcast_to(1.0, 10**14)),
        lambda: papers.bounds.linear([np.broadcast_to(1.0, (10**6, 10**8))]),
    ):
        with at_most(MEBIBYTE), pytest.raises(ValueError, match=r"GB of memory, and this machine"):
            call()


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("gaussian", {"samples": HUGE}),
        ("gaussian", {"dimension": 10**12}),
        ("gaussian", {"classes": 10**12}),
        ("photo_patches", {"samples": HUGE}),
    ],
)
def test_data_that_are_made_here_must_fit(name: str, sizes: dict[str, int]) -> None:
    with at_most(64 * MEBIBYTE), pytest.raises(ValueError, match=r"samples"):
        gnjax.data.load(name, **sizes)  # type: ignore[arg-type]


# --- large networks -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large_network() -> gnjax.operators.NetworkGram:
    """J^T J of two million parameters at 3,000 samples of ten outputs, whose products take no time.

    J J^T has 30,000 rows. A dense network of 19 million parameters at 5,000 images had measured its
    rounding for minutes before it was refused.
    """
    table = np.zeros((200_000, 10))
    tokens = np.random.default_rng(0).integers(0, len(table), (3_000, 2))
    op = gnjax.gauss_newton((lambda t, x: t[x].sum(1), table), tokens)
    assert op.shape == (2_000_000, 2_000_000)
    return op


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (gnjax.eigenvalues, r"all eigenvalues of 30,000 rows .* 7 GB, .* allow 20,000 rows"),
        (partial(gnjax.eigenvalues, vectors=True), r"of 2,000,000 rows .*; ask for k of them"),
        (partial(gnjax.logdet, damping=1.0, method="exact"), r"30,000 rows.*method='quadrature'"),
        (partial(gnjax.inverse_diagonal, damping=1.0, method="exact"), "use method='estimate'"),
        (partial(gnjax.condition_number, method="dense"), "30000 x 30000 matrix needs 7 GB"),
        (partial(gnjax.condition_number, method="factored"), "480 GB; use method='krylov'"),
        (partial(gnjax.condition_number, certify="inertia"), r"7 GB, .*; use certify='ritz'"),
        (lambda op: op.as_matrix(), r"64,000.0 GB of memory, and this machine has .*by only="),
        (lambda op: op.factor(), r"960.0 GB of memory, and this machine has"),
    ],
)
def test_what_has_no_room_is_refused_before_anything_is_compiled(
    large_network: gnjax.operators.NetworkGram, ask: Any, said: str
) -> None:
    def refused(op: Any) -> None:
        with pytest.raises(ValueError, match=said):
            ask(op)

    with at_most(4 * MEBIBYTE):
        assert compiled(refused, large_network) == 0


@pytest.mark.parametrize("side", ["parameters", "outputs"])
def test_what_is_only_multiplied_is_multiplied_before_its_rounding_is_measured(
    large_network: gnjax.operators.NetworkGram, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The norm, too, comes from a product."""
    op = replace(large_network, side=side)
    monkeypatch.setattr(
        module, "measure_jacobian", lambda net: pytest.fail("it was measured first")
    )
    exponent = facts_of(op).magnitude()
    np.testing.assert_allclose(2.0**exponent, np.linalg.norm(op @ _unit(op.shape[0])), rtol=0.51)


def _unit(size: int) -> np.ndarray:
    return (np.random.default_rng(1).integers(0, 2, size) * 2.0 - 1.0) / size**0.5


# --- traces --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["hutchinson", "hutch++", "xtrace", "exact"])
def test_a_trace_of_too_many_rows(method: str) -> None:
    with at_most(MEBIBYTE), pytest.raises(ValueError, match=r"Limits\(density_bytes=.*the memory"):
        gnjax.trace(Doubling(HUGE), method=method)


@pytest.mark.parametrize("method", ["hutch++", "xtrace"])
def test_a_trace_that_stores_its_vectors_says_what_they_take(method: str) -> None:
    with at_most(MEBIBYTE), pytest.raises(ValueError, match=r"use method='hutchinson'"):
        gnjax.trace(Doubling(10**8), method=method)


@pytest.mark.parametrize("probes", [2, 40])
def test_hutchinson_has_as_few_vectors_as_the_limit_says(probes: int) -> None:
    """One vector, its product and their product entry by entry; two more where it is not symmetric.

    A GPT of 124 million parameters takes 3 GB of them here, where sixteen at a time took 48.
    """
    size = 200_000
    one = gnjax.Limits(basis_bytes=1.0)
    gnjax.trace(Doubling(10), probes=2)  # imports what it needs
    with at_most(3.5 * 8 * size):
        answer = gnjax.trace(Doubling(size), probes=probes, limits=one)
    assert answer == gnjax.trace(Doubling(size), probes=probes)
    assert answer.value == 2.0 * size


@pytest.mark.parametrize(("method", "each"), [("hutch++", 2.0), ("xtrace", 3.5)])
def test_the_vectors_that_are_stored_are_those_that_are_stated(method: str, each: float) -> None:
    size, probes = 20_000, 60
    needed = 8.0 * size * each * probes
    gnjax.trace(Doubling(10), method=method, probes=4)
    with at_most(1.1 * needed):
        gnjax.trace(
            Doubling(size), method=method, probes=probes, limits=gnjax.Limits(density_bytes=needed)
        )
    with pytest.raises(ValueError, match="probes=59"):
        gnjax.trace(
            Doubling(size),
            method=method,
            probes=probes,
            limits=gnjax.Limits(density_bytes=needed - 1),
        )


def test_a_density_has_one_basis_at_a_time() -> None:
    """The basis of one probe and some vectors beside it, whatever the number of probes is, and so
    has the run that estimates the norm."""
    size, steps = 100_000, 20
    limits = gnjax.Limits(basis_bytes=1.0, density_bytes=8.0 * size * steps)
    gnjax.spectral_density(Doubling(10), probes=1, steps=2)
    op = gnjax.diagonal(np.linspace(1.0, 2.0, size))
    with at_most(1.5 * 8 * size * steps):
        gnjax.spectral_density(op, probes=4, steps=steps, limits=limits)
