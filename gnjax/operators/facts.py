"""What operators state about their matrices: one record, and nothing else is assumed of them.

Every operator has ``shape``, ``dtype``, ``mv`` and ``as_matrix``. One that knows more has a method
``facts()`` that returns a :class:`Facts`, and the spectrum engine asks for nothing else. What is
not stated is unknown, and the answer says so. The certificate of an answer has a part for each fact
that it needs: the error, the bound on the rank, the sign and the symmetry
(``docs/reference/evidence.md``).
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.certificate import MEASURED, Error, unknown
from gnjax.numerics.host import length, on_device
from gnjax.numerics.rank_bound import RankBound
from gnjax.numerics.scale import exponent_of
from gnjax.numerics.stages import FIRST_PRODUCT, stage
from gnjax.operators.factorisation import Factorisation
from gnjax.operators.protocol import Operator

if TYPE_CHECKING:
    from gnjax.networks.network import Network

Product = Callable[[Any], Any]
"""v -> A v, for vectors (n,) and blocks of columns (n, b)."""

STATED_RANK = Error(0.0, reason="the bound on its rank that the operator states")
STATED_POSITIVE = Error(0.0, reason="the operator states that it is positive semidefinite")
STATED_SYMMETRIC = Error(0.0, reason="the operator states that it is symmetric")
"""The evidence for a fact that an operator states without its evidence: the word of its author."""

_BY_FACTOR = Error(0.0, reason="J J^T is positive semidefinite")
_BY_TRIAL = Error(0.0, MEASURED, reason="the products are symmetric for two random vectors")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What an operator states about its matrix A. A fact that takes work is a function.

    ``symmetric`` and ``positive`` are what the fact rests on, as an ``Error`` of size 0 with a kind
    and a reason, or True for the word of whoever states it. False: nobody says so.

    Attributes:
      error: a bound, in the spectral norm, on how far ``as_matrix`` and products in exact
        arithmetic are from the matrix of the docstring: a number, which is taken as proved, an
        ``Error``, or a function of about ||A||_2 that returns one. The engine adds the rounding of
        its own steps. None: the error is unknown.
      rank: a bound on the rank, by the structure of A alone: a number, or a function that returns
        a :class:`gnjax.numerics.rank_bound.RankBound` with its evidence.
      assumed: whether a numerical cut-off has decided what ``rank`` is.
      symmetric: that structure makes the products symmetric. Otherwise two are compared.
      positive: that A is positive semidefinite by its structure; a factor says so, too.
      factor: returns a :class:`gnjax.operators.factorisation.Factorisation`, J with J J^T = A.
      twin: returns an operator with the same non-zero eigenvalues that is not larger.
      unshifted: an operator B and a number s with A = B + s I.
      scaled: from a number w > 0 to w A, as an operator that states the same facts.
      on_range: returns an operator with the same non-zero eigenvalues whose size is ``rank``.
      methods: its own ways to compute kappa, each a ``gnjax.conditioning.methods.Method``; they are
        preferred, and take the place of the engine's methods of the same names.
      eigenvalues: returns all eigenvalues in any order, without a computation, and their error.
      trace: returns the trace, without a product, and its error.
      forms_cheaply: whether ``as_matrix`` costs less than a product for every row.
      formed_by_products: whether ``as_matrix`` makes a product for every row.
      forming_work: returns about how many multiplications ``as_matrix`` takes.
      magnitude: returns an integer e with 2^e near ||A||_2, or None for a matrix of zeros. Without
        it, one product with a random vector tells.
      uneven: returns whether numbers that A is made of are far from 1, if its norm is or not.
      solve: returns, for a number s >= 0, a function v -> (A + s I)^{-1} v that needs no iteration.
      product: returns a function v -> A v that is faster than ``mv`` when it is called many times.
      one_by_one: whether several vectors at once take as long as one after the other; another
        number of vectors is another program to compile.
      in_float32: returns the operator with products in float32, None where float64 stays inside.
      in_float64: returns the operator with its float32 numbers in float64, None where it cannot be.
      devices: returns the devices over which its vectors are divided. Without it those of its
        arrays.
      network: the network whose parameters the vectors are, for trees of them and for metrics.

    >>> class Identity(gnjax.Algebra):
    ...     shape, dtype = (3, 3), np.dtype("float64")
    ...     def facts(self):
    ...         return gnjax.operators.Facts(error=0.0, symmetric=True, trace=lambda: (3.0, error))
    ...     def mv(self, v):
    ...         return v
    ...     def as_matrix(self):
    ...         return np.eye(3)
    >>> error = gnjax.Error(0.0, reason="three ones")
    >>> gnjax.trace(2 * Identity(), method="exact").value, gnjax.condition_number(Identity()).value
    (6.0, 1.0)
    """

    error: Callable[[float], Error] | Error | float | None = None
    rank: Callable[[], RankBound] | int | None = None
    assumed: bool = False
    symmetric: Error | bool = False
    positive: Error | bool = False
    factor: Callable[[], Factorisation | None] | None = None
    twin: Callable[[], Operator] | None = None
    unshifted: tuple[Operator, float] | None = None
    scaled: Callable[[float], Operator] | None = None
    on_range: Callable[[], Operator] | None = None
    methods: tuple[Any, ...] = ()
    eigenvalues: Callable[[], tuple[np.ndarray, Error]] | None = None
    trace: Callable[[], tuple[float, Error]] | None = None
    forms_cheaply: bool = False
    formed_by_products: bool = True
    forming_work: Callable[[], float] | None = None
    magnitude: Callable[[], int | None] | None = None
    uneven: Callable[[], bool] | None = None
    solve: Callable[[float], Product] | None = None
    product: Callable[[], Product] | None = None
    one_by_one: bool = False
    in_float32: Callable[[], Operator | None] | None = None
    in_float64: Callable[[], Operator | None] | None = None
    devices: Callable[[], tuple[jax.Device, ...]] | None = None
    network: Network | None = None


