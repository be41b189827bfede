"""kappa of a linear network's Gauss-Newton matrix against scipy, on the same operator.

    python -m benchmarks.linear_kappa [--skip_large] [--repeats=5] [--save]

Rows: d=784, k=10, m=1000, L=5 (7840 x 7840) against ``eigvalsh`` of the formed matrix and ``eigsh``
on the structured operator; d=3072, m=3100, L=5 (30720 x 30720), each tool in a process of its own,
for its peak memory, against ``eigsh``. Times are medians of warm runs in one process, and one cold
run of the large network; every method gets all cores; forming the operator is timed apart, as all
methods share it.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np
import scipy.linalg
import scipy.sparse.linalg

import gnjax
from benchmarks import harness, record
from benchmarks.record import Row
from gnjax import papers

_SMALL = (784, 10, 1000, 5)
_LARGE = (3072, 10, 3100, 5)
_RTOL = 1e-3
_PATIENCE = 120.0  # seconds for the rival on the large matrix


def measure(skip_large: bool = False, repeats: int = 5) -> list[Row]:
    gnjax.enable_x64()
    return small(repeats) + ([] if skip_large else _large())


def _operator(d: int, k: int, m: int, depth: int) -> papers.SumOfKroneckers:
    widths = (d, *[m] * (depth - 1), k)
    weights = gnjax.initializers.chain(jax.random.key(0), widths, "kaiming_normal")
    return jax.block_until_ready(papers.linear_gauss_newton(weights))


def small(repeats: int, sizes: tuple[int, ...] = _SMALL) -> list[Row]:
    op = _operator(*sizes)
    calls = (
        lambda: _operator(*sizes),
        lambda: gnjax.condition_number(op, rtol=_RTOL),
        lambda: _eigsh(op),
    )
    record.in_turn(calls[1:], 1)  # compile
    (form, ours, sparse), (_, kappa, (value, products)) = record.in_turn(calls, repeats)
    matrix = np.asarray(op.as_matrix())
    dense, values = harness.once(lambda: scipy.linalg.eigvalsh(matrix, check_finite=False))
    truth = values[-1] / values[0]
    inside = "contains" if kappa.interval[0] <= truth <= kappa.interval[1] else "DOES NOT CONTAIN"
    said = f"its interval {inside} the dense value; {np.median(form):.2g} s to form it"
    formed, structured = "scipy `eigvalsh` of the formed matrix", "scipy `eigsh` on the structure"
    name, shares, ratios = _name(sizes), [dense / own for own in ours], record.ratios(sparse, ours)
    apart = None if value is None else abs(value / truth - 1)
    return [
        Row(name, "gnjax", ours, error=abs(kappa.value / truth - 1), note=said),
        Row(name, formed, [dense], shares, note="one run for all pairs"),
        Row(name, structured, sparse, ratios, error=apart, note=f"{products} products"),
    ]


def _large() -> list[Row]:
    """The rows of the large network, timed with compilation; its matrix is not formed."""
    own = harness.apart("benchmarks.linear_kappa:cold", {})
    rival = harness.apart("benchmarks.linear_kappa:eigsh", {})
    name, seconds = f"{_name(_LARGE)}, cold", rival["seconds"]
    stopped = f"no answer in {seconds:.0f} s"
    said, runs = (f"{rival['products']} products", [seconds]) if rival["done"] else (stopped, [])
    note = f"and {own['form']:.2g} s to form it"
    return [
        Row(name, "gnjax", [own["seconds"]], gigabytes=own["gigabytes"], note=note),
        Row(name, "scipy `eigsh` on the structure", runs, note=said),
    ]


def cold() -> dict[str, Any]:
    """The seconds of gnjax on the large network, and those of forming the operator."""
    gnjax.enable_x64()
    form, op = harness.once(lambda: _operator(*_LARGE))
    seconds, _ = harness.once(lambda: gnjax.condition_number(op, rtol=_RTOL))
    return {"form": form, "seconds": seconds}


def eigsh() -> dict[str, Any]:
    """The seconds of scipy on the large network, its products, and whether it came to an end."""
    gnjax.enable_x64()
    op = _operator(*_LARGE)
    seconds, (value, products) = harness.once(lambda: _eigsh(op, _PATIENCE))
    return {"seconds": seconds, "products": products, "done": value is not None}


def _name(sizes: tuple[int, ...]) -> str:
    d, k, m, depth = sizes
    return f"d={d} k={k} m={m} L={depth} ({d * k} x {d * k})"


_product = jax.jit(lambda op, v: op.mv(v))


class _OutOfPatience(Exception):
    """Raised to stop the rival once its time is over; how far it came is reported."""


def _eigsh(op: papers.SumOfKroneckers, patience: float = float("inf")) -> tuple[float | None, int]:
    """ARPACK on the same compiled product: LA, then SA, tol 1e-4, ncv 40; None if stopped."""
    count, began = 0, time.perf_counter()

    def product(v: np.ndarray) -> np.ndarray:
        nonlocal count
        count += 1
        if time.perf_counter() - began > patience:
            raise _OutOfPatience
        return np.asarray(_product(op, v.ravel()))

    linear = scipy.sparse.linalg.LinearOperator(op.shape, matvec=product, dtype=np.float64)
    options = {"tol": 1e-4, "ncv": 40, "return_eigenvectors": False}
    start = np.random.default_rng(0).standard_normal(op.shape[0])
    try:
        largest, smallest = (
            scipy.sparse.linalg.eigsh(linear, 1, which=which, v0=start, **options)[0]
            for which in ("LA", "SA")
        )
    except _OutOfPatience:
        return None, count
    return float(largest / smallest), count


if __name__ == "__main__":
    record.command(measure)
