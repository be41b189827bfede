"""The kernel J J^T of a pruned network, and its condition number, exact and at a tolerance.

The mask of pruned weights differs from rate to rate, and so does the number of parameters. Here J
is computed for all weights, and the columns of the pruned ones are dropped afterwards, so that what
is compiled for a network serves every rate and every seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from numpy.typing import NDArray

import gnjax
from experiments.shared.certificate import certificate

DRAWS, SAFETY = 3, 4.0  # as for the Jacobians of the library
LIMITS = gnjax.Limits()
WIDE = 1.01  # an interval is wide where its upper end is more than so many times its lower end
_ROOMY = gnjax.Limits(rows_bytes=math.inf)  # J may take most of the memory that is free
Kernel = gnjax.operators.Factored | gnjax.operators.NetworkGram
_UNOPTIMISED = {"xla_backend_optimization_level": 0}  # LLVM then leaves what XLA wrote as it is


def pruned_kernel(
    net: nnx.Module, x: NDArray[np.float64], mask: Any, *, soon: bool = False
) -> Kernel:
    """J J^T, with J the Jacobian of the outputs at x for the weights that the mask keeps.

    ``soon`` is for networks without convolutions that are measured a few times only: on a CPU their
    programs are then compiled in a third of the time and take twice as long to run.

    The operator holds J where J of all weights fits in memory, that of the GPU where there is one.
    Else it is the operator of :func:`gnjax.ntk`, which computes J some samples at a time and
    compiles for every mask anew.
    """
    apply, params = gnjax.functional(net)
    inputs = jnp.asarray(x)
    rows = jax.eval_shape(apply, params, inputs).size
    kept = np.concatenate([np.asarray(leaf, bool).ravel() for leaf in jax.tree.leaves(mask)])
    if 8.0 * rows * kept.size > _room():
        return gnjax.ntk(net, x, mask=mask)
    programs = _compiled_soon if soon and jax.default_backend() == "cpu" else _optimised
    whole = programs.jacobian(apply, params, inputs)
    held = whole if on_gpu() else np.asarray(whole)  # a CPU drops columns faster by NumPy
    error = _measured_error(partial(programs.forward, apply, params), params, inputs, held)
    stored = whole if kept.all() else jax.device_put(held.take(np.flatnonzero(kept), axis=1))
    rounding = gnjax.Error(error, "measured", reason="rounding of the Jacobian")
    return gnjax.factored(stored, error=rounding)


def on_gpu() -> bool:
    return jax.default_backend() == "gpu"


def free_on_gpu() -> float | None:
    """The bytes of the GPU that are not taken yet; None where it does not say."""
    told = jax.local_devices()[0].memory_stats() or {}
    return told["bytes_limit"] - told.get("bytes_in_use", 0) if "bytes_limit" in told else None


def _room() -> float:
    """The bytes that J of all weights may take: J is held twice while columns are dropped."""
    free = free_on_gpu() if on_gpu() else None
    return LIMITS.factor_bytes if free is None else free / 3


def _jacobian(apply: Any, params: Any, x: jax.Array) -> jax.Array:
    """J (n k, p), one sample after the other: XLA on a CPU is slow at convolutions under vmap."""

    def one(sample: jax.Array) -> jax.Array:
        outputs, pull = jax.vjp(lambda w: apply(w, sample[None])[0], params)
        (slopes,) = jax.vmap(pull)(jnp.eye(outputs.size, dtype=outputs.dtype))
        leaves = [leaf.reshape(outputs.size, -1) for leaf in jax.tree.leaves(slopes)]
        return jnp.concatenate(leaves, axis=1)

    rows = lax.map(one, x)
    return rows.reshape(-1, rows.shape[-1])


def frobenius_by_products(
    multiplied: Callable[[NDArray[np.float64]], NDArray[np.float64]], columns: int
) -> float:
    """A measured bound on ||E||_F from E v = ``multiplied(v)`` for a few random v.

    For v of random direction and squared length ``columns`` the mean of |E v|^2 is ||E||_F^2.
    """
    rng = np.random.default_rng(0)
    squares = []
    for _ in range(DRAWS):
        drawn = rng.standard_normal(columns)
        v = drawn * (math.sqrt(columns) / np.linalg.norm(drawn))
        squares.append(np.sum(multiplied(v) ** 2))
    return SAFETY * math.sqrt(float(np.mean(squares)))


def _measured_error(
    forward: Callable[..., jax.Array],
    params: Any,
    x: jax.Array,
    jacobian: NDArray[np.float64] | jax.Array,
) -> float:
    """A measured bound on ||computed J - J||_F, from two ways to compute J v.

    The computed J comes from reverse mode, and J v is compared with forward mode.
    """
    leaves, structure = jax.tree.flatten(params)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def difference(v: NDArray[np.float64]) -> NDArray[np.float64]:
        parts = zip(np.split(v, ends), leaves, strict=True)
        moved = [jnp.asarray(part.reshape(leaf.shape), leaf.dtype) for part, leaf in parts]
        along = forward(jax.tree.unflatten(structure, moved), x)
        return np.asarray(np.asarray(jacobian @ v) - np.asarray(along).ravel())

    return frobenius_by_products(difference, jacobian.shape[1])


def _forward(apply: Any, params: Any, v: Any, x: jax.Array) -> jax.Array:
    return jax.jvp(lambda w: apply(w, x), (params,), (v,))[1]


@dataclass(frozen=True)
class _Programs:
    """The compiled functions: one for J, and one for J v by forward mode."""

    jacobian: Callable[..., jax.Array]
    forward: Callable[..., jax.Array]


_optimised = _Programs(jax.jit(_jacobian), jax.jit(_forward))
_compiled_soon = _Programs(
    jax.jit(_jacobian, compiler_options=_UNOPTIMISED),
    jax.jit(_forward, compiler_options=_UNOPTIMISED),
)


def conditioning(kernel: Kernel, method: str, tolerance: float, seed: int) -> dict[str, Any]:
    """kappa as the library certifies it, and kappa at the numerical rank of Appendix C.

    The numerical rank counts the eigenvalues above ``tolerance`` times the largest. kappa there is
    ``kappa_numerical``; it is kappa itself where the matrix has full rank and kappa is below
    1 / tolerance.
    """
    found = _exact(kernel, method, seed)
    fields = {**certificate(found), "tolerance": tolerance}
    full = found.resolved and found.rank == min(kernel.shape)
    if full and found.interval[1] * tolerance < 1:
        value, ends, rank = found.value, found.at_rank, found.rank
    else:
        value, ends, rank = _numerical(gnjax.eigenvalues(kernel), tolerance)
    return {
        **fields,
        "kappa_numerical": value,
        "kappa_numerical_low": ends[0],
        "kappa_numerical_high": ends[1],
        "rank_numerical": rank,
    }


def _exact(kernel: Kernel, method: str, seed: int) -> gnjax.answers.ConditionNumber:
    """kappa by ``method``, or by singular values of J where its interval is wide and J fits.

    J J^T is known to about 1e-14 of its norm, so that a kappa of 1e12 is known to a percent only.
    """
    found, state_factor = _by_method(kernel, method, seed), kernel.facts().factor
    factor = None if state_factor is None else state_factor()
    low, high = found.at_rank
    if high <= WIDE * low or factor is None or factor.size_in_bytes > LIMITS.factor_bytes:
        return found
    return gnjax.condition_number(kernel, method="factored")


def _by_method(kernel: Kernel, method: str, seed: int) -> gnjax.answers.ConditionNumber:
    """kappa by ``method``; from J J^T where "sketched" is refused, as without room for J.

    J J^T takes far less memory than J. Settings of published rows say "preconditioned", the name of
    "sketched" when they were computed; with another word they would be other settings.
    """
    found = partial(gnjax.condition_number, kernel, seed=seed, limits=_ROOMY)
    if method not in ("sketched", "preconditioned"):
        return found(method=method)
    try:
        return found(method="sketched")
    except ValueError:
        return found(method="inverse")


def _numerical(
    spectrum: gnjax.answers.Spectrum, tolerance: float
) -> tuple[float, tuple[float, float], int]:
    """lambda_max / lambda_rank with the interval that the errors of both leave, and the rank."""
    values, errors = spectrum.values, spectrum.errors
    rank = int(np.count_nonzero(values > tolerance * values[0]))
    last, off = values[rank - 1], errors[rank - 1]
    low = (values[0] - errors[0]) / (last + off)
    high = (values[0] + errors[0]) / (last - off) if last > off else math.inf
    return float(values[0] / last), (float(low), float(high)), rank
