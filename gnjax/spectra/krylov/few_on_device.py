"""A few eigenvalues by Lanczos with the basis on the device.

It serves where a basis in host memory in float64, and a second one to find eigenvalues that the
first run missed, do not fit. A single basis is on the device, or divided over all devices that hold
the operator. It is in float32 for an operator in float32, and for a network's operator in float64
if float64 does not fit and the tolerance allows it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.certificate import Error, certificate, unknown
from gnjax.numerics.limits import Limits
from gnjax.numerics.precision import x64
from gnjax.operators.facts import facts_of, symmetry_of
from gnjax.operators.prepare import (
    devices_of,
    float32_rules,
    in_float32,
    in_float64,
)
from gnjax.operators.protocol import Operator
from gnjax.spectra.krylov.device_basis import layout
from gnjax.spectra.krylov.device_run import DeviceProduct, checked_vectors, ritz_vectors
from gnjax.spectra.krylov.host_products import beside_xla, too_large, vector_product
from gnjax.spectra.krylov.search import least_rows
from gnjax.spectra.spectrum import Spectrum
from gnjax.spectra.watch import Watch
from gnjax.spectra.whole import dense_error

_UNCOUNTED = unknown("a basis on the device leaves no room to count eigenvalues further out")
_FLOAT32 = 8 * float(np.finfo(np.float32).eps)  # the least rtol of a run in float32
_MARGIN = 0.9  # a run whose residuals are computed again has this times rtol as tolerance
_ROOM = 2  # a basis has up to this times the least number of rows; more rows save few products


def bytes_on_device(
    op: Operator, k: int, rtol: float, limits: Limits, *, neighbours: int = 0
) -> int:
    """Decide where the basis of Lanczos is: 0 for host memory, else the bytes of its numbers.

    Host memory is taken if the least basis for k + ``neighbours`` values fits into the limits, in
    float64. Otherwise the basis is on the device, in the precision of the operator (8 or 4 bytes),
    or in float32 if only that fits and ``rtol`` allows it. Raises a ValueError if no basis fits.
    """
    size = op.shape[0]
    least = min(size, least_rows(k))
    least_in_host = min(size, least_rows(min(k + neighbours, size)))
    if not too_large(size, least_in_host, limits):
        return 0
    widths = [_own_bytes(op)]
    if widths == [8] and rtol >= _FLOAT32 and facts_of(op).in_float32 is not None:
        widths.append(4)
    for width in widths:
        refused = too_large(size, least, limits, width)
        if not refused:
            return width
    raise ValueError(refused)


def few_on_device(
    op: Operator,
    k: int,
    which: str,
    rtol: float,
    limits: Limits,
    watch: Watch,
    *,
    width: int,
    vectors: bool = False,
) -> Spectrum:
    """k eigenvalues from one end, by a basis on the device whose numbers have ``width`` bytes.

    Lanczos finds approximate eigenvectors with products in that precision. One product with each of
    them in the highest precision then gives the values and their residuals, which are the errors:
    some eigenvalue is that close to each value. The angles of vectors are unknown, because it is
    not known whether other eigenvalues are close.
    """
    size = op.shape[0]
    # How a vector is divided over the devices, and how many vectors the basis has: up to twice the
    # least number, as more save few products.
    form = layout(size, jnp.dtype(f"float{8 * width}"), devices_of(op))
    rows = min(limits.basis_rows(size, width), max(_ROOM * least_rows(k), limits.vectors or 0))
    product = _run_product(op, k, limits, width)
    with beside_xla():  # BLAS on one thread, so that XLA has the cores
        guess = ritz_vectors(
            _watched(product, watch),
            form,
            k,
            sign=-1.0 if which == "largest" else 1.0,
            rtol=_MARGIN * rtol,  # a little less, as the residuals are computed again
            rows=rows,
            stop=watch.is_stopped,
        )
        if watch.stopped and len(guess.vectors) < k:
            raise KeyboardInterrupt  # stopped before k values were known
        # The values and residuals come from products in the highest precision, not from the run.
        wide = in_float64(op)  # called in a context in which JAX allows float64
        precise, rules = (op, nullcontext) if wide is None else (wide, x64)
        if precise is not op or width != _own_bytes(op):
            del product  # free its memory before the next product takes some
            product = _under(rules, precise)
        values, residuals = checked_vectors(_watched(product, watch), form, guess.vectors)
    with rules():
        rounding = dense_error(precise, max(guess.scale, float(np.abs(values).max())))
    tolerance = max(rtol * guess.scale, rounding.value if np.isfinite(rounding.value) else 0.0)
    converged = guess.reached and bool(residuals.max() <= tolerance) and not watch.stopped
    why = [symmetry_of(op)]
    if not converged:
        why.append(why_unfinished(guess.products + k, rows, watch))
    spectrum = _spectrum(values, residuals, rounding, why, guess.vectors if vectors else None)
    return replace(spectrum, converged=converged)


def _spectrum(
    values: np.ndarray,
    residuals: np.ndarray,
    rounding: Error,
    why: list[Error],
    vectors: np.ndarray | None,
) -> Spectrum:
    """The values from the largest down, to their residuals and ``rounding``, and why no better."""
    if not np.isfinite(rounding.value):
        why = [*why, unknown(f"residuals are at most {residuals.max():.3g}, without rounding")]
    order = np.argsort(-values, kind="stable")
    return Spectrum(
        values[order],
        residuals[order] + rounding.value,
        "krylov",
        certificate(rounding, _UNCOUNTED, *why),
        vectors=None if vectors is None else vectors[order],
        angles=None if vectors is None else np.full(len(values), np.inf),
    )


def why_unfinished(products: int, rows: int, watch: Watch) -> Error:
    """Why Lanczos did not converge, as a part of a certificate, and what may help."""
    if watch.stopped:
        return unknown(f"the work was interrupted after {products} products")
    reason = (
        f"Lanczos did not converge within {products} products and a basis of {rows} vectors; "
        "pass a larger rtol, or limits=gnjax.Limits(basis_bytes=.., vectors=..)"
    )
    return unknown(reason)


Rules = Callable[[], AbstractContextManager[None]]


def _run_product(op: Operator, k: int, limits: Limits, width: int) -> DeviceProduct:
    """The product v -> A v of a run whose numbers have ``width`` bytes."""
    if width == _own_bytes(op):
        return _under(nullcontext, op)
    light = in_float32(op)
    if light is None:  # the network computes in float64 whatever its parameters are
        size = op.shape[0]
        raise ValueError(too_large(size, min(size, least_rows(k)), limits))
    return _under(float32_rules, light)


def _under(rules: Rules, op: Operator) -> DeviceProduct:
    """A function v -> A v, for v of any dtype, traced and called in a context of ``rules``."""
    with rules():
        multiply = vector_product(op)

    def product(vector: jax.Array) -> Any:
        with rules():
            return multiply(vector.astype(op.dtype))

    return product


def _watched(product: DeviceProduct, watch: Watch) -> DeviceProduct:
    """The same product, and ``watch``, which counts the entries of a tuple, counts each call as
    one.
    """
    multiply: Callable[[Any], Any] = watch(lambda block_of_one: product(block_of_one[0]))
    return lambda vector: multiply((vector,))


def _own_bytes(op: Operator) -> int:
    """The bytes of a number in the precision of the operator, float32 or float64."""
    return 4 if jnp.dtype(op.dtype).itemsize <= 4 else 8
