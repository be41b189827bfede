"""kappa of a linear network's Gauss-Newton matrix against scipy, on the same operator.

    python -m benchmarks.linear_kappa [--skip_large] [--repeats=5]

Rows: d=784, k=10, m=1000, L=5 (7840 x 7840) against ``eigvalsh`` of the formed matrix and ``eigsh``
on the structured operator; d=3072, m=3100, L=5 (30720 x 30720) in a process of its own, for its
peak memory, against ``eigsh`` and n^3 extrapolation. Times are medians of warm runs in one process;
every method gets all cores; forming the operator is timed apart, as all methods share it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import numpy as np
import scipy.linalg
import scipy.sparse.linalg

import gnjax

_SMALL = (784, 10, 1000, 5)
_LARGE = (3072, 10, 3100, 5)
_RTOL = 1e-3
_PATIENCE = 120.0  # seconds for the rival on the large matrix


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--skip_large", action="store_true", help="only the 7840 x 7840 row")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--large_only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    gnjax.enable_x64()
    if options.large_only:
        print(json.dumps(_large()))
        return
    small = _small(options.repeats)
    _report(small)
    if not options.skip_large:
        command = [sys.executable, "-m", "benchmarks.linear_kappa", "--large_only"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        _report_large(json.loads(done.stdout), small)


def _operator(d: int, k: int, m: int, depth: int) -> gnjax.SumOfKroneckers:
    widths = (d, *[m] * (depth - 1), k)
    weights = gnjax.initializers.chain(jax.random.key(0), widths, "kaiming_normal")
    return jax.block_until_ready(gnjax.linear_gauss_newton(weights))


def _small(repeats: int) -> dict[str, Any]:
    op = _operator(*_SMALL)
    gnjax.condition_number(op, rtol=_RTOL)  # compile
    _eigsh(op)
    form, ours, sparse = [], [], []
    for _ in range(repeats):  # in turn, so that a slow spell of the machine hits all of them
        form.append(_timed(lambda: _operator(*_SMALL))[0])
        seconds, kappa = _timed(lambda: gnjax.condition_number(op, rtol=_RTOL))
        ours.append(seconds)
        seconds, (sparse_kappa, products) = _timed(lambda: _eigsh(op))
        sparse.append(seconds)
    matrix = np.asarray(op.as_matrix())
    dense, values = _timed(lambda: scipy.linalg.eigvalsh(matrix, check_finite=False))
    truth = values[-1] / values[0]
    return {
        "form": median(form),
        "ours": median(ours),
        "eigsh": median(sparse),
        "eigsh_ratio": median(b / a for a, b in zip(ours, sparse, strict=True)),
        "eigsh_products": products,
        "dense": dense,
        "ours_error": abs(kappa.value / truth - 1),
        "eigsh_error": abs((sparse_kappa or np.nan) / truth - 1),
        "kappa": str(kappa),
        "contained": bool(kappa.interval[0] <= truth <= kappa.interval[1]),
    }


def _large() -> dict[str, Any]:
    began = time.perf_counter()
    op = _operator(*_LARGE)
    form = time.perf_counter() - began
    ours, kappa = _timed(lambda: gnjax.condition_number(op, rtol=_RTOL))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    sparse, (sparse_kappa, products) = _timed(lambda: _eigsh(op, _PATIENCE))
    return {
        "form": form,
        "ours": ours,
        "peak": peak,
        "eigsh": sparse,
        "eigsh_products": products,
        "difference": sparse_kappa and abs(kappa.value / sparse_kappa - 1),
        "kappa": str(kappa),
    }


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


_product = jax.jit(lambda op, v: op.mv(v))


class _OutOfPatience(Exception):
    """The rival was stopped; how far it came is reported."""


def _eigsh(op: gnjax.SumOfKroneckers, patience: float = float("inf")) -> tuple[float | None, int]:
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


def _report(row: dict[str, Any]) -> None:
    ours = row["ours"]
    print("d=784 k=10 m=1000 L=5 (7840 x 7840), kappa to 1e-3; forming the operator apart")
    print(f"  form operator            {row['form']:8.3f} s")
    print(f"  gnjax                    {ours:8.3f} s   error {row['ours_error']:.1e}")
    print(f"  scipy eigvalsh (dense)   {row['dense']:8.3f} s   {row['dense'] / ours:.1f} x gnjax")
    print(
        f"  scipy eigsh              {row['eigsh']:8.3f} s   {row['eigsh_ratio']:.1f} x gnjax, "
        f"error {row['eigsh_error']:.1e}, {row['eigsh_products']} products"
    )
    whole = (row["form"] + row["dense"]) / (row["form"] + ours)
    print(f"  with forming: dense / gnjax {whole:.1f} x")
    print(f"  {row['kappa']}; contains the dense value: {row['contained']}")


def _report_large(row: dict[str, Any], small: dict[str, Any]) -> None:
    scale = (_LARGE[0] / _SMALL[0]) ** 3
    dense = small["dense"] * scale
    total = row["form"] + row["ours"]
    print("\nd=3072 k=10 m=3100 L=5 (30720 x 30720), cold, in a process of its own")
    print(f"  form operator            {row['form']:8.1f} s")
    print(f"  gnjax                    {row['ours']:8.1f} s   peak memory {row['peak']:.2f} GB")
    print(f"  forming and kappa        {total:8.1f} s")
    print(f"  dense, extrapolated n^3  {dense:8.0f} s   {dense / row['ours']:.0f} x gnjax")
    stopped = row["difference"] is None
    print(
        f"  scipy eigsh            {'> ' if stopped else '  '}{row['eigsh']:8.1f} s   "
        f"{row['eigsh'] / row['ours']:.1f} x gnjax, {row['eigsh_products']} products, "
        + ("stopped" if stopped else f"values differ by {row['difference']:.1e}")
    )
    print(f"  {row['kappa']}")


if __name__ == "__main__":
    main()
