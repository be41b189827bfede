"""kappa of a linear network's Gauss-Newton matrix against scipy, on the same operator.

    python -m benchmarks.linear_kappa [--skip_large] [--repeats=5]

Rows: d=784, k=10, m=1000, L=5 (7840 x 7840) against ``eigvalsh`` of the formed matrix and ``eigsh``
on the structured operator; d=3072, m=3100, L=5 (30720 x 30720) in a process of its own, for its
peak memory, against ``eigsh`` and n^3 extrapolation. Times are medians of warm runs in one process;
every method gets all cores; forming the operator is timed apart, as all methods share it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import time

import jax
import numpy as np
import scipy.linalg
import scipy.sparse.linalg

import gnjax
from benchmarks import record
from benchmarks.rivals.harness import once, peak_bytes
from gnjax import papers

_SMALL = (784, 10, 1000, 5)
_LARGE = (3072, 10, 3100, 5)
_RTOL = 1e-3
_PATIENCE = 120.0  # seconds for the rival on the large matrix


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--skip_large", action="store_true", help="only the 7840 x 7840 row")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="write what the README's tables show")
    parser.add_argument("--large_only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    gnjax.enable_x64()
    if options.large_only:
        print(json.dumps([dataclasses.asdict(row) for row in _large()]))
        return
    began = record.environment()
    rows = _small(options.repeats)
    if not options.skip_large:
        command = [sys.executable, "-m", "benchmarks.linear_kappa", "--large_only"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows += [record.Row(**row) for row in json.loads(done.stdout)]
    record.show(rows)
    if options.save:
        record.save("linear_kappa", rows, began)


def _operator(d: int, k: int, m: int, depth: int) -> papers.SumOfKroneckers:
    widths = (d, *[m] * (depth - 1), k)
    weights = gnjax.initializers.chain(jax.random.key(0), widths, "kaiming_normal")
    return jax.block_until_ready(papers.linear_gauss_newton(weights))


def _small(repeats: int, sizes: tuple[int, ...] = _SMALL) -> list[record.Row]:
    op = _operator(*sizes)
    calls = (
        lambda: _operator(*sizes),
        lambda: gnjax.condition_number(op, rtol=_RTOL),
        lambda: _eigsh(op),
    )
    record.in_turn(calls[1:], 1)  # compile
    (form, ours, sparse), (_, kappa, (value, products)) = record.in_turn(calls, repeats)
    matrix = np.asarray(op.as_matrix())
    dense, values = once(lambda: scipy.linalg.eigvalsh(matrix, check_finite=False))
    truth = values[-1] / values[0]
    name = _name(sizes)
    inside = "contains" if kappa.interval[0] <= truth <= kappa.interval[1] else "DOES NOT CONTAIN"
    return [
        record.Row(
            name,
            "gnjax",
            ours,
            error=abs(kappa.value / truth - 1),
            note=f"its interval {inside} the dense value; {np.median(form):.2g} s to form it",
        ),
        record.Row(
            name,
            "scipy `eigvalsh` of the formed matrix",
            [dense],
            [dense / own for own in ours],
            note="one run for all pairs",
        ),
        record.Row(
            name,
            "scipy `eigsh` on the structure",
            sparse,
            record.ratios(sparse, ours),
            error=None if value is None else abs(value / truth - 1),
            note=f"{products} products",
        ),
    ]


def _large() -> list[record.Row]:
    """The rows of the large network, timed with compilation; its matrix is not formed."""
    form, op = once(lambda: _operator(*_LARGE))
    ours, _ = once(lambda: gnjax.condition_number(op, rtol=_RTOL))
    peak = peak_bytes() / 1e9
    seconds, (value, products) = once(lambda: _eigsh(op, _PATIENCE))
    name = f"{_name(_LARGE)}, cold"
    found = [] if value is None else [seconds]
    said = f"no answer in {seconds:.0f} s" if value is None else f"{products} products"
    return [
        record.Row(name, "gnjax", [ours], gigabytes=peak, note=f"and {form:.2g} s to form it"),
        record.Row(name, "scipy `eigsh` on the structure", found, note=said),
    ]


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
    start = np.random.default_rng(0).standard_normal(op.shape[0])
    try:
        ends = [
            scipy.sparse.linalg.eigsh(
                linear, 1, which=which, tol=1e-4, ncv=40, v0=start, return_eigenvectors=False
            )[0]
            for which in ("LA", "SA")
        ]
    except _OutOfPatience:
        return None, count
    return float(ends[0] / ends[1]), count


if __name__ == "__main__":
    main()
