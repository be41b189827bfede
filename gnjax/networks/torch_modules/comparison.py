"""A translated module beside the module itself: outputs, and one product with the Jacobian.

At the first samples of an operator PyTorch computes f(theta), and u^T J by ``torch.autograd`` in
float64, with one random u. The translation computes the same two. Where they differ by more than
rounding, the model is refused, whatever the cause: a rule of an operator that is wrong, or
something that ``torch.export`` does not write down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.forms.frameworks import Apply, Params
from gnjax.networks.forms.refusals import RAISED, Refused
from gnjax.networks.forms.samples import take
from gnjax.networks.torch_modules.arrays import apart, largest
from gnjax.networks.torch_modules.names import flat
from gnjax.networks.torch_modules.original import Original, same_numbers_afterwards

_FEW = 4  # samples
_ROUNDINGS = 1000.0  # in units of eps; networks of public packages differ by 30
_COARSEST = 0.1  # formats of half the bits round so much that only this is left

_Jacobian = tuple[list[np.ndarray], dict[str, np.ndarray]]


@dataclass
class Watch:
    """What happens to modules of PyTorch while a model is called."""

    compares: bool
    met: bool = False
    any_size: bool = True  # each of them takes any number of samples


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(*, compares: bool = False) -> Iterator[Watch]:
    """Notice modules of PyTorch in calls of a model, and compare them where ``compares``."""
    watch = Watch(compares)
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)


def compare_modules(apply: Apply, params: Params, x: Any, *, any_size: bool) -> None:
    """Compare every module of PyTorch that a model calls with its translation, at a few samples.

    All samples are taken where a module, or what the model does around it, takes no fewer.
    """
    few = take(x, slice(0, _FEW)) if any_size else x
    with watching(compares=True):
        try:
            apply(params, few)
        except Refused:
            raise
        except RAISED:
            if not any_size:
                raise
            apply(params, x)


def noticed(*, any_size: bool) -> bool:
    """Say that a module of PyTorch is called; whether it is to be compared."""
    watch = _WATCH.get()
    if watch is None:
        return False
    watch.met, watch.any_size = True, watch.any_size and any_size
    return watch.compares


def compare(
    function: Any, params: Any, x: Any, original: Original, eps: float, blame: Callable[[], str]
) -> list[np.ndarray]:
    """The outputs of the module, after a comparison with those of its translation.

    Args:
      function: the translation as the library differentiates it, function(params, x) -> outputs.
      params: by the paths of the module, as x on the device.
      x: the samples.
      original: the module at these parameters and samples.
      eps: of the coarsest floating format in which anything is computed.
      blame: the words for the operator that differs, or for what else there is to say.
    """
    with same_numbers_afterwards():
        outputs = original.outputs()
        cotangents = _random_like(outputs)
        product = original.product(cotangents)
        original.check_again(outputs)
    found = _by_jax(function, params, x, cotangents)
    tolerance = min(_ROUNDINGS * eps, _COARSEST)
    difference = _different_output(found[0], outputs, tolerance) or _different_derivative(
        found[1], product, tolerance
    )
    if difference:
        msg = f"what gnjax.from_torch has made is not the module: {difference}. {blame()}"
        raise Refused(msg)
    return outputs


def _random_like(outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """u, with normal entries over the size of every output, so that all outputs count."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(array.shape) / _sizes(array) for array in outputs]


def _sizes(array: np.ndarray) -> Any:
    """The largest finite entry of every output among the samples, 1 where all are 0."""
    finite = np.where(np.isfinite(array), np.abs(array), 0.0)
    largest = finite.max(axis=0, initial=0.0, keepdims=True) if array.ndim else finite
    return np.where(largest > 0, largest, 1.0)


def _by_jax(function: Any, params: Any, x: Any, cotangents: Sequence[np.ndarray]) -> _Jacobian:
    outputs, gradient = _outputs_and_product(function, params, x, list(cotangents))
    return [np.asarray(array, np.float64) for array in outputs], {
        name: np.asarray(array, np.float64) for name, array in flat(gradient).items()
    }


# What is compiled here runs once or twice, so that most of the compiler's work would be lost.
@partial(
    jax.jit,
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    },
)
def _outputs_and_product(function: Any, params: Any, x: Any, cotangents: list[Any]) -> Any:
    def floating(p: Any) -> tuple[list[Any], list[Any]]:
        outputs = jax.tree.leaves(function(p, x))
        wide = [array.astype(jnp.result_type(float)) for array in outputs]
        return wide, wide

    with jax.default_matmul_precision("highest"):
        _, pull, outputs = jax.vjp(floating, params, has_aux=True)
        (gradient,) = pull([u.astype(jnp.result_type(float)) for u in cotangents])
    return outputs, gradient


def _different_output(
    found: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float
) -> str:
    """The words for the first output that differs, each measured by its own size."""
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        if ours.shape != theirs.shape:
            return f"its outputs have the shape {ours.shape}, and those of PyTorch {theirs.shape}"
        distance = apart(ours, theirs) / _sizes(theirs)
        if distance.max(initial=0.0) > tolerance:
            which = f"output {number}" if len(found) > 1 else "its output"
            return f"{which} differs from PyTorch's by {_percent(distance)} of its size"
    return ""


def _different_derivative(
    found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], tolerance: float
) -> str:
    """The words for the last parameter whose derivative differs: the cause comes behind it."""
    size = max(map(largest, expected.values()), default=0.0) or 1.0
    for name, theirs in reversed(list(expected.items())):
        distance = apart(found[name], theirs)
        if distance.max(initial=0.0) > tolerance * size:
            share = _percent(distance / (largest(theirs) or size))
            return f"the derivative by {name} differs from PyTorch's by {share} of its size"
    return ""


def _percent(distance: np.ndarray) -> str:
    most = float(distance.max())
    return f"{100 * most:.2g}%" if np.isfinite(most) else "NaN or Inf"