_ATTRIBUTES = ("error", "symmetric", "positive", "rank_bound", "factorisation", "twin")


def facts_of(op: Operator) -> Facts:
    """What the operator states about its matrix: an empty record if it has no method ``facts``.

    Refused is an operator that states facts by attributes, as it was done in older versions.
    """
    state: Callable[[], Facts] | None = getattr(op, "facts", None)
    if state is not None:
        return state()
    attributes = [name for name in _ATTRIBUTES if name in dir(op)]
    if attributes:
        msg = (
            f"{type(op).__name__} has the attribute {attributes[0]}, and facts are stated by a "
            "method: def facts(self): return gnjax.operators.Facts(error=.., symmetric=True)"
        )
        raise ValueError(msg)
    return Facts()


def error_of(op: Operator, norm: float) -> Error:
    """A bound on ||A as computed - A||_2 where ||A||_2 is about ``norm``; unknown if not stated."""
    error = facts_of(op).error
    if error is None:
        return unknown(f"{type(op).__name__} does not state the error of its products")
    if callable(error):
        return error(norm)
    if isinstance(error, Error):
        return error
    return Error(float(error), reason="the error that the operator states")


def rank_of(op: Operator) -> RankBound:
    """A bound on the rank, with its evidence: the size where nothing better is stated."""
    rank, size = facts_of(op).rank, op.shape[0]
    if rank is None:
        return RankBound(size)
    bound = rank() if callable(rank) else RankBound(int(rank), STATED_RANK)
    return bound if bound.value <= size else replace(bound, value=size)


def symmetry_of(op: Operator) -> Error:
    """The evidence that A is symmetric, as an error of size 0 with a kind and a reason.

    Without a statement it is the comparison of :func:`check_symmetric`.
    """
    symmetric = facts_of(op).symmetric
    if symmetric is True:
        return STATED_SYMMETRIC
    return symmetric or _BY_TRIAL


