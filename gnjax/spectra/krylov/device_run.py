"""The k largest or smallest eigenvalues by Lanczos with its basis on the device.

The run has thick restarts (Wu and Simon, 2000), as in :mod:`gnjax.spectra.krylov.few`. It serves
operators whose basis in float64 does not fit in host memory. The basis is stored once, in the
precision of the products, and has a fixed number of vectors: the rows of the run and the one that
follows them.

The run only yields approximate eigenvectors. In the end every Ritz vector x is multiplied once
more, by the most precise product that there is, for its value and residual in float64. Some
eigenvalue of the A of that product is that close to the value, whatever rounding did to the run. To
decide whether eigenvalues further out are missing would take a second basis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.host import dot, length, on_host
from gnjax.spectra.krylov.device_basis import (
    Layout,
    as_row,
    as_vector,
    combination,
    empty_basis,
    norm,
    orthogonalised,
    random_row,
    rotated,
    row_of,
    with_row,
)
from gnjax.spectra.krylov.host_products import refuse_nonfinite
from gnjax.spectra.krylov.search import most_products
from gnjax.spectra.krylov.tracked import BREAKDOWN

_LOOKED = 4  # fewest products outside a space that seems invariant, before it is believed

DeviceProduct = Callable[[jax.Array], Any]
"""A on a vector (n,)."""


@dataclass
class DeviceRun:
    """A Lanczos run whose basis is on the device: A V^T = V^T T + q^T r.

    V are the first ``filled`` rows of the basis, q is the row after them, and r is ``coupling``
    times the last unit vector after a step. The run is changed in place: each step donates its
    basis.
    """

    form: Layout
    basis: jax.Array
    projection: np.ndarray  # T in its leading block (filled, filled), in float64
    filled: int = 0  # the rows of V
    coupling: float = 0.0  # ||q^T r||
    scale: float = 0.0  # the largest column or eigenvalue of any T so far, at most ||A||
    products: int = 0
    draws: int = 0  # how many random rows were drawn
    closed_at: int | None = None  # after how many products V first seemed to be invariant

    @property
    def steps(self) -> int:
        """How many rows V can have."""
        return len(self.projection)

    @property
    def exhausted(self) -> bool:
        """Whether V spans the whole space."""
        return self.filled == self.form.size

    def looked(self, k: int, negligible: float) -> bool:
        """Whether small residuals of the k outermost Ritz pairs show that these are those of A.

        They do not if V seems to be invariant, because its coupling to the next row is at most
        ``negligible``: then all Ritz pairs of V have small residuals. The run first makes max(4, k)
        products with directions outside of V.
        """
        if self.coupling <= negligible and self.closed_at is None:
            self.closed_at = self.products
        return self.closed_at is None or self.products >= self.closed_at + max(_LOOKED, k)

    def ritz(self, sign: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The eigenvalues theta of T, their residuals, and eigenvectors w of T in columns.

        They are in ascending order of sign * theta. With A V^T = V^T T + q^T r, the Ritz vector
        x = V^T w has the residual ||A x - theta x|| = ||q^T r w||, which is ``coupling`` times the
        absolute last entry of w.
        """
        values, vectors = np.linalg.eigh(self.projection[: self.filled, : self.filled])
        order = np.argsort(sign * values, kind="stable")
        values, vectors = values[order], vectors[:, order]
        return values, self.coupling * np.abs(vectors[-1]), vectors


@dataclass(frozen=True)
class Guess:
    """The Ritz vectors of a run as unit rows (k, n) in host memory, in the precision of the run.

    ``reached`` says whether the residuals of the run came below its tolerance. ``scale`` is its
    estimate of the norm of A, and ``products`` the number of vectors that were multiplied.
    """

    vectors: np.ndarray
    scale: float
    products: int
    reached: bool


def ritz_vectors(
    product: DeviceProduct,
    form: Layout,
    k: int,
    *,
    sign: float,
    rtol: float,
    rows: int,
    stop: Callable[[], bool] = lambda: False,
) -> Guess:
    """The k outermost Ritz vectors from a basis of ``rows`` rows, or fewer if these span the space.

    Args:
      product: A on vectors (n,) in the precision of the basis.
      form: how vectors lie on the devices.
      k: how many.
      sign: -1 for the largest eigenvalues, 1 for the smallest.
      rtol: the tolerance of the residuals, but not less than a few roundings of the norm.
      rows: the number of rows of the basis, with the row that follows the run.
      stop: whether the best vectors so far are asked for.
    """
    # A basis of the whole space has one row more, as the last row only follows the run.
    steps = rows - 1 if rows < form.size else form.size
    run = DeviceRun(form, empty_basis(form, steps + 1), np.zeros((steps, steps)))
    _start_anew(run)
    target = max(rtol, BREAKDOWN * float(jnp.finfo(form.dtype).eps))  # a few roundings
    reached = _searched(run, product, k, sign, target, stop)
    _, _, coefficients = run.ritz(sign)
    vectors = np.empty((min(k, run.filled), form.size), form.dtype)
    for row, w in zip(vectors, coefficients.T, strict=False):  # one at a time is on the device
        padded = np.zeros(run.basis.shape[1])
        padded[: len(w)] = w
        row[:] = on_host(as_vector(form, combination(run.basis, padded)))
        row /= row.dtype.type(length(row))
    return Guess(vectors, run.scale, run.products, reached)


