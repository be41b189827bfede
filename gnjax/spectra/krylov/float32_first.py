"""A few eigenvalues of a network's operator from products in float32, proved in float64.

A product in float32 takes half the time of one in float64 on a CPU, and less on many GPUs. Let
A_32 = A + E be the matrix of the products in float32. :mod:`gnjax.spectra.krylov.few` computes
Ritz vectors V with A_32. Then A V^T is computed in float64, and the eigenpairs of V A V^T have
values and residuals without an error from E.

How many eigenvalues lie further out than some t is decided with A_32. By Weyl the statement holds
for A if t is moved outwards by ||E||. That norm is measured, as the length of E V^T with a margin,
so the statement is measured too.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from gnjax.numerics.certificate import MEASURED, Error
from gnjax.operators.base import Operator
from gnjax.operators.of_networks.linearised import Linearised
from gnjax.operators.prepare import float32_rules, in_float32
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.krylov.few import OuterRitzPairs, outer_ritz_pairs
from gnjax.spectra.krylov.host_products import NotFinite, host_product
from gnjax.spectra.krylov.places import position_errors
from gnjax.spectra.watch import UNWATCHED, Watch

NOISE = 8 * float(np.finfo(np.float32).eps)  # largest accepted ||E|| / scale
MARGIN = 0.9  # a run whose residuals are computed again has this times rtol as tolerance


def ritz_pairs_from_float32(
    op: Operator,
    exact: krylov.Apply,
    k: int,
    *,
    sign: float,
    rtol: float,
    most: int,
    watch: Watch = UNWATCHED,
) -> OuterRitzPairs | None:
    """The Ritz pairs of A from a run in float32, or None where the run must be in float64.

    It must be in float64 if E is too large for rtol, for one random vector or for the final
    vectors; if the run in float32 does not converge; if the network computes in float64 whatever
    the type of its parameters; and for an operator that does not belong to a network. ``products``
    includes those in float32.
    """
    if rtol < NOISE or op.dtype != jnp.float64:
        return None
    light = in_float32(op)
    if light is None:
        return None
    size, product = op.shape[0], watch(_product(light))
    try:
        if not _agree(exact, product, krylov.random_rows(size, 1, 0), min(rtol / 3, NOISE)):
            return None
        rough = outer_ritz_pairs(
            product,
            size,
            k,
            sign=sign,
            rtol=MARGIN * rtol,
            noise=NOISE,
            most=most,
            stop=watch.is_stopped,
        )
    except NotFinite:  # numbers overflowed in float32
        return None
    enough = np.inf if watch.stopped else rtol
    found = _proved(exact, rough, k, enough) if rough.converged or watch.stopped else None
    return found if found is None else _placed(rough, found, sign)


def _product(light: Linearised) -> krylov.Apply:
    """Products that are traced and made under the rules for float32, whenever they are called."""
    with float32_rules():
        product = host_product(light)

    def apply(rows: np.ndarray) -> np.ndarray:
        with float32_rules():
            return product(rows)

    return apply


def _agree(exact: krylov.Apply, product: krylov.Apply, row: np.ndarray, rtol: float) -> bool:
    image = exact(row)
    return bool(np.linalg.norm(product(row) - image) <= rtol * np.linalg.norm(image))


def _proved(
    exact: krylov.Apply, rough: OuterRitzPairs, k: int, rtol: float
) -> OuterRitzPairs | None:
    """Rayleigh-Ritz pairs of A on the span of the rough vectors; None if residuals are large."""
    vectors = rough.vectors
    if len(vectors) < k:
        return None
    images = np.concatenate([exact(row[None]) for row in vectors])
    moved = np.linalg.norm(images - rough.images, axis=1).max()
    projection = images @ vectors.T
    values, rotation = np.linalg.eigh((projection + projection.T) / 2)
    values, rotation = values[::-1], rotation[:, ::-1].T
    vectors, images = rotation @ vectors, rotation @ images
    residuals = np.linalg.norm(images - values[:, None] * vectors, axis=1)
    if moved > NOISE * rough.scale or residuals.max() > rtol * rough.scale:
        return None
    products = rough.products + len(vectors) + 1
    return OuterRitzPairs(values, residuals, rough.scale, vectors, images, products=products)


def _placed(rough: OuterRitzPairs, found: OuterRitzPairs, sign: float) -> OuterRitzPairs:
    """The pairs of A with bounds on the error of the i-th eigenvalue.

    These follow from the count of eigenvalues further out, which was decided with A_32.
    """
    count = rough.count
    values, known = sign * found.values, sign * rough.values
    edge = known.max() - count.value - NOISE * rough.scale
    if not np.isfinite(edge):
        return replace(found, count=count, errors=np.full(len(values), np.inf))
    errors = position_errors(values, found.residuals, edge)
    reason = f"{count.reason}; products in float32"
    room = max(0.0, float(values.max() - edge))
    return replace(found, count=Error(room, MEASURED, count.failure, reason), errors=errors)
