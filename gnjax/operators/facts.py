"""The facts that operators state about themselves; nothing else is assumed about them.

Every operator has ``shape``, ``dtype``, ``mv`` and ``as_matrix``. It may state facts, as attributes
or methods of these names, and the spectrum engine asks for nothing else:

- ``error``: an :class:`gnjax.numerics.certificate.Error`, a number, or a method ``error(norm)``
  that returns an ``Error``: a bound, in the spectral norm, on how far ``as_matrix`` and products in
  exact arithmetic are from the matrix of the docstring, whose 2-norm is about ``norm``; the engine
  adds the rounding of its own steps. A number is taken as proved by whoever states it. Without it
  the error is unknown.
- ``factorisation()``: a :class:`gnjax.operators.factorisation.Factorisation`, J with J J^T = A.
- ``positive``: True where the matrix is positive semidefinite by its structure; an operator that
  states a factorisation need not say so.
- ``unshifted``: a pair of an operator A and a number s, where this operator is A + s I.
- ``rank_bound``: a number that the rank of the matrix cannot exceed, by its structure alone.
- ``assumed``: True where a numerical cut-off has decided what ``rank_bound`` is.
- ``twin``: an operator with the same non-zero eigenvalues that is not larger.
- ``scaled(w)``: w A for a number w > 0, as an operator that states the same facts as A.
- ``on_range()``: an operator with the same non-zero eigenvalues whose size is ``rank_bound``.
- ``methods()``: its own ways to compute kappa, each a ``gnjax.conditioning.methods.Method``; they
  are preferred, and take the place of the engine's methods of the same names.
- ``eigenvalues_by_structure()``: all its eigenvalues without a computation, with their error.
- ``trace_by_structure()``: its trace without a product, with its error.
- ``forms_cheaply``: True where ``as_matrix`` costs less than a product for every row.
- ``forming_work``: about how many multiplications ``as_matrix`` takes.
- ``formed_by_products``: True where ``as_matrix`` makes a product for every row; without it that is
  assumed of an operator that does not form cheaply.
- ``symmetric``: True where structure makes the products symmetric, so that nobody need test it.
- ``magnitude``: an integer e with 2^e near the norm, or None for a matrix of zeros; without it, one
  product with a random vector tells.
- ``uneven``: True where numbers that the operator is made of are far from 1, if its norm is or not.
- ``times_power_of_two(e)``: the operator 2^e A for an even e, from stored numbers times the power.
- ``prepared()``: a function v -> A v that is faster than ``mv`` when it is called many times.
- ``in_float32()``: the operator with products in float32, or None where float64 stays inside.
- ``in_float64()``: the operator with its float32 numbers in float64, or None where it cannot be.
- ``devices``: the devices over which its vectors are divided; without it those of its arrays.
- ``evidence_for(fact)``: what "rank_bound", "positive" or "symmetric" rests on, as an ``Error`` of
  size 0 with a kind and a reason. Without it the fact is taken as proved by whoever states it, like
  an error that is a plain number.

A fact that is not stated is unknown, and the answer says so. The certificate of an answer has a
part for each of the three facts that it needs.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.certificate import MEASURED, Error, unknown
from gnjax.numerics.host import length, on_device
from gnjax.numerics.rank_bound import SHAPES, RankBound
from gnjax.numerics.scale import exponent_of, reach
from gnjax.operators.factorisation import Factorisation
from gnjax.operators.prepare import devices_of
from gnjax.operators.protocol import Operator

RANK_BOUND, POSITIVE, SYMMETRIC = "rank_bound", "positive", "symmetric"

STATED = {
    RANK_BOUND: Error(0.0, reason="the bound on its rank that the operator states"),
    POSITIVE: Error(0.0, reason="the operator states that it is positive semidefinite"),
    SYMMETRIC: Error(0.0, reason="the operator states that it is symmetric"),
}
"""The evidence for a fact that an operator states without its evidence: the word of its author."""

_BY_FACTOR = Error(0.0, reason="J J^T is positive semidefinite")
_BY_TRIAL = Error(0.0, MEASURED, reason="the products are symmetric for two random vectors")


def error_of(op: Operator, norm: float) -> Error:
    """A bound on ||A as computed - A||_2 where ||A||_2 is about ``norm``; unknown if not stated."""
    error: Any = getattr(op, "error", None)
    if error is None:
        return unknown(f"{type(op).__name__} does not state the error of its products")
    if callable(error):
        error = error(norm)
    if isinstance(error, Error):
        return error
    return Error(float(error), reason="the error that the operator states")


def factorisation_of(op: Operator) -> Factorisation | None:
    """The factor of the operator, or None where none is stated."""
    factorisation = getattr(op, "factorisation", None)
    return None if factorisation is None else factorisation()


def is_positive(op: Operator) -> bool:
    """Whether structure makes the matrix positive semidefinite."""
    positive = getattr(op, "positive", None)
    return factorisation_of(op) is not None if positive is None else bool(positive)


def unshifted_of(op: Operator) -> tuple[Operator, float]:
    """A and s for an operator A + s I; the operator itself and 0 where nothing is stated."""
    return getattr(op, "unshifted", (op, 0.0))


def rank_bound_of(op: Operator) -> int:
    """A bound on the rank: the size where nothing better is stated."""
    return min(int(getattr(op, "rank_bound", op.shape[0])), op.shape[0])


def evidence_for(op: Operator, fact: str) -> Error:
    """The evidence for the fact "rank_bound", "positive" or "symmetric" of an operator.

    Products that nobody states to be symmetric are compared on two random vectors wherever they are
    used (:func:`check_symmetric`), and a factor makes a matrix positive semidefinite.
    """
    evidence_of = getattr(op, "evidence_for", None)
    if evidence_of is not None:
        evidence: Error = evidence_of(fact)
        return evidence
    if fact == SYMMETRIC and not getattr(op, "symmetric", False):
        return _BY_TRIAL
    if fact == POSITIVE and getattr(op, "positive", None) is None:
        return _BY_FACTOR
    if fact == RANK_BOUND and getattr(op, "rank_bound", None) is None:
        return SHAPES
    return STATED[fact]


def rank_of(op: Operator) -> RankBound:
    """A bound on the rank, with its evidence."""
    return RankBound(rank_bound_of(op), evidence_for(op, RANK_BOUND))


def rank_is_assumed(op: Operator) -> bool:
    """Whether a numerical cut-off has decided what the rank may be."""
    return bool(getattr(op, "assumed", False))


def twin_of(op: Operator) -> Operator:
    """The operator with the same non-zero eigenvalues on which it is cheapest to work."""
    return getattr(op, "twin", op)


def stated_eigenvalues(op: Operator) -> tuple[np.ndarray, Error] | None:
    """All eigenvalues in any order, and a bound on the error of each, or None."""
    eigenvalues = getattr(op, "eigenvalues_by_structure", None)
    return None if eigenvalues is None else eigenvalues()


def scaled(op: Operator, factor: float) -> Operator | None:
    """factor A for a factor above zero, with the facts of A; None where A does not state it.

    A power of two of a factor far from 1, or for an A of numbers far from 1, multiplies what A is
    stored in, so that nothing underflows.
    """
    scaled_by_operator, exponent = getattr(op, "scaled", None), math.frexp(factor)[1]
    if scaled_by_operator is None:
        return None
    beyond_range = abs(exponent) > reach(op.dtype) or getattr(op, "uneven", False)
    times_power = getattr(op, "times_power_of_two", None)
    if not beyond_range or times_power is None:
        multiple: Operator = scaled_by_operator(factor)
        return multiple
    even = exponent - exponent % 2
    return cast(Operator, times_power(even).scaled(math.ldexp(factor, -even)))


def on_range(op: Operator) -> Operator:
    """The operator on the largest range that structure allows; itself where none is stated."""
    restrict = getattr(op, "on_range", None)
    return op if restrict is None else restrict()


def methods_of(op: Operator) -> tuple[Any, ...]:
    """The operator's own ways to compute kappa."""
    methods = getattr(op, "methods", None)
    return () if methods is None else tuple(methods())


