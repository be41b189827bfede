"""The ends of a sum of Kronecker products, with the preconditioner that its terms give.

For m >> k every A_l = W^{L:l+1} W^{l+1:L} is near a multiple of the identity, so G is near
I (x) D with D = sum_l (tr A_l / k) B_l, a d x d matrix. D is a compression of G averaged over an
orthonormal basis of R^k, so lambda_min(G) <= lambda_min(D) and lambda_max(D) <= lambda_max(G):
for every s below lambda_min(G) the matrix P = I (x) (D - s I) is positive definite, and R with
R R^T = P^{-1} is a preconditioner of G - s I in the sense of
:mod:`gnjax.spectra.preconditioned_ends.one_end`. The top end is the same for s I - G.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from gnjax.numerics.decompositions import lapack
from gnjax.numerics.host import on_device
from gnjax.papers.kronecker.on_range import OnRange
from gnjax.papers.kronecker.operator import SumOfKroneckers
from gnjax.papers.kronecker.packed import TermGroups, packed, packed_product, parts_of
from gnjax.spectra.krylov.host_products import beside_xla
from gnjax.spectra.preconditioned_ends import Enclosed, Products, certified
from gnjax.spectra.preconditioned_ends.one_end import beside, symmetric

_BLOCK = 4  # vectors that are multiplied together
_LARGEST_SHARE = 0.1
_UNITS = 16  # a product is rounded by so many eps of the norm, in practice
_MARGIN = 1e-12  # the least distance of a shift from the spectrum of D, relative to ||D||


def ends(
    reduced: OnRange, *, rtol: float, missed: float, seed: int = 0
) -> tuple[Enclosed, Enclosed]:
    """The largest and the smallest eigenvalue of G = sum_l A_l (x) B_l on its range, with bounds.

    Each bound is wrong with a probability of at most ``missed``. The tolerance ``rtol`` is that of
    their quotient, and most of it goes to the smallest, which is far harder to separate.
    """
    with beside_xla():  # BLAS on one thread, so that XLA has the cores
        compressed = compressions(reduced)
        sides = ((-1.0, _LARGEST_SHARE * rtol), (1.0, (1 - 2 * _LARGEST_SHARE) * rtol))
        top, bottom = (
            certified(KroneckerEnd(reduced, compressed, sign, share), share, missed, seed)
            for sign, share in sides
        )
        return top, bottom


@dataclass(frozen=True)
class Compression:
    """The eigenpairs of the mean of sum_l (A_l)_ii B_l over the rows i of a group."""

    values: np.ndarray
    vectors: jax.Array


def compressions(reduced: OnRange) -> tuple[Compression, ...]:
    """The mean of the diagonal blocks sum_l (A_l)_ii B_l of G over the rows i of each group."""
    diagonals = np.diagonal(np.asarray(reduced.operator.lefts), axis1=1, axis2=2)  # (L, k)
    several, row = [], 0
    for rows, columns in reduced.groups:
        weights = on_device(diagonals[:, row : row + rows].mean(axis=1))
        mean = np.asarray(_weighted(weights, reduced.operator.rights))[:columns, :columns]
        values, vectors = lapack.eigenpairs(mean)
        several.append(Compression(values, on_device(vectors)))
        row += rows
    return tuple(several)


@dataclass(frozen=True)
class KroneckerEnd:
    """One end of the spectrum, for a search with the tolerance ``rtol``."""

    reduced: OnRange
    compressed: tuple[Compression, ...]
    sign: float
    rtol: float
    block: int = _BLOCK

    @property
    def size(self) -> int:
        return self.reduced.shape[0]

    @property
    def rounding(self) -> float:
        """About |G w computed - G w| for unit vectors w, with the rounding of products with R.

        ||G|| is about that of its compressions.
        """
        largest = max(float(np.abs(c.values).max()) for c in self.compressed)
        rows = self.reduced.operator.lefts.shape[-1]
        return _UNITS * rows**0.5 * float(jnp.finfo(self.reduced.operator.dtype).eps) * largest

    def start(self) -> tuple[KroneckerPencil, np.ndarray]:
        """The pencil, and vectors to begin with.

        The shift of the preconditioner lies just outside of the outermost Ritz value of these
        vectors. That of the pencil is 0 at the smallest end, where ``sign`` is 1, and far above
        every eigenvalue at the largest, where it is -1.
        """
        rows = _start(self.reduced, self.compressed, self.sign)
        projected = self.products(rows).projected
        value = self.sign * float(np.linalg.eigvalsh(self.sign * symmetric(projected))[0])
        outside = beside(self, value, self.rtol)
        gaps = [self.sign * (c.values - outside) for c in self.compressed]
        widest = max(float(gap.max() / gap.min()) for gap in gaps)  # the condition number of R R^T
        eps = float(jnp.finfo(self.reduced.operator.dtype).eps)
        pencil = KroneckerPencil(
            self,
            tuple(on_device((1 / np.sqrt(gap))[None, None, :]) for gap in gaps),
            0.0 if self.sign > 0 else _FAR * value,
            noise=_UNITS * eps * max(1.0, widest),
            inverse=float(min(gap.min() for gap in gaps)) ** -0.5,
        )
        return pencil, rows

    def products(self, rows: np.ndarray) -> Products:
        images = np.asarray(packed_product(self.reduced.operator, self.reduced.groups, rows))
        return Products(images, images @ rows.T)

    def admissible(self, shift: float) -> float:
        """The shift, moved outwards if needed so that sign (D - shift I) is positive definite."""
        edge = min(float((self.sign * c.values).min()) for c in self.compressed)
        width = max(float(np.abs(c.values).max()) for c in self.compressed)
        return self.sign * min(self.sign * shift, edge - _MARGIN * width)


_FAR = 4.0  # no eigenvalue is larger than this times a Ritz value of the start, in practice


@dataclass(frozen=True)
class KroneckerPencil:
    """C = R^T sign (G - shift I) R, where R is Q (sign (Lambda - s))^{-1/2} in a group of rows.

    Lambda and Q are the eigenpairs of the compression of G in the group. The shift s of the
    preconditioner R stays the same where ``shift`` changes.
    """

    end: KroneckerEnd
    scales: tuple[jax.Array, ...]  # the diagonal of (sign (Lambda - s))^{-1/2}, (1, 1, columns)
    shift: float
    noise: float
    inverse: float  # ||R||
    needs_size: bool = False

    def at(self, shift: float) -> KroneckerPencil:
        return replace(self, shift=shift)

    def congruence(
        self, rows: np.ndarray, beside: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """C v, R v and G R v for every row v; with rows X in ``beside``, of (I - X^T X) R for R."""
        reduced = self.end.reduced
        removed = np.zeros((_BLOCK, reduced.shape[0]))  # of one shape, as JAX compiles for each
        if beside is not None:
            removed[: len(beside)] = beside
        image, inner, products = _congruence(
            reduced.operator,
            reduced.groups,
            tuple(c.vectors for c in self.end.compressed),
            self.scales,
            self.shift,
            self.end.sign,
            rows,
            removed,
        )
        return np.asarray(image), np.asarray(inner), np.asarray(products)

    def inner(self, rows: np.ndarray) -> np.ndarray:
        """R on every row (b, n): Q (sign (Lambda - s))^{-1/2} in each group of its entries."""
        return np.concatenate(
            [
                ((part * np.asarray(s)) @ np.asarray(c.vectors).T).reshape(len(rows), -1)
                for part, c, s in self._parts(rows)
            ],
            axis=1,
        )

    def transposed(self, rows: np.ndarray) -> np.ndarray:
        return self._rotated(rows, 1)

    def preimage(self, rows: np.ndarray) -> np.ndarray:
        return self._rotated(rows, -1)

    def moved(self, count: int, longest: float, size: float) -> float:
        """What rounding does to C in a Lanczos run of ``count`` products, in the 2-norm.

        A product moves C v by at most ||R|| times the rounding of G R v, which is relative to
        |R v| <= ``longest``.
        """
        del size
        return 2 * self.inverse * self.end.rounding * longest * count**0.5

    def _parts(self, rows: np.ndarray) -> zip[tuple[np.ndarray, Compression, jax.Array]]:
        parts = parts_of(self.end.reduced.groups, rows)
        return zip(parts, self.end.compressed, self.scales, strict=True)

    def _rotated(self, rows: np.ndarray, power: int) -> np.ndarray:
        """R^T on each row for ``power`` 1, and R^{-1} for -1."""
        rotated_parts = (
            (part @ np.asarray(pairs.vectors)) * np.asarray(scales) ** power
            for part, pairs, scales in self._parts(rows)
        )
        return np.concatenate([part.reshape(len(rows), -1) for part in rotated_parts], axis=1)


@jax.jit
def _weighted(weights: jax.Array, matrices: jax.Array) -> jax.Array:
    return jnp.einsum("l,lij->ij", weights, matrices, precision="highest")


@partial(jax.jit, static_argnames=("groups",))
def _congruence(
    op: SumOfKroneckers,
    groups: TermGroups,
    vectors: tuple[jax.Array, ...],
    scales: tuple[jax.Array, ...],
    shift: float,
    sign: float,
    rows: jax.Array | np.ndarray,
    removed: jax.Array | np.ndarray,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """C v, R v and G R v for every row v of ``rows`` (b, n), for C = R^T sign (G - shift I) R.

    The n entries of v are a matrix (group rows, columns) for each of the ``groups``, one after the
    other. R maps every row of such a matrix by Q S, with the group's ``vectors`` Q and the diagonal
    ``scales`` S. With the rows X = ``removed``, orthonormal or zero, (I - X^T X) R stands for R.
    """
    parts = parts_of(groups, jnp.asarray(rows))
    scaled_parts = [part * s for part, s in zip(parts, scales, strict=True)]
    inner = packed(_times(part, q.T) for part, q in zip(scaled_parts, vectors, strict=True))
    inner = _outside(inner, removed)
    products = packed_product(op, groups, inner)
    image = _outside(sign * (products - shift * inner), removed)
    groups_of_image = zip(parts_of(groups, image), vectors, scales, strict=True)
    return packed(_times(part, q) * s for part, q, s in groups_of_image), inner, products


def _outside(rows: jax.Array, removed: jax.Array | np.ndarray) -> jax.Array:
    removed = jnp.asarray(removed)
    return rows - _times(_times(rows, removed.T), removed)


def _times(part: jax.Array, matrix: jax.Array) -> jax.Array:
    return jnp.matmul(part, matrix, precision="highest")


def _start(reduced: OnRange, compressed: tuple[Compression, ...], sign: float) -> np.ndarray:
    """Packed vectors u (x) v (b, n) near the end of the spectrum of G, to begin a search with.

    v are the outermost eigenvectors of the compression of G with the outermost eigenvalue, and u is
    that of sum_l (v^T B_l v) A_l, the restriction of G to all u (x) v.
    """
    group = int(np.argmin([(sign * c.values).min() for c in compressed]))
    rows, columns = reduced.groups[group]
    first = sum(r for r, _ in reduced.groups[:group])
    offset = sum(r * c for r, c in reduced.groups[:group])
    order = np.argsort(sign * compressed[group].values)[:_BLOCK]
    vectors = np.asarray(compressed[group].vectors)[:, order].T  # (b, columns)
    forms = np.asarray(_quadratic_forms(reduced.operator.rights, vectors))  # (b, L)
    lefts = np.asarray(reduced.operator.lefts)[:, first : first + rows, first : first + rows]
    start = np.zeros((len(vectors), reduced.shape[0]))
    for row, form, v in zip(start, forms, vectors, strict=True):
        _, eigenvectors = scipy.linalg.eigh(sign * np.tensordot(form, lefts, axes=1))
        row[offset : offset + rows * columns] = np.kron(eigenvectors[:, 0], v)
    return start


@jax.jit
def _quadratic_forms(matrices: jax.Array, vectors: jax.Array) -> jax.Array:
    columns = vectors.shape[1]
    images = jnp.matmul(matrices[:, :columns, :columns], vectors.T, precision="highest")
    return jnp.einsum("ljb,bj->bl", images, vectors, precision="highest")
