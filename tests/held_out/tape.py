"""Arrays of many digits that remember how they were made: reverse differentiation by hand.

An ``Array`` holds numbers of Arb, which carry their own rounding errors. ``gradients`` goes back
through what it was computed from. Only what small networks need is here, and all of it is written
from the definitions of calculus: nothing is shared with JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from tests.held_out.many_digits import FACTOR_DIGITS

_KINK = 1e-100  # where differences are taken, an input of a ReLU that small is a step from zero
Pull = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Array:
    """Numbers, and for each array that they were computed from the way back to its gradient."""

    value: np.ndarray  # of flint.arb
    parents: tuple[tuple[Array, Pull], ...] = ()

    __array_priority__ = 100  # a numpy array on the left leaves the operation to this class

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def __add__(self, other: Any) -> Array:
        b = lift(other)
        return Array(
            self.value + b.value,
            ((self, lambda g: _summed(g, self.shape)), (b, lambda g: _summed(g, b.shape))),
        )

    def __mul__(self, other: Any) -> Array:
        b = lift(other)
        return Array(
            self.value * b.value,
            (
                (self, lambda g: _summed(g * b.value, self.shape)),
                (b, lambda g: _summed(g * self.value, b.shape)),
            ),
        )

    def __neg__(self) -> Array:
        return Array(-self.value, ((self, lambda g: -g),))

    def __sub__(self, other: Any) -> Array:
        return self + -lift(other)

    def __truediv__(self, other: Any) -> Array:
        return self * elementwise(lift(other), lambda t: 1 / t, lambda t: -1 / (t * t))

    def __matmul__(self, other: Array) -> Array:
        return Array(
            np.matmul(self.value, other.value),
            (
                (self, lambda g: _summed(np.matmul(g, _turned(other.value)), self.shape)),
                (other, lambda g: _summed(np.matmul(_turned(self.value), g), other.shape)),
            ),
        )

    def reshape(self, *shape: int) -> Array:
        return Array(self.value.reshape(*shape), ((self, lambda g: g.reshape(self.shape)),))

    def swapaxes(self, a: int, b: int) -> Array:
        return Array(self.value.swapaxes(a, b), ((self, lambda g: g.swapaxes(a, b)),))

    def sum(self, axis: int, keepdims: bool = False) -> Array:
        def spread(g: np.ndarray) -> np.ndarray:
            kept = g if keepdims else np.expand_dims(g, axis)
            return kept + _zeros(self.shape)

        return Array(self.value.sum(axis=axis, keepdims=keepdims), ((self, spread),))

    def mean(self, axis: int, keepdims: bool = False) -> Array:
        return self.sum(axis, keepdims) / flint.arb(self.shape[axis])

    def take(self, places: np.ndarray) -> Array:
        """Entries of the array laid out flat, each as often as it is asked for."""

        def scatter(g: np.ndarray) -> np.ndarray:
            total = _zeros((self.value.size,))
            np.add.at(total, places.ravel(), g.ravel())
            return total.reshape(self.shape)

        return Array(self.value.ravel()[places], ((self, scatter),))


def lift(number: Any) -> Array:
    """Floats, taken exactly, as an Array that nothing depends on."""
    if isinstance(number, Array):
        return number
    return Array(np.vectorize(flint.arb, otypes=[object])(np.asarray(number, dtype=object)))


def elementwise(x: Array, f: Callable, derivative: Callable) -> Array:
    slopes = np.vectorize(derivative, otypes=[object])
    value = np.vectorize(f, otypes=[object])(x.value)
    return Array(value, ((x, lambda g: g * slopes(x.value)),))


def gradients(output: Array, slope: np.ndarray, inputs: list[Array]) -> list[np.ndarray]:
    """The gradient of sum(slope * output) by every one of the inputs."""
    collected = {id(output): slope}
    for node in reversed(_order(output)):
        gradient = collected.get(id(node))
        for parent, pull in node.parents if gradient is not None else ():
            part = pull(gradient)
            held = collected.get(id(parent))
            collected[id(parent)] = part if held is None else held + part
    return [collected.get(id(node), _zeros(node.shape)) for node in inputs]


def _order(output: Array) -> list[Array]:
    """Every array that the output was computed from, parents first."""
    order: list[Array] = []
    seen: set[int] = set()

    def visit(node: Array) -> None:
        if id(node) in seen:
            return
        seen.add(id(node))
        for parent, _ in node.parents:
            visit(parent)
        order.append(node)

    visit(output)
    return order


def _zeros(shape: tuple[int, ...]) -> np.ndarray:
    return np.full(shape, flint.arb(0), dtype=object)


def _turned(value: np.ndarray) -> np.ndarray:
    return value.swapaxes(-1, -2)


def _summed(gradient: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The gradient of what was broadcast, summed over its copies."""
    gradient = np.asarray(gradient, dtype=object)
    while gradient.ndim > len(shape):
        gradient = np.asarray(gradient.sum(axis=0), dtype=object)
    for axis, length in enumerate(shape):
        if length == 1 and gradient.shape[axis] != 1:
            gradient = gradient.sum(axis=axis, keepdims=True)
    return gradient


