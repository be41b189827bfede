"""What was compiled for a function that is written down anew in every call is forgotten.

The class: a cache of the process that holds a caller's functions. A compiled program holds the
model and the loss that it was made of, and there is one for every pair that ever came.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import gnjax
from gnjax.numerics.bounded_jit import bounded_jit, by_shapes
from gnjax.papers.training.descent import descend

FEW = 16  # functions whose programs are remembered

_RNG = np.random.default_rng(0)
X, Y = _RNG.standard_normal((4, 3)), _RNG.standard_normal((4, 2))
W = _RNG.standard_normal((3, 2))


def fresh_loss() -> Callable[..., jax.Array]:
    return lambda f, y, mark=object(): jnp.cosh(f - y).sum()  # noqa: B008  a new one every time


def model(params: Any, x: Any) -> Any:
    return jnp.tanh(x @ params)


def network(kind: Callable[..., Any], loss: Any) -> Any:
    return kind((model, W), X, y=Y, loss=loss)


CALLS: dict[str, Callable[[Any], Any]] = {
    "kappa": lambda loss: gnjax.condition_number(network(gnjax.gauss_newton, loss)),
    "trace of a Hessian": lambda loss: gnjax.trace(network(gnjax.hessian, loss), probes=2),
    "matrix of a Hessian": lambda loss: network(gnjax.hessian, loss).as_matrix(),
    "kernel": lambda loss: gnjax.ntk((lambda p, x, mark=loss: model(p, x), W), X).as_matrix(),
    "descent": lambda loss: descend(
        lambda params, data, mark=loss: jnp.square(model(params, data)).sum(), W, X, keep=(0, 2)
    ),
}


def programs() -> int:
    return len(jax.local_devices()[0].client.live_executables())


def programs_of_more(call: Callable[[Any], Any]) -> int:
    """How many programs more there are after some calls, once there were many."""
    counts = []
    for calls in (FEW + 2, 4):
        for _ in range(calls):
            call(fresh_loss())
        gc.collect()
        counts.append(programs())
    return counts[1] - counts[0]


def test_a_fresh_function_of_parameters() -> None:
    def call(loss: Any) -> None:
        gnjax.eigenvalues(gnjax.hessian_of(lambda p: loss(p, 0.5), np.arange(3.0)))

    assert programs_of_more(call) <= 0


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_fresh_loss_or_model(name: str) -> None:
    assert programs_of_more(CALLS[name]) <= 0


def test_the_same_function_is_compiled_once() -> None:
    """Also after a few others, for other numbers, and for another array of the same shape."""
    traced = []

    @bounded_jit(static_argnames=("twice",))
    def value(function: Any, x: Any, *, twice: bool = False) -> Any:
        traced.append(function)
        return function(x) * (2 if twice else 1)

    first = Partial(jnp.sin)
    others = [Partial(lambda x, power=power: x**power) for power in range(FEW - 1)]
    for function in (first, *others, first, Partial(jnp.sin)):
        value(function, jnp.ones(2))
    assert len(traced) == FEW
    np.testing.assert_allclose(value(first, jnp.ones(2), twice=True), 2 * np.sin(1.0))
    assert value.of(first).eval_shape(first, jnp.ones(2)).shape == (2,)
    assert len(traced) == FEW + 1


def test_parts_of_one_model_displace_nothing() -> None:
    """A model has more layers than functions are remembered, and each has its own structure."""
    traced = []

    @bounded_jit
    def value(op: Any) -> Any:
        traced.append(op)
        return op[0](op[1][0])

    parts = [(Partial(jnp.sin), (np.ones(2),) * number) for number in range(1, 2 * FEW)]
    for part in parts + parts:
        assert value.of(part).eval_shape(part).shape == (2,)
    assert len(traced) == len(parts)


def test_two_losses_are_never_taken_for_each_other() -> None:
    """Forgotten ones that come again have the values that they had."""
    makers = [lambda p, power=power: (p**power).sum() for power in range(2, FEW + 6)]
    point = np.array([1.0, 2.0])
    for _ in range(2):
        for power, loss in enumerate(makers, start=2):
            matrix = np.asarray(gnjax.hessian_of(loss, point).as_matrix())
            exact = power * (power - 1) * point ** (power - 2)
            np.testing.assert_allclose(np.diagonal(matrix), exact)


def test_threads_have_their_own_functions() -> None:
    """Each of several threads asks with its own functions at the same time."""

    @bounded_jit
    def value(function: Any, x: Any) -> Any:
        return function(x)

    functions = [Partial(lambda x, power=power: x * power) for power in range(3)]

    def work(power: int) -> bool:
        return all(float(value(functions[power], 1.0)) == power for _ in range(300))

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(work, range(3)))


def test_functions_without_a_hash_are_compared_by_equality() -> None:
    """Class: a Flax module with a list of layers, or keywords with a list, has no hash."""

    class Model:
        def __init__(self, factors: list[float]) -> None:
            self.factors = factors

        __hash__ = None

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Model) and self.factors == other.factors

        def __call__(self, p, x):
            return self.factors[0] * x @ p

    params, x = np.ones((3, 2)), np.eye(3)
    traces = [
        float(gnjax.trace(gnjax.ntk((Model([factor]), params), x)).value)
        for factor in (1.0, 2.0, 1.0)
    ]
    assert traces == pytest.approx([6.0, 24.0, 6.0])


def test_what_depends_on_shapes_alone_is_asked_once_for_each() -> None:
    """Other numbers are no other question; other functions, types and plain values are."""
    asked = []

    @by_shapes
    def axes(function: Any, x: Any, kind: str) -> int:
        asked.append((function, kind))
        return x.ndim

    sin, cos = Partial(jnp.sin), Partial(jnp.cos)
    for x in (np.ones(2), np.zeros(2), jnp.ones(2)):
        assert axes(sin, x, "a") == 1
    assert len(asked) == 1
    others = (cos, np.ones(2), "a"), (sin, np.ones((2, 1)), "a"), (sin, np.ones(2), "b")
    for count, other in enumerate((*others, (sin, np.ones(2, np.float32), "a")), start=2):
        assert axes(*other) == other[1].ndim
        assert len(asked) == count
    for size in range(3, FEW + 3):
        axes(sin, np.ones(size), "a")
    axes(sin, np.ones(2), "a")  # forgotten since
    assert len(asked) == 5 + FEW + 1


def test_models_of_the_same_shapes_are_not_taken_for_each_other() -> None:
    """In the facts that are read from their equations."""
    deep: Callable[..., Any] = lambda p, x: jnp.tanh(jnp.sin(x @ p))  # noqa: E731
    conditional: Callable[..., Any] = lambda p, x: jnp.maximum(x @ p, 0.1)  # noqa: E731
    for _ in range(2):
        nets = [gnjax.ntk((apply, W), X).net for apply in (model, deep, conditional)]
        written = [net.written for net in nets]
        assert written[0] < written[1]
        assert len({jax.tree.structure(net.apply) for net in nets}) == 3