def positivity_of(op: Operator) -> Error | None:
    """The evidence that A is positive semidefinite, as an error of size 0 with a kind and a reason.

    A factor is evidence, too. None if the operator states neither.
    """
    positive = facts_of(op).positive
    if isinstance(positive, Error):
        return positive
    if positive:
        return STATED_POSITIVE
    return None if factorisation_of(op) is None else _BY_FACTOR


def factorisation_of(op: Operator) -> Factorisation | None:
    """The factor of the operator, or None where none is stated."""
    factor = facts_of(op).factor
    return None if factor is None else factor()


def unshifted_of(op: Operator) -> tuple[Operator, float]:
    """B and s for an operator B + s I; the operator itself and 0 where nothing is stated."""
    return facts_of(op).unshifted or (op, 0.0)


def twin_of(op: Operator) -> Operator:
    """The operator with the same non-zero eigenvalues on which it is cheapest to work."""
    twin = facts_of(op).twin
    return op if twin is None else twin()


def on_range(op: Operator) -> Operator:
    """The operator on the largest range that structure allows; itself where none is stated."""
    restrict = facts_of(op).on_range
    return op if restrict is None else restrict()


def is_uneven(op: Operator) -> bool:
    """Whether some numbers that the operator is made of are far from 1, even if its norm is not."""
    uneven = facts_of(op).uneven
    return uneven is not None and uneven()


def forming_work(op: Operator) -> float:
    """About how many multiplications the matrix takes; 0 where it is not stated."""
    work = facts_of(op).forming_work
    return 0.0 if work is None else work()


def magnitude_of(op: Operator) -> tuple[int | None, bool]:
    """e with 2^e near the norm of A, None for zero products; and whether the operator states it."""
    magnitude = facts_of(op).magnitude
    return (trial_magnitude(op), False) if magnitude is None else (magnitude(), True)


def trial_magnitude(op: Operator, product: Product | None = None) -> int | None:
    """e with 2^e near |A v|, for a unit vector v of random signs over n^{1/2}; None for A v = 0.

    ``product`` multiplies with A, by default as ``op.mv`` does.
    """
    signs = np.random.default_rng(13).integers(0, 2, op.shape[0]) * 2.0 - 1.0
    unit = on_device(signs / len(signs) ** 0.5, op.dtype)
    with stage(FIRST_PRODUCT):
        image = np.asarray((product or op.mv)(unit), np.float64)
    return exponent_of(length(image))


def check_symmetric(op: Operator, multiply: Callable[[np.ndarray], np.ndarray]) -> None:
    """Refuse products that are not symmetric, where structure does not make them so.

    <x, A y> = <A x, y> for all x and y, and two random vectors show where that fails by far.
    ``multiply`` maps rows (2, n) to their products with A, as rows.
    """
    if facts_of(op).symmetric:
        return
    x, y = pair = np.random.default_rng(13).standard_normal((2, op.shape[0]))
    images = multiply(pair)
    forward, backward = float(x @ images[1]), float(images[0] @ y)
    scale = length(images[0]) * length(y)
    if abs(forward - backward) > _ASYMMETRIC * scale:
        msg = (
            f"the operator is not symmetric: <x, A y> = {forward:.6g} and <A x, y> = "
            f"{backward:.6g} for random x and y; pass an operator with A = A^T"
        )
        raise ValueError(msg)


_ASYMMETRIC = 1e-5  # relative to |A x| |y|, so that products in float32 pass


def check_shape(op: Any) -> None:
    """Refuse an operator whose shape is not (n, n), or whose dtype is not real and floating."""
    shape = tuple(op.shape)
    are_integers = all(isinstance(side, numbers.Integral) for side in shape)
    if len(shape) != 2 or not are_integers or shape[0] != shape[1] or shape[0] < 1:
        msg = f"an operator has a square shape (n, n) with n of at least 1, got {shape}"
        raise ValueError(msg)
    if not jnp.issubdtype(op.dtype, jnp.floating):
        msg = f"an operator has a real floating dtype, got {op.dtype}"
        raise ValueError(msg)