# The functions of networks, each with its derivative in a form that does not cancel.


def relu(x: Array) -> Array:
    """max(0, x), with derivative 0 at 0, also where the step of a difference has moved it there."""
    kink = _KINK if flint.ctx.dps > FACTOR_DIGITS else 0
    return elementwise(
        x, lambda t: t if t > kink else flint.arb(0), lambda t: flint.arb(int(t > kink))
    )


def tanh(x: Array) -> Array:
    return elementwise(x, lambda t: t.tanh(), lambda t: t.cosh() ** -2)


def exp(x: Array) -> Array:
    return elementwise(x, lambda t: t.exp(), lambda t: t.exp())


def rsqrt(x: Array) -> Array:
    return elementwise(x, lambda t: t.rsqrt(), lambda t: -(t.rsqrt() ** 3) / 2)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), with derivative 1 / ((1 + exp(x)) (1 + exp(-x)))."""
    return elementwise(
        x, lambda t: 1 / (1 + (-t).exp()), lambda t: 1 / ((1 + t.exp()) * (1 + (-t).exp()))
    )


def gelu(x: Array) -> Array:
    """x Phi(x), with Phi by the complementary error function: x erfc(-c x) / 2, c = sqrt(1/2)."""
    c = flint.arb(float(np.sqrt(0.5)))  # the constant of the program, which is a float

    def slope(t: flint.arb) -> flint.arb:
        bell = (-(c * t) * (c * t)).exp() / flint.arb.pi().sqrt()
        return (-c * t).erfc() / 2 + t * c * bell

    return elementwise(x, lambda t: t * (-c * t).erfc() / 2, slope)


def gelu_tanh(x: Array) -> Array:
    """x (1 + tanh u) / 2, u = c (x + a x^3), where (1 + tanh u) / 2 is the logistic of 2u."""
    c, a = flint.arb(float(np.sqrt(2 / np.pi))), flint.arb(0.044715)

    def logistic(t: flint.arb) -> flint.arb:
        return 1 / (1 + (-2 * c * (t + a * t**3)).exp())

    def slope(t: flint.arb) -> flint.arb:
        u = c * (t + a * t**3)
        inner = c * (1 + 3 * a * t * t)
        return logistic(t) + t * inner * u.cosh() ** -2 / 2

    return elementwise(x, lambda t: t * logistic(t), slope)


def softmax(x: Array) -> Array:
    """Along the last axis; numbers of Arb do not overflow, so that nothing is subtracted."""
    weights = exp(x)
    return weights / weights.sum(axis=-1, keepdims=True)


def convolution(x: Array, kernel: Array) -> Array:
    """x (n, a, b, c) with a kernel (h, w, c, m), no padding: (n, a - h + 1, b - w + 1, m)."""
    n, rows, columns, channels = x.shape
    height, width, _, filters = kernel.shape
    places = np.arange(n * rows * columns * channels).reshape(x.shape)
    patches = np.lib.stride_tricks.sliding_window_view(places, (height, width), axis=(1, 2))
    patches = patches.transpose(0, 1, 2, 4, 5, 3)  # (n, a', b', h, w, c)
    shape = patches.shape[:3]
    flat = x.take(patches.reshape(-1, height * width * channels))
    product = flat @ kernel.reshape(height * width * channels, filters)
    return product.reshape(*shape, filters)


def same(x: Array) -> Array:
    """What a change of precision is in exact arithmetic."""
    return x
