"""Rows on the device at hand, in float64 and in float32 with verification, beside its peak.

    python -m benchmarks.devices [--samples=1000] [--repeats=5] [--save]

GFLOP/s count multiplications and additions: of the NTK by formula, of compiled products as XLA
counts them. The peak is that of the maker's sheet where the device is known, else that of a large
matrix product, which every row names. A float32 product is verified: its error against float64 is
the row's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gnjax
from benchmarks import cases, gpt, gpt_eigenvalues, record, resnet_kappa
from benchmarks.rivals import harness, jax_models
from gnjax import papers
from gnjax.models.mlp import freeze_statistics
from gnjax.models.resnet import ResNet
from gnjax.operators.prepare import float32_rules, in_float32
from gnjax.operators.recast import narrowed

# TFLOP/s in float64 and in float32, of the SXM boards, tensor cores where they keep all bits.
_SHEETS = {
    "NVIDIA H200": (67.0, 67.0),
    "NVIDIA H100": (67.0, 67.0),
    "NVIDIA A100-SXM": (19.5, 19.5),
}
_EIGENVALUES = 5
_RTOL = 1e-4
_GPT_RTOL = 1e-3  # of the residuals of a GPT's eigenvalues
_GPT_STEPS = 12  # of Lanczos for its density: as many vectors of parameters as 16 GB hold
_RESNET_SHARE = 4  # one sample in so many goes through ResNet20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--square", type=int, default=4096, help="rows of the product for the peak")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="write what the README's tables show")
    options = parser.parse_args()
    gnjax.enable_x64()
    began = record.environment()
    found = rows(options.samples, options.square, options.repeats) + kappas(options.samples)
    found += language_model(gpt.Shape())
    record.show(found)
    if options.save:
        record.save("devices", found, began)


def rows(samples: int, square: int, repeats: int) -> list[record.Row]:
    peaks = {dtype: _peak(dtype, square, repeats) for dtype in ("float64", "float32")}
    return [
        *_matrix(samples, repeats, peaks),
        *_products(samples, repeats, peaks),
        _largest(samples, repeats),
    ]


def _peak(dtype: str, square: int, repeats: int) -> tuple[float, str]:
    """The device's peak in GFLOP/s, and where it is known from: a data sheet or a product."""
    kind = jax.devices()[0].device_kind
    for name, sheet in _SHEETS.items():
        if kind.startswith(name):
            return 1e3 * sheet[dtype == "float32"], "peak of the sheet"
    a = jnp.ones((square, square), dtype)
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    seconds, _ = harness.timed(lambda: product(a).block_until_ready(), repeats)
    return 2e-9 * square**3 / min(seconds), f"peak of a product of {square} x {square}"


def _pair(
    case: str,
    seconds: tuple[Sequence[float], Sequence[float]],
    flops: float,
    peaks: dict[str, tuple[float, str]],
    error: float,
) -> list[record.Row]:
    """A row in float64, and one in float32 with its error against the first."""
    made = []
    for (dtype, (peak, source)), runs in zip(peaks.items(), seconds, strict=True):
        rate = {"gflops": 1e-9 * flops / float(np.median(runs)), "peak": peak}
        made.append(record.Row(case, f"gnjax, {dtype}", runs, note=source, rate=rate))
    return [made[0], replace(made[1], ratios=record.ratios(*seconds[::-1]), error=error)]


def _matrix(samples: int, repeats: int, peaks: dict[str, tuple[float, str]]) -> list[record.Row]:
    """The NTK of 784-500-10: inner products of inputs and of sensitivities, layer by layer."""
    case = cases.ntk(samples)
    pairs, outputs = (samples**2 + samples) / 2, cases.CLASSES**2
    sizes = [weight.shape for weight in case.weights.values()]
    flops = sum(2 * pairs * (inputs + outputs * (rows + 1)) for rows, inputs in sizes)
    model = jax_models.relu_mlp, jax_models.to_jax(case.weights)
    op = gnjax.ntk(model, jnp.asarray(case.x))
    light = narrowed(op)
    seconds, exact = harness.timed(lambda: np.asarray(op.as_matrix()), repeats)
    with float32_rules():
        faster, rough = harness.timed(lambda: np.asarray(light.as_matrix()), repeats)
    error = float(np.abs(rough - exact).max() / np.abs(exact).max())
    name = f"NTK of 784-500-10, {len(exact)} x {len(exact)}"
    return _pair(name, (seconds, faster), flops, peaks, error)