def checked_vectors(
    exact: DeviceProduct, form: Layout, vectors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The Rayleigh quotient x^T A x / |x|^2 and residual ||A x - value x|| / |x| of each vector x.

    Both are in float64, and the product may compute in a higher precision than its vectors have.
    """
    pairs = np.array([_checked(exact, form, vector) for vector in vectors])
    return pairs[:, 0], pairs[:, 1]


def _checked(exact: DeviceProduct, form: Layout, row: np.ndarray) -> tuple[float, float]:
    """:func:`checked_vectors` for one of them; its arrays are gone before the next product."""
    vector = as_vector(form, as_row(form, row))
    image, x = on_host(exact(vector)), on_host(vector)
    x_length = length(x)
    value = dot(x, image) / x_length**2
    refuse_nonfinite(value)
    return value, length(image, x, value) / x_length


def _searched(
    run: DeviceRun,
    product: DeviceProduct,
    k: int,
    sign: float,
    target: float,
    stop: Callable[[], bool],
) -> bool:
    """Make Lanczos steps and restarts until the k outermost residuals are small, if they get so.

    Returns whether they did; otherwise ``stop`` asked to end, or too many products were made. They
    are small below ``target`` times the largest absolute Ritz value so far. A full basis is
    restarted with the k outermost Ritz vectors and half of the others, so that the next rows have
    room.
    """
    most = most_products(run.steps)
    restart_size = k + (run.steps - k) // 2
    while True:
        _step(run, product)
        values, residuals, vectors = run.ritz(sign)
        run.scale = max(run.scale, float(np.abs(values).max()))
        if stop():
            return False
        if run.exhausted:
            return True
        negligible = target * run.scale
        looked = run.looked(k, negligible)
        if run.filled >= k and looked and residuals[:k].max() <= negligible:
            return True
        if run.products >= most:
            return False
        if run.filled == run.steps:
            _restart(run, values[:restart_size], vectors[:, :restart_size])


def _step(run: DeviceRun, product: DeviceProduct) -> None:
    """One Lanczos step: multiply the row that follows V, add it to V, and find the next row.

    The image, orthogonalised against all rows of V, is the next row, unless its length is only
    rounding.
    """
    form, step = run.form, run.filled
    image = as_row(form, product(as_vector(form, row_of(run.basis, step))))
    run.products, run.filled = run.products + 1, step + 1
    eps = float(jnp.finfo(form.dtype).eps)
    negligible = BREAKDOWN * eps * max(run.scale, norm(image))  # a few roundings of A's norm
    image, projected, remaining = orthogonalised(run.basis, image, run.filled, negligible)
    run.projection[: step + 1, step] = run.projection[step, : step + 1] = projected
    run.scale = max(run.scale, float(np.linalg.norm(projected)))
    run.coupling = remaining
    if run.exhausted:
        run.coupling = 0.0
    elif remaining > BREAKDOWN * eps * run.scale:
        run.basis = with_row(run.basis, image, run.filled, 1 / remaining)
    else:
        del image  # its memory is free before a random row takes as much
        _start_anew(run)


def _start_anew(run: DeviceRun) -> None:
    """Store a random unit vector orthogonal to V as the next row of the basis, without coupling."""
    run.coupling, run.draws = 0.0, run.draws + 1
    row = random_row(run.form, run.draws)
    row, _, remaining = orthogonalised(run.basis, row, run.filled, 0.0)
    run.basis = with_row(run.basis, row, run.filled, 1 / remaining)


def _restart(run: DeviceRun, values: np.ndarray, vectors: np.ndarray) -> None:
    """Replace V by some of its Ritz vectors, and keep the row that follows (Wu and Simon, 2000).

    ``values`` (p,) and the columns w of ``vectors`` (filled, p) are eigenpairs of T. The new T is
    diagonal: its entries between the Ritz vectors and that row come with the next step.
    """
    count = len(values)
    rotation = np.zeros((count + 1, run.basis.shape[1]))
    rotation[:count, : run.filled] = vectors.T
    rotation[count, run.filled] = 1.0  # q, the row after the last one of V
    run.basis = rotated(run.basis, rotation)
    run.projection[:] = 0.0
    run.projection[:count, :count] = np.diag(values)
    run.filled = count
