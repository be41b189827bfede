"""Anything that stands for a symmetric matrix, as an operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from jax.typing import ArrayLike

from gnjax.numerics.certificate import Error
from gnjax.numerics.evidence import with_evidence
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.validation import check_finite_number, check_known
from gnjax.operators.elsewhere.black_box import black_box
from gnjax.operators.elsewhere.sparse import sparse
from gnjax.operators.facts import check_shape
from gnjax.operators.protocol import Operator
from gnjax.operators.stored.matrices import dense


def as_operator(
    op: Operator | ArrayLike | Any,
    *,
    error: float | Error | None = None,
    limits: Limits = LIMITS,
) -> Operator:
    """The operator of a symmetric matrix, in whichever form it comes.

    Every function of this library that takes an operator calls this first. Call it yourself to
    state an error, or to write ``op + 1e-3`` with an operator of another library.

    - an operator is returned as it is;
    - an array, a list of rows or a sparse matrix (of SciPy, or ``BCOO``) is taken as exact;
    - what can only be multiplied with (SciPy's ``LinearOperator``, operators of lineax and
      curvlinops, any object with ``shape``, ``dtype`` and ``@``, ``matvec`` or ``mv``) has an
      unknown error. Four products with random vectors measure how far it is from symmetric, from
      repeatable and from linear, and the certificate of every answer says so.

    Args:
      op: the matrix.
      error: a bound in the 2-norm on how far the products, in exact arithmetic, are from those of
        the matrix that is meant: a number, which is then taken as proved, or a ``gnjax.Error``.
      limits: how many rows an array may have.

    >>> import scipy.sparse
    >>> op = gnjax.as_operator(scipy.sparse.diags_array([4.0, 2.0, 1.0]))
    >>> print(gnjax.condition_number(op + 1.0))
    kappa = 2.5 in [2.5, 2.5] (rank 3 of 3, full; dense, measured)
    """
    check_known("an answer about an operator", op)
    stated = error
    if stated is not None and not isinstance(stated, Error):
        number = check_finite_number("error", stated)
        if number < 0:
            msg = f"error={error} is negative; pass a bound on how far the products are from exact"
            raise ValueError(msg)
        stated = Error(number, reason="the error that the caller states")
    if isinstance(op, Operator):
        check_shape(op)
        if stated is not None:
            msg = (
                f"error={error} is for objects of other libraries; {type(op).__name__} is an "
                "operator and states its error in its facts()"
            )
            raise ValueError(msg)
        return op
    is_list_of_rows = isinstance(op, list | tuple) and all(
        isinstance(row, list | tuple) or hasattr(row, "__array__") for row in op
    )
    if hasattr(op, "__array__") or is_list_of_rows:
        return dense(op, error=stated, limits=limits)
    operator = sparse(op, stated) or black_box(op, stated)
    if operator is None:
        msg = (
            "op must be an operator, such as gnjax.gauss_newton(model, x), a matrix, or an object "
            f"with shape, dtype and products; got {type(op).__name__}"
        )
        raise ValueError(msg)
    return operator


_P = ParamSpec("_P")
_R = TypeVar("_R")


def one_operator(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same function of one operator; more arguments without a name are refused in words.

    Every public function wears it that asks an operator and takes no model, since people write
    ``f(model, x)``. Other arguments that ``function`` takes by position, as the vectors of
    ``certify``, stay as they are. Within it the evidence of its ``limits`` is asked for.
    """
    parameters = inspect.signature(function).parameters.values()
    keywords = [each.name for each in parameters if each.kind == inspect.Parameter.KEYWORD_ONLY]
    others = [each.name for each in parameters if each.kind != inspect.Parameter.KEYWORD_ONLY][1:]

    @wraps(function)
    def checked(*args: _P.args, **options: _P.kwargs) -> _R:
        if len(args) > 1 + len(others):
            name, taken = function.__name__, ", ".join(["one operator", *others])
            call = ", ".join(["gnjax.gauss_newton(model, x)", *others])
            msg = (
                f"{name} takes {taken}, and all else by name, as {keywords[0]}= and "
                f"{keywords[1]}=; got {len(args)} arguments without a name. Of a model at samples "
                f"x it is gnjax.{name}({call})"
            )
            raise TypeError(msg)
        return function(*args, **options)

    return with_evidence(checked)


def is_matrix(source: Any) -> bool:
    """Whether this stands for a matrix, and not for a model."""
    is_array_like = hasattr(source, "shape") and hasattr(source, "dtype")
    return isinstance(source, Operator) or is_array_like or hasattr(source, "in_structure")
