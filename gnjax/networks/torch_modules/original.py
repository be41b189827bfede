"""A module of PyTorch as it is: its outputs, and products with its Jacobian by autograd."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gnjax.networks.arguments.refusals import RAISED, Refused, first_line
from gnjax.networks.torch_modules.arrays import as_float64, tensor_of, torch


class Original:
    """A copy of a module in float64 at given parameters and samples.

    Args:
      module: the module, which stays as it is.
      parameters: the parameters as arrays, by their paths in the module.
      leaves: the arrays of x, the samples.
      forward: (module, tensors of the samples) to the tensors that count as outputs.
      widens: whether everything that floats becomes float64; the module has its own types if not.
    """

    def __init__(
        self,
        module: Any,
        parameters: Mapping[str, Any],
        leaves: Sequence[Any],
        forward: Callable[[Any, Sequence[Any]], list[Any]],
        *,
        widens: bool,
    ) -> None:
        """Copy the module and set the copy's parameters; the class describes the arguments."""
        with _differentiating():  # tensors made in PyTorch's inference mode never get derivatives
            self._module = in_format(module, torch().float64) if widens else copy.deepcopy(module)
            named = dict(self._module.named_parameters())
            self._trained = {name: named[name] for name in parameters}
            with torch().no_grad():
                for name, tensor in self._trained.items():
                    tensor.copy_(tensor_of(parameters[name], tensor.dtype))
        floating = next(iter(self._trained.values())).dtype
        self._leaves = [tensor_of(leaf, floating) for leaf in leaves]
        self._forward = forward
        self._tensors: list[Any] = []

    def outputs(self) -> list[np.ndarray]:
        """The outputs of the module, as float64; their graph is kept for :meth:`product`."""
        self._tensors = self._called()
        return [as_float64(tensor) for tensor in self._tensors]

    def product(self, cotangents: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """u^T J for the Jacobian J of the last :meth:`outputs`, a dict by parameters' paths.

        ``cotangents`` is u, an array for each output.
        """
        tensors, self._tensors = self._tensors, []  # the graph is freed afterwards
        with _differentiating(), _as_refusal("PyTorch cannot differentiate the module"):
            derivatives = gradients(tensors, list(self._trained.values()), cotangents)
        return dict(zip(self._trained, derivatives, strict=True))

    def check_again(self, outputs: Sequence[np.ndarray]) -> None:
        """Refuse a module that returns other than the first ``outputs`` when called once more."""
        again = [as_float64(tensor) for tensor in self._called()]
        pairs = zip(again, outputs, strict=True)
        if all(np.allclose(a, b, rtol=1e-6, atol=1e-300, equal_nan=True) for a, b in pairs):
            return
        msg = (
            "the module has two outputs for one x: it draws random numbers (by torch, numpy or "
            "random) or changes its own numbers in forward, so that it is no function of its "
            "parameters; draw once and keep the numbers in a buffer, or change them outside of "
            "forward"
        )
        raise Refused(msg)

    def _called(self) -> list[Any]:
        """The output tensors of one call of the module."""
        with _differentiating(), _as_refusal("the module cannot be called"):
            copies = [leaf.clone() for leaf in self._leaves]  # a module may write into its input
            return self._forward(self._module, copies)


def gradients(
    outputs: Sequence[Any], inputs: Sequence[Any], directions: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The sum over the outputs of u^T (d output / d input), an array for every input.

    PyTorch's autograd computes it. ``outputs`` and ``inputs`` are tensors of PyTorch, and
    ``directions`` has the array u for each output. An output that depends on no input adds zero.
    """
    pairs = [
        (tensor, torch().from_numpy(u).to(tensor.dtype))
        for tensor, u in zip(outputs, directions, strict=True)
        if tensor.requires_grad
    ]
    if not pairs:
        return [np.zeros(tuple(tensor.shape)) for tensor in inputs]
    derivatives = torch().autograd.grad(
        [tensor for tensor, _ in pairs],
        list(inputs),
        [u for _, u in pairs],
        allow_unused=True,
        materialize_grads=True,
    )
    return [as_float64(tensor) for tensor in derivatives]


def in_format(module: Any, floating: Any) -> Any:
    """A copy of a module whose floating numbers have this type; complex ones stay as they are."""
    return copy.deepcopy(module)._apply(  # what Module.double does
        lambda tensor: tensor.to(floating) if tensor.is_floating_point() else tensor
    )


@contextmanager
def _differentiating() -> Iterator[None]:
    """A context in which PyTorch records derivatives, whatever the caller has switched off."""
    with torch().inference_mode(mode=False), torch().enable_grad():
        yield


@contextmanager
def same_numbers_afterwards() -> Iterator[None]:
    """A context that sets the random generators of Python, NumPy and PyTorch back at its end.

    So the caller draws the same numbers afterwards as if nothing had been drawn inside.
    """
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch().random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002


@contextmanager
def _as_refusal(what: str) -> Iterator[None]:
    """A context in which an error of PyTorch becomes one sentence that starts with ``what``."""
    try:
        yield
    except Refused:
        raise
    except RAISED as error:
        msg = f"{what}: {first_line(error)}"
        raise Refused(msg) from error