def _products(samples: int, repeats: int, peaks: dict[str, tuple[float, str]]) -> list[record.Row]:
    """Products with the Gauss-Newton matrices of ResNet20 and of a linear network."""
    count = max(samples // _RESNET_SHARE, 2)
    data = gnjax.data.load("photo_patches", samples=count)
    x = jnp.asarray(data.inputs.reshape(count, *data.shape))
    model = freeze_statistics(ResNet(20, cases.CLASSES, key=jax.random.key(0)), x)
    whole = gnjax.gauss_newton(model, x, loss="cross_entropy", side="parameters", batch_size=count)
    op = gnjax.linearised(whole)
    light = in_float32(whole)
    assert light is not None
    v = jnp.asarray(np.random.default_rng(0).standard_normal(op.shape[0]))
    name = f"Gauss-Newton product, ResNet20, {count} samples, linearised before"
    return [
        *_both(name, op, light, v, repeats, peaks),
        *_linear(samples, repeats, peaks),
    ]


def _linear(samples: int, repeats: int, peaks: dict[str, tuple[float, str]]) -> list[record.Row]:
    widths = (min(784, samples), *[samples] * 4, 10)
    weights = gnjax.initializers.chain(jax.random.key(0), widths, "kaiming_normal")
    op = papers.linear_gauss_newton(weights)
    light = narrowed(op)
    v = jnp.asarray(np.random.default_rng(0).standard_normal((op.shape[0], 16)))
    name = f"product of a linear network, {op.shape[0]} x {op.shape[0]}, 16 columns"
    return _both(name, op, light, v, repeats, peaks)


def _both(
    name: str,
    op: Any,
    light: Any,
    v: jax.Array,
    repeats: int,
    peaks: dict[str, tuple[float, str]],
) -> list[record.Row]:
    """A product in float64, and in float32 with its error against float64."""
    seconds, exact, flops = _timed(op, v, repeats)
    with float32_rules():
        faster, rough, _ = _timed(light, v.astype(jnp.float32), repeats)
    error = float(np.linalg.norm(rough - exact) / np.linalg.norm(exact))
    return _pair(name, (seconds, faster), flops, peaks, error)


def _timed(op: Any, v: jax.Array, repeats: int) -> tuple[Sequence[float], np.ndarray, float]:
    """Seconds of a compiled product, the product, and its flops as XLA counts them."""
    product: Callable[..., jax.Array] = jax.jit(lambda op, v: op.mv(v))
    analysis = jax.jit(lambda op, v: op.mv(v)).lower(op, v).compile().cost_analysis() or {}
    seconds, image = harness.timed(lambda: product(op, v).block_until_ready(), repeats)
    return seconds, np.asarray(image, np.float64), float(analysis.get("flops", np.nan))


def _largest(samples: int, repeats: int) -> record.Row:
    """The largest eigenvalues of a Hessian in float64."""
    case = cases.hessian(samples)
    model = jax_models.tanh_mlp, jax_models.to_jax(case.weights)
    op = gnjax.hessian(model, jnp.asarray(case.x), case.y, loss="cross_entropy")
    seconds, found = harness.timed(
        lambda: gnjax.eigenvalues(op, k=_EIGENVALUES, which="largest", rtol=_RTOL), repeats
    )
    bound = float(found.errors.max() / found.values[0])
    name = f"{_EIGENVALUES} largest Hessian eigenvalues to {_RTOL:.0e}, 64-100-10"
    note = f"error bound {bound:.0e}, {found.certificate.brief}"
    return record.Row(name, "gnjax, float64", seconds, note=note)


def kappas(samples: int) -> list[record.Row]:
    """kappa of ResNet20's NTK by products with J in float32 and in float64, twice."""
    model, x = resnet_kappa.network(samples)
    made = []
    for dtype, bytes_of_number in (("float32", 4), ("float64", 8)):
        op = gnjax.ntk(model, x)
        limits = gnjax.Limits(rows_bytes=1.02 * bytes_of_number * op.shape[0] * op.net.parameters)
        for run in ("cold", "again"):
            seconds, kappa = harness.once(partial(_kappa, model, x, limits))
            made.append(_kappa_row(op.shape[0], f"J in {dtype}, {run}", seconds, kappa))
    return made


def _kappa(model: Any, x: jax.Array, limits: gnjax.Limits) -> gnjax.ConditionNumber:
    return gnjax.condition_number(gnjax.ntk(model, x), method="preconditioned", limits=limits)


def _kappa_row(size: int, how: str, seconds: float, kappa: gnjax.ConditionNumber) -> record.Row:
    name = f"kappa of the NTK of ResNet20, {size} x {size}"
    low, high = kappa.interval
    note = f"in [{low:.6g}, {high:.6g}], {kappa.certificate.brief}"
    return record.Row(name, f"gnjax, {how}", [seconds], note=note, gigabytes=_peak_memory())


def _peak_memory() -> float | None:
    """The most memory of the device that this process has taken, in GB, where the device says."""
    peak = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return None if peak is None else 1e-9 * peak


def language_model(shape: gpt.Shape, tokens: int = 64) -> list[record.Row]:
    """The largest eigenvalues and the density of a GPT's Gauss-Newton matrix."""
    op = gpt_eigenvalues.gauss_newton(shape, gpt_eigenvalues.parameters(shape), tokens)
    name = f"of a GPT with {op.shape[0]:,} parameters, {tokens} tokens, {op.dtype}"
    made = []
    for run in ("cold", "again"):
        seconds, top = harness.once(partial(gnjax.eigenvalues, op, k=10, rtol=_GPT_RTOL))
        error = float(top.errors.max() / top.values[0])
        note = f"errors {error:.0e} of the largest, {top.certificate.brief}"
        case = f"10 largest Gauss-Newton eigenvalues {name}"
        made.append(
            record.Row(case, f"gnjax, {run}", [seconds], note=note, gigabytes=_peak_memory())
        )
    probe = partial(gnjax.spectral_density, op, probes=1, steps=_GPT_STEPS)
    seconds, density = harness.once(probe)
    case, note = f"density {name}", f"one probe, {density.products} products"
    made.append(record.Row(case, "gnjax", [seconds], note=note, gigabytes=_peak_memory()))
    return made


if __name__ == "__main__":
    main()
