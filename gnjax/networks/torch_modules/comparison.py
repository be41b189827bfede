"""A translated module beside the module itself: outputs, and one product with the Jacobian.

At the first samples of an operator PyTorch computes f(theta), and u^T J by ``torch.autograd`` in
float64, with one random u. The translation computes the same two. Where they differ by more than
rounding, the model is refused, whatever the cause: a rule of an operator that is wrong, or
something that ``torch.export`` does not write down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.forms.frameworks import Apply, Params
from gnjax.networks.forms.refusals import RAISED, Refused
from gnjax.networks.forms.samples import take
from gnjax.networks.torch_modules.arrays import apart, largest
from gnjax.networks.torch_modules.names import flat
from gnjax.networks.torch_modules.original import Original, same_numbers_afterwards
from gnjax.networks.torch_modules.torch_rounding import moved, step_of

_FEW = 4  # samples
_ROUNDINGS = 1000.0  # in units of eps; networks of public packages differ by 30
_COARSEST = 0.1  # formats of half the bits round so much that only this is left

_LOST = (
    "Each operator of the graph alone agrees with PyTorch, so that torch.export has not written "
    "down what forward does: a hook of a tensor, detach_(), torch.inference_mode(), numbers that "
    "are changed under torch.no_grad() and read afterwards, a derivative written by hand, or a "
    "composite function that it takes apart. Write this part with other operators, as in "
    "x.detach() and torch.where, or write apply(params, x) with jax.numpy"
)
_BY_ROUNDING = (
    "Each operator of the graph alone agrees with PyTorch, and PyTorch's own numbers change by as "
    "much when those on the way to them are moved by a share of {:.1g}: rounding decides on which "
    "side of a kink or of a tie they are, or is amplified until few digits are left. Move x or the "
    "parameters a little, or compute this part of the module in another way"
)


class _Jacobian(NamedTuple):
    """The outputs, and u^T J by the paths of the parameters; or the same numbers of something."""

    outputs: list[np.ndarray]
    product: dict[str, np.ndarray]


@dataclass
class Notice:
    """What happens to modules of PyTorch while a model is called.

    Modules are compared where ``like`` is given: the model with its equations rewritten.
    """

    like: Apply | None = None
    met: bool = False
    any_size: bool = True  # each of them takes any number of samples


_WATCH: ContextVar[Notice | None] = ContextVar("watch", default=None)


@contextmanager
def noticing(like: Apply | None = None) -> Iterator[Notice]:
    """Notice modules of PyTorch in calls of a model, and compare them where ``like`` is given."""
    watch = Notice(like)
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)


def compare_modules(apply: Apply, params: Params, x: Any, *, like: Apply, any_size: bool) -> None:
    """Compare every module of PyTorch that a model calls with its translation, at a few samples.

    The equations of the translation are rewritten as those of the model are in ``like``. All
    samples are taken where a module, or what the model does around it, takes no fewer.
    """
    few = take(x, slice(0, _FEW)) if any_size else x
    with noticing(like):
        try:
            apply(params, few)
        except Refused:
            raise
        except RAISED:
            if not any_size:
                raise
            apply(params, x)


def noticed(*, any_size: bool) -> Apply | None:
    """Say that a module of PyTorch is called; like what it is to be compared, if it is."""
    watch = _WATCH.get()
    if watch is None:
        return None
    watch.met, watch.any_size = True, watch.any_size and any_size
    return watch.like


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
      blame: the words for the operator that differs, or none.
    """
    with same_numbers_afterwards():
        outputs = original.outputs()
        cotangents = _random_like(outputs)
        expected = _Jacobian(outputs, original.product(cotangents))
        original.check_again(outputs)
    computed = _by_jax(function, params, x, cotangents)
    difference = _difference(computed, expected, _roundings(expected, eps))
    if not difference:
        return outputs
    if operator := blame():
        msg = f"what gnjax.from_torch has made is not the module: {difference}. {operator}"
        raise Refused(msg)
    with same_numbers_afterwards():
        changes = moved(
            lambda: _Jacobian(original.outputs(), original.product(cotangents)),
            expected,
            eps,
            lambda changes: not _difference(computed, expected, _roundings(expected, eps, changes)),
        )
    _check_beside_changes(computed, expected, changes, eps)
    return outputs


