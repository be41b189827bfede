"""A translated module beside the module itself: outputs, and one product with the Jacobian.

At the first samples of an operator PyTorch computes f(theta), and u^T J by ``torch.autograd`` in
float64, with one random u. The translation computes the same two. Where they differ by more than
rounding, the model is refused, whatever the cause: a rule of an operator that is wrong, or
something that ``torch.export`` does not write down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict

from gnjax.networks.arguments.frameworks import Apply, Params
from gnjax.networks.arguments.refusals import RAISED, Refused
from gnjax.networks.arguments.samples import take
from gnjax.networks.torch_modules.arrays import apart, largest
from gnjax.networks.torch_modules.original import Original, same_numbers_afterwards
from gnjax.networks.torch_modules.torch_rounding import moved, step_of

_FEW = 4  # samples at which a module is compared, if it takes so few
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
    """The outputs of a function of parameters, and u^T J with its Jacobian J for one u.

    Bounds on their errors, and how much they change, have the same form.
    """

    outputs: list[np.ndarray]
    product: dict[str, np.ndarray]  # the parts of u^T J, by the paths of the parameters


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
    """A context in which calls of modules of PyTorch are noted, in the object that it yields.

    With ``like``, the model as the library differentiates it, each module is also compared with its
    translation to JAX when it is called.
    """
    watch = Notice(like)
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)


def compare_modules(apply: Apply, params: Params, x: Any, *, like: Apply, any_size: bool) -> None:
    """Compare every module of PyTorch that a model calls with its translation to JAX.

    The model is called inside of :func:`noticing`, where each module compares itself and refuses a
    difference beyond rounding. Of the samples x four are taken where the modules take ``any_size``,
    or all if the model needs them. ``like`` is the model as the library differentiates it.
    """
    samples = take(x, slice(0, _FEW)) if any_size else x
    with noticing(like):
        try:
            apply(params, samples)
        except Refused:
            raise
        except RAISED:
            if not any_size:
                raise
            # what the model does around the modules may need all samples
            apply(params, x)


def noticed(*, any_size: bool) -> Apply | None:
    """Note, for the surrounding :func:`noticing`, that a module of PyTorch is called.

    Returns its ``like`` if the module is to be compared with its translation, in which the same
    equations are then replaced; None if nothing is to be compared.
    """
    watch = _WATCH.get()
    if watch is None:
        return None
    watch.met, watch.any_size = True, watch.any_size and any_size
    return watch.like


def compare(
    function: Any, params: Any, x: Any, original: Original, eps: float, blame: Callable[[], str]
) -> list[np.ndarray]:
    """The outputs of a module of PyTorch, after a comparison with its translation to JAX.

    The outputs of both are compared, and one product u^T J with their Jacobian J. A translation
    that differs by more than rounding is refused; the message names the operator that differs.

    Args:
      function: the translation as the library differentiates it, function(params, x) -> outputs.
      params: the parameters by the paths of the module, as arrays of JAX.
      x: the samples, as arrays of JAX.
      original: the module at these parameters and samples.
      eps: that of the coarsest floating format in which anything is computed.
      blame: compares each operator, and returns a sentence about the one that differs, or "".
    """
    rng = np.random.default_rng(0)
    with same_numbers_afterwards():
        outputs = original.outputs()
        # each is divided by its size, so that none is lost beside larger ones in u^T f
        cotangents = [rng.standard_normal(f.shape) / _output_sizes(f) for f in outputs]
        expected = _Jacobian(outputs, original.product(cotangents))
        original.check_again(outputs)
    values, gradient = _outputs_and_product(function, params, x, cotangents)
    computed = _Jacobian(values, flatten_dict(gradient, sep="."))
    difference = _difference(computed, expected, _roundings(expected, eps))
    if not difference:
        return outputs
    if operator := blame():
        msg = f"what gnjax.from_torch has made is not the module: {difference}. {operator}"
        raise Refused(msg)
    _check_up_to_rounding(
        computed,
        expected,
        lambda: _Jacobian(original.outputs(), original.product(cotangents)),
        eps,
    )
    return outputs


def _check_up_to_rounding(
    computed: _Jacobian, expected: _Jacobian, compute: Callable[[], _Jacobian], eps: float
) -> None:
    """Refuse a translation whose Jacobian differs from the module's by more than rounding explains.

    ``computed`` is the Jacobian of the translation, and ``expected`` that of the module.
    ``compute()`` computes the latter again, with every number on the way moved by a random
    rounding of relative size ``eps``. So its changes say how far rounding may move it. No more of
    them are drawn once they explain the difference.
    """
    with same_numbers_afterwards():
        changes = moved(
            compute,
            expected,
            eps,
            lambda changes: not _difference(computed, expected, _roundings(expected, eps, changes)),
        )
    difference = _difference(computed, expected, _roundings(expected, eps, changes))
    if not difference:
        return
    # A difference within the changes may come from a kink or a tie and be no mistake; then the
    # refusal says that nothing can be concluded. Twice: few random draws may miss the largest one.
    twice_changes = jax.tree.map(lambda change: 2 * change, _largest_changes(changes))
    if _difference(computed, expected, twice_changes):
        msg = f"what gnjax.from_torch has made is not the module: {difference}. {_LOST}"
        raise Refused(msg)
    msg = (
        "what gnjax.from_torch has made cannot be compared with the module at these numbers: "
        f"{difference}. {_BY_ROUNDING.format(step_of(eps))}"
    )
    raise Refused(msg)


def _output_sizes(array: np.ndarray) -> np.ndarray:
    """How large each output of a module is, (1, ...) for outputs (n, ...), to judge its errors by.

    That is the largest finite absolute value among the n samples, and 1 where all are 0. A single
    value can be near 0 by chance: with n = 1 no size is below the root mean square of all outputs.
    """
    finite = np.where(np.isfinite(array), np.abs(array), 0.0)
    sizes = _largest_of_samples(finite)
    one_sample = sizes.size == finite.size
    if one_sample and finite.size:
        largest_entry = finite.max() or 1.0  # divided out, as its square may overflow
        root_mean_square = largest_entry * np.sqrt(np.mean((finite / largest_entry) ** 2))
        sizes = np.maximum(sizes, root_mean_square)
    return np.where(sizes > 0, sizes, 1.0)


def _largest_of_samples(array: np.ndarray) -> np.ndarray:
    """The largest entries (1, ...) of an array (n, ...) over n samples; a number stays as it is."""
    return array.max(axis=0, initial=0.0, keepdims=True) if array.ndim else array


def _largest_changes(changes: _Jacobian) -> _Jacobian:
    """The largest change of every output among the samples, and of every parameter's derivative."""
    return _Jacobian(
        [_largest_of_samples(array) for array in changes.outputs],
        {name: np.array(largest(array)) for name, array in changes.product.items()},
    )