def forms_cheaply(op: Operator) -> bool:
    return bool(getattr(op, "forms_cheaply", False))


def formed_by_products(op: Operator) -> bool:
    """Whether the matrix takes as many products as it has rows, some at a time."""
    return bool(getattr(op, "formed_by_products", not forms_cheaply(op)))


def forming_work(op: Operator) -> float:
    """About how many multiplications the matrix takes; 0 where it is not stated."""
    return float(getattr(op, "forming_work", 0.0))


def magnitude_of(op: Operator) -> tuple[int | None, bool]:
    """e with 2^e near the norm of A, None for zero products; and whether the operator states it."""
    if hasattr(op, "magnitude"):
        return op.magnitude, True
    return trial_magnitude(op), False


def trial_magnitude(op: Operator) -> int | None:
    """The exponent of |A v| for a vector v of random signs over n^{1/2}."""
    signs = np.random.default_rng(13).integers(0, 2, op.shape[0]) * 2.0 - 1.0
    unit = on_device(signs / len(signs) ** 0.5, op.dtype)
    return exponent_of(length(np.asarray(op.mv(unit), np.float64)))


def check_symmetric(op: Operator, multiply: Callable[[np.ndarray], np.ndarray]) -> None:
    """Refuse products that are not symmetric, where structure does not make them so.

    <x, A y> = <A x, y> for all x and y, and two random vectors tell a matrix that is far from it.
    """
    if getattr(op, "symmetric", False):
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
    """Refuse an operator whose shape is not (n, n)."""
    shape = tuple(op.shape)
    are_integers = all(isinstance(side, numbers.Integral) for side in shape)
    if len(shape) != 2 or not are_integers or shape[0] != shape[1] or shape[0] < 1:
        msg = f"an operator has a square shape (n, n) with n of at least 1, got {shape}"
        raise ValueError(msg)
    if not jnp.issubdtype(op.dtype, jnp.floating):
        msg = f"an operator has a real floating dtype, got {op.dtype}"
        raise ValueError(msg)


class Around:
    """A base class that passes on the facts of the operator ``op`` which a class wraps.

    The facts hold for op with faster products, and for S op S with a regular symmetric S.
    """

    op: Any

    @property
    def shape(self) -> tuple[int, int]:
        shape: tuple[int, int] = self.op.shape
        return shape

    @property
    def dtype(self) -> jnp.dtype:
        return self.op.dtype

    @property
    def symmetric(self) -> bool:
        return bool(getattr(self.op, "symmetric", False))

    @property
    def forms_cheaply(self) -> bool:
        return forms_cheaply(self.op)

    @property
    def formed_by_products(self) -> bool:
        return formed_by_products(self.op)

    @property
    def positive(self) -> bool:
        return is_positive(self.op)

    @property
    def rank_bound(self) -> int:
        return rank_bound_of(self.op)

    def evidence_for(self, fact: str) -> Error:
        return evidence_for(self.op, fact)

    @property
    def assumed(self) -> bool:
        return rank_is_assumed(self.op)

    @property
    def devices(self) -> tuple[jax.Device, ...]:
        return devices_of(self.op)

    @property
    def net(self) -> Any:
        return getattr(self.op, "net", None)

    @property
    def side(self) -> str:
        return getattr(self.op, "side", "parameters")