def _check_beside_changes(
    computed: _Jacobian, expected: _Jacobian, changes: _Jacobian, eps: float
) -> None:
    """Refuse a difference that is no rounding which the module amplifies.

    The module's own numbers have changed by ``changes``, when those on the way to them were moved
    by a share h. So one rounding along the way changes them by eps / h of this.
    """
    difference = _difference(computed, expected, _roundings(expected, eps, changes))
    if not difference:
        return
    if _difference(computed, expected, jax.tree.map(lambda change: 2 * change, _spread(changes))):
        msg = f"what gnjax.from_torch has made is not the module: {difference}. {_LOST}"
        raise Refused(msg)
    msg = (
        "what gnjax.from_torch has made cannot be compared with the module at these numbers: "
        f"{difference}. {_BY_ROUNDING.format(step_of(eps))}"
    )
    raise Refused(msg)


def _random_like(outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """u, with normal entries over the size of every output, so that all outputs count."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(array.shape) / _sizes(array) for array in outputs]


def _sizes(array: np.ndarray) -> Any:
    """The largest finite entry of every output among the samples, 1 where all are 0.

    Of one sample alone an entry can be near 0 by chance, as one logit of many thousands is. It
    counts as large as the root of the mean square of all.
    """
    finite = np.where(np.isfinite(array), np.abs(array), 0.0)
    size = _largest_of_samples(finite)
    if size.size == finite.size and finite.size:
        largest_entry = finite.max() or 1.0  # whose square may not be a number
        typical = largest_entry * np.sqrt(np.mean((finite / largest_entry) ** 2))
        size = np.maximum(size, typical)
    return np.where(size > 0, size, 1.0)


def _largest_of_samples(array: np.ndarray) -> np.ndarray:
    return array.max(axis=0, initial=0.0, keepdims=True) if array.ndim else array


def _spread(changes: _Jacobian) -> _Jacobian:
    """The largest change of every output among the samples, and of every parameter's derivative."""
    return _Jacobian(
        [_largest_of_samples(array) for array in changes.outputs],
        {name: np.array(largest(array)) for name, array in changes.product.items()},
    )


def _roundings(expected: _Jacobian, eps: float, changes: _Jacobian | None = None) -> _Jacobian:
    """What a difference by rounding may be: 1,000 roundings, amplified where it has been measured.

    A change beyond the size itself says no more than one of that size.
    """
    whole = max(map(largest, expected.product.values()), default=0.0) or 1.0
    sizes = _Jacobian(
        [_sizes(array) for array in expected.outputs],
        dict.fromkeys(expected.product, np.array(whole)),
    )
    if changes is None:
        return jax.tree.map(lambda size: min(_ROUNDINGS * eps, _COARSEST) * size, sizes)

    def allowed(size: np.ndarray, change: np.ndarray) -> np.ndarray:
        amplified = np.minimum(change, size) / step_of(eps)
        return np.minimum(_ROUNDINGS * eps * np.maximum(size, amplified), _COARSEST * size)

    return jax.tree.map(allowed, sizes, _spread(changes))


def _by_jax(function: Any, params: Any, x: Any, cotangents: Sequence[np.ndarray]) -> _Jacobian:
    outputs, gradient = _outputs_and_product(function, params, x, list(cotangents))
    return _Jacobian(
        [np.asarray(array, np.float64) for array in outputs],
        {name: np.asarray(array, np.float64) for name, array in flat(gradient).items()},
    )


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


def _difference(computed: _Jacobian, expected: _Jacobian, allowed: _Jacobian) -> str:
    """The words for the first output or derivative beyond what is allowed, or nothing."""
    return _different_output(computed, expected, allowed) or _different_derivative(
        computed, expected, allowed
    )


def _different_output(computed: _Jacobian, expected: _Jacobian, allowed: _Jacobian) -> str:
    triples = zip(computed.outputs, expected.outputs, allowed.outputs, strict=True)
    for number, (ours, theirs, most) in enumerate(triples):
        if ours.shape != theirs.shape:
            return f"its outputs have the shape {ours.shape}, and those of PyTorch {theirs.shape}"
        distance = apart(ours, theirs)
        if (distance > most).any():
            which = f"output {number}" if len(computed.outputs) > 1 else "its output"
            share = _percent(distance / _sizes(theirs))
            return f"{which} differs from PyTorch's by {share} of its size"
    return ""


def _different_derivative(computed: _Jacobian, expected: _Jacobian, allowed: _Jacobian) -> str:
    """The words for the last parameter whose derivative differs: the cause comes behind it."""
    for name, theirs in reversed(list(expected.product.items())):
        distance = apart(computed.product[name], theirs)
        if (distance > allowed.product[name]).any():
            share = _percent(distance / (largest(theirs) or 1.0))
            return f"the derivative by {name} differs from PyTorch's by {share} of its size"
    return ""


def _percent(distance: np.ndarray) -> str:
    most = float(distance.max())
    return f"{100 * most:.2g}%" if np.isfinite(most) else "NaN or Inf"
