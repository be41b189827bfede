"""kappa of ResNet20's NTK, and eigenvalues of a GPT with 124 million parameters, on an accelerator.

    python -m benchmarks.devices [--samples=1000] [--tokens=64] [--save]

kappa takes J in float32, where the answer is verified against float64, and in float64. Every
question is asked twice: cold, and again with all that is compiled. Memory is the device's, where it
says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax

import gnjax
from benchmarks import gpt, gpt_eigenvalues, harness, record, resnet_kappa
from benchmarks.record import Row

_RTOL = 1e-3  # of the residuals of a GPT's eigenvalues
_STEPS = 12  # of Lanczos for its density: as many vectors of parameters as 16 GB hold


def measure(samples: int = 1000, tokens: int = 64) -> Iterator[Row]:
    gnjax.enable_x64()
    yield from kappas(samples)
    yield from language_model(gpt.Shape(), tokens)


def _twice(case: str, tool: str, ask: Callable[[], Any], note: Callable[[Any], str]) -> list[Row]:
    """The same question cold and again, with a note on each answer."""
    rows = []
    for run in ("cold", "again"):
        seconds, found = harness.once(ask)
        named = f"{tool}, {run}"
        rows.append(Row(case, named, [seconds], gigabytes=_peak_memory(), note=note(found)))
    return rows


def kappas(samples: int) -> list[Row]:
    """kappa of ResNet20's NTK by products with J in float32 and in float64, twice."""
    model, x = resnet_kappa.network(samples)
    made: list[Row] = []
    for dtype, bytes_of_number in (("float32", 4), ("float64", 8)):
        op = gnjax.ntk(model, x)
        limits = gnjax.Limits(rows_bytes=1.02 * bytes_of_number * op.shape[0] * op.net.parameters)
        name = f"kappa of the NTK of ResNet20, {op.shape[0]} x {op.shape[0]}"
        ask = partial(_kappa, model, x, limits)
        made += _twice(name, f"gnjax, J in {dtype}", ask, _interval)
    return made


def _kappa(model: Any, x: jax.Array, limits: gnjax.Limits) -> gnjax.answers.ConditionNumber:
    return gnjax.condition_number(gnjax.ntk(model, x), method="sketched", limits=limits)


def _interval(kappa: gnjax.answers.ConditionNumber) -> str:
    low, high = kappa.interval
    return f"in [{low:.6g}, {high:.6g}], {kappa.certificate.brief}"


def _peak_memory() -> float | None:
    """The most memory of the device that this process has taken, in GB, where the device says."""
    peak = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return None if peak is None else 1e-9 * peak


def language_model(shape: gpt.Shape, tokens: int) -> list[Row]:
    """The largest eigenvalues and the density of a GPT's Gauss-Newton matrix."""
    op = gpt_eigenvalues.gauss_newton(shape, gpt_eigenvalues.parameters(shape), tokens)
    name = f"of a GPT with {op.shape[0]:,} parameters, {tokens} tokens, {op.dtype}"
    ask = partial(gnjax.eigenvalues, op, k=harness.EIGENVALUES, rtol=_RTOL)
    rows = _twice(f"10 largest Gauss-Newton eigenvalues {name}", "gnjax", ask, _errors)
    probe = partial(gnjax.spectral_density, op, probes=1, steps=_STEPS)
    seconds, density = harness.once(probe)
    note = f"one probe, {density.products} products"
    return [*rows, Row(f"density {name}", "gnjax", [seconds], gigabytes=_peak_memory(), note=note)]


def _errors(top: gnjax.answers.Spectrum) -> str:
    error = float(top.errors.max() / top.values[0])
    return f"errors {error:.0e} of the largest, {top.certificate.brief}"


if __name__ == "__main__":
    record.command(measure)
