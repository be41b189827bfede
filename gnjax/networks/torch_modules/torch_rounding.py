"""How far PyTorch's own numbers go when every number on the way to them is moved a little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from gnjax.networks.torch_modules.arrays import apart, torch

Numbers = TypeVar("Numbers")  # a tree of arrays
_FEW = 8  # entries of a result that are looked for before all of them are
_DRAWS = 8  # one may cancel by chance, or decide a tie as PyTorch has


def step_of(eps: float) -> float:
    """h = sqrt(eps), the relative step at which a difference quotient keeps half of the digits."""
    return float(np.sqrt(eps))


def moved(
    compute: Callable[[], Numbers],
    expected: Numbers,
    eps: float,
    explains: Callable[[Numbers], bool],
) -> Numbers:
    """By how much each entry of ``compute()`` changes, at most, when all numbers before it move.

    Every result of every operator of PyTorch is multiplied by 1 + h or 1 - h at random, entry by
    entry, where h = sqrt(eps), both in the function and in its derivatives. Where an entry depends
    smoothly on these results, rounding every one of them by a share eps changes it by about
    (change / h) eps. At a kink, or at a tie, the change is a jump, whatever h is. A change to NaN
    or Inf counts as none.

    Args:
      compute: evaluates a pytree of arrays by PyTorch, from numbers that it clones.
      expected: the result of ``compute()`` when nothing is moved.
      eps: that of the coarsest floating format in which anything is computed.
      explains: whether the changes so far explain a difference, so that no more moves are drawn.
    """

    def larger(change: np.ndarray, computed: np.ndarray, exact: np.ndarray) -> np.ndarray:
        distance = apart(computed, exact)
        return np.maximum(change, np.where(np.isfinite(distance), distance, 0.0))

    changes: Numbers = jax.tree.map(lambda array: np.zeros(array.shape), expected)
    for seed in range(_DRAWS):
        with _moving(step_of(eps), seed):
            computed = compute()
        changes = jax.tree.map(larger, changes, computed, expected)
        if explains(changes):
            break
    return changes


def _moving(step: float, seed: int) -> Any:
    """A context in which every result of PyTorch is multiplied by 1 + ``step`` or 1 - ``step``.

    The sign is random for each entry. A result that only picks numbers of an operand, such as a
    view or a maximum, stays as it is, since nothing is rounded in it.
    """
    generator = torch().Generator().manual_seed(seed)

    def with_move(value: Any, operands: list[Any]) -> Any:
        if not _floats(value) or _picked(value, operands):
            return value
        signs = torch().randint(0, 2, value.shape, generator=generator).mul_(2).sub_(1)
        return value * (1 + step * signs.double()).to(value.dtype)

    class Moving(torch().utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """The result of the operator ``func``, which PyTorch passes here, with its move."""
            result = func(*args, **(kwargs or {}))
            if any(returned.alias_info for returned in func._schema.returns):
                return result  # a view, or an operand in place
            operands = [leaf for leaf in jax.tree.leaves((args, kwargs)) if _floats(leaf)]
            if func is torch().ops.aten.clone.default:
                operands = []  # a copy is moved: so the caller can have the inputs moved as well
            return jax.tree.map(lambda value: with_move(value, operands), result)

    return Moving()


def _floats(value: Any) -> bool:
    """Whether this is a tensor of floating or complex numbers."""
    is_tensor = isinstance(value, torch().Tensor)
    return is_tensor and (value.is_floating_point() or value.is_complex())


def _picked(value: Any, operands: list[Any]) -> bool:
    """Whether every entry of a result is copied, up to its sign, from one of the operands.

    A maximum copies so, and its derivative finds the chosen entry by comparing it with the result.
    A few entries are looked for first, because this is cheap and most often decides.
    """
    few_entries = value.reshape(-1)[:: max(1, value.numel() // _FEW)].abs()
    for operand in operands:
        sizes = operand.abs()
        if all(bool((sizes == entry).any()) for entry in few_entries):
            value_and_operand = [t.double().reshape(-1) for t in (value.abs(), sizes)]
            if torch().isin(*value_and_operand).all():
                return True
    return False