def _roundings(expected: _Jacobian, eps: float, changes: _Jacobian | None = None) -> _Jacobian:
    """By how much rounding may change the outputs and derivatives that are ``expected``.

    That is 1,000 eps s, but at most s / 10, which a format of few digits would exceed. For an
    output s is its size, and for every derivative the size of the largest one.

    For an ill-conditioned module that is too little. ``changes`` are then those of :func:`moved`
    with h = sqrt(eps): rounding is amplified by change / h, and the bound is
    1,000 eps max(s, change / h), still at most s / 10. A change of more than s counts as s.
    """
    largest_derivative = max(map(largest, expected.product.values()), default=0.0) or 1.0
    sizes = _Jacobian(
        [_output_sizes(array) for array in expected.outputs],
        dict.fromkeys(expected.product, np.array(largest_derivative)),
    )
    if changes is None:
        return jax.tree.map(lambda size: min(_ROUNDINGS * eps, _COARSEST) * size, sizes)

    def allowed(size: np.ndarray, change: np.ndarray) -> np.ndarray:
        amplified = np.minimum(change, size) / step_of(eps)
        return np.minimum(_ROUNDINGS * eps * np.maximum(size, amplified), _COARSEST * size)

    return jax.tree.map(allowed, sizes, _largest_changes(changes))


# What is compiled here runs once or twice, so that most of the compiler's work would be lost.
@partial(
    jax.jit,
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    },
)
def _outputs_and_product(
    function: Any, params: Any, x: Any, cotangents: list[Any]
) -> tuple[list[Any], Any]:
    """The outputs of ``function(params, x)``, and u^T J in the structure of the parameters.

    ``cotangents`` is u, an array for each output.
    """

    def wide_outputs(p: Any) -> list[Any]:
        outputs = jax.tree.leaves(function(p, x))
        return [array.astype(jnp.result_type(float)) for array in outputs]

    with jax.default_matmul_precision("highest"):
        outputs, pullback = jax.vjp(wide_outputs, params)
        (gradient,) = pullback([u.astype(jnp.result_type(float)) for u in cotangents])
    return outputs, gradient


def _difference(computed: _Jacobian, expected: _Jacobian, allowed: _Jacobian) -> str:
    """A message where |computed - expected| > allowed, about one output or parameter, or "".

    Of the parameters it is the last one: a mistake in a layer changes the derivatives by all
    parameters before it.
    """
    triples = zip(computed.outputs, expected.outputs, allowed.outputs, strict=True)
    for number, (by_jax, by_torch, bound) in enumerate(triples):
        if by_jax.shape != by_torch.shape:
            return (
                f"its outputs have the shape {by_jax.shape}, and those of PyTorch {by_torch.shape}"
            )
        distance = apart(by_jax, by_torch)
        if (distance > bound).any():
            which = f"output {number}" if len(computed.outputs) > 1 else "its output"
            share = _percent(distance / _output_sizes(by_torch))
            return f"{which} differs from PyTorch's by {share} of its size"
    for name, by_torch in reversed(list(expected.product.items())):
        distance = apart(computed.product[name], by_torch)
        if (distance > allowed.product[name]).any():
            share = _percent(distance / (largest(by_torch) or 1.0))
            return f"the derivative by {name} differs from PyTorch's by {share} of its size"
    return ""


def _percent(distance: np.ndarray) -> str:
    """The largest of some relative distances as a percentage, for a message."""
    largest_distance = float(distance.max())
    return f"{100 * largest_distance:.2g}%" if np.isfinite(largest_distance) else "NaN or Inf"
