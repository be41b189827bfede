"""The null space that structure causes, against the singular values of the dense Jacobian.

Class of faults: a rank that structure does not allow is taken for the rank of J, so that an
eigenvalue of rounding is lambda_min, or an answer stays unresolved without need.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.tree_util import Partial

import gnjax
from gnjax.networks.network import parameter_names, restricted
from gnjax.networks.null_space.ranks import rank_bounds
from gnjax.networks.parameters import grouped, indices_of
from gnjax.operators.facts import rank_of
from tests.references import jacobian


class _Normalised(nnx.Module):
    """dense, a normalisation, an activation, dense."""

    def __init__(self, norm: nnx.Module, activation: Any, rngs: nnx.Rngs) -> None:
        self.before = nnx.Linear(4, 6, rngs=rngs)
        self.behind = nnx.Linear(6, 3, rngs=rngs)
        self.norm, self.activation = norm, activation

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.behind(self.activation(self.norm(self.before(x))))


class _Convolution(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.before = nnx.Conv(1, 4, (3, 3), rngs=rngs)
        self.behind = nnx.Linear(64, 2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.behind(nnx.relu(self.before(x)).reshape(len(x), -1))


def _layer_norm(activation: Any, **options: Any) -> nnx.Module:
    rngs = nnx.Rngs(0)
    return _Normalised(nnx.LayerNorm(6, rngs=rngs, **options), activation, rngs)


def _batch_norm(training: bool) -> nnx.Module:
    rngs = nnx.Rngs(0)
    model = _Normalised(nnx.BatchNorm(6, rngs=rngs), jnp.tanh, rngs)
    model.train() if training else model.eval()
    return model


def _mlp(activation: str) -> nnx.Module:
    return gnjax.models.MLP((4, 6, 5, 3), activation=activation, key=jax.random.key(0))


X = np.random.default_rng(0).standard_normal((60, 4))
IMAGES = np.random.default_rng(0).standard_normal((150, 4, 4, 1))

# A model, its inputs, its loss, and by how much the rank is below the number of parameters:
# one for each hidden unit of a ReLU; 6 x 6 + 5 x 5 - ... for linear layers, whose function has
# 3 x 4 + 3 numbers; the shift of all logits for 5 inputs and the bias; of all outputs before
# LayerNorm for 4 inputs and the bias; two for each unit before BatchNorm.
CASES = {
    "tanh": (lambda: _mlp("tanh"), X, "squared_error", 0),
    "relu": (lambda: _mlp("relu"), X, "squared_error", 11),
    "leaky relu": (lambda: _mlp("leaky_relu"), X, "squared_error", 11),
    "linear": (lambda: _mlp("linear"), X, "squared_error", 83 - 15),
    "relu and softmax": (lambda: _mlp("relu"), X, "cross_entropy", 11 + 6),
    "tanh and softmax": (lambda: _mlp("tanh"), X, "cross_entropy", 6),
    "layer norm": (lambda: _layer_norm(jnp.tanh), X, "squared_error", 5),
    "layer norm and relu": (lambda: _layer_norm(nnx.relu), X, "squared_error", 5 + 6),
    "batch norm in training": (lambda: _batch_norm(True), X, "squared_error", 12),
    "batch norm in evaluation": (lambda: _batch_norm(False), X, "squared_error", 12),
    "convolution": (lambda: _Convolution(nnx.Rngs(0)), IMAGES, "squared_error", 4),
}


def _case(name: str) -> tuple[nnx.Module, np.ndarray, str, int]:
    make, *rest = CASES[name]
    return make(), *rest


def _null(net: Any) -> int:
    return net.parameters - rank_bounds(net, [range(len(net.leaf_indices))])[0].value


def _singular_values(op: Any) -> np.ndarray:
    return np.linalg.svd(op.factor(), compute_uv=False)


@pytest.mark.parametrize("name", CASES)
def test_the_rank_is_the_parameters_less_the_null_space(name: str) -> None:
    model, x, loss, null = _case(name)
    op = gnjax.gauss_newton(model, x, loss=loss)
    assert _null(op.net) == null
    values = _singular_values(op)
    assert rank_of(op).value == (values > 1e-10 * values[0]).sum() == op.net.parameters - null
    kappa = gnjax.condition_number(op)
    assert kappa.resolved
    assert kappa.rank == rank_of(op).value
    expected = (values[0] / values[rank_of(op).value - 1]) ** 2
    assert kappa.interval[0] <= expected * (1 + 1e-6)
    assert kappa.interval[1] >= expected * (1 - 1e-6)


@pytest.mark.parametrize(
    ("activation", "options"),
    [
        (jnp.tanh, {"epsilon": 1e-12}),
        (jnp.tanh, {"epsilon": 1e-12, "use_fast_variance": False}),
        (jax.nn.softplus, {}),
        (jax.nn.gelu, {}),
    ],
)
def test_what_holds_only_nearly_is_no_null_space(activation: Any, options: dict) -> None:
    """A small epsilon under the root breaks the scale of weights before LayerNorm, but little."""
    assert _null(gnjax.gauss_newton(_layer_norm(activation, **options), X).net) == 5


def test_what_holds_only_here_is_no_null_space() -> None:
    """softplus(z) is z up to 1e-17 near z = 40: units can be exchanged here, but not elsewhere."""

    def apply(params: Any, x: jax.Array) -> jax.Array:
        hidden = jax.nn.softplus(x @ params["a"]["kernel"] + params["a"]["bias"][None])
        return hidden @ params["b"]["kernel"]

    rng = np.random.default_rng(2)
    layers = {
        "a": {"kernel": rng.standard_normal((4, 5)), "bias": np.full(5, 40.0)},
        "b": {"kernel": rng.standard_normal((5, 2))},
    }
    assert _null(gnjax.gauss_newton((apply, layers), X).net) == 0


@pytest.mark.parametrize("activation", ["tanh", "gelu"])
@pytest.mark.parametrize("factor", [1e-6, 1e-9, 1e3])
def test_units_that_look_linear_or_dead_are_parameters(activation: str, factor: float) -> None:
    """tanh(z) is z up to z^3, and 1 or -1 far out; GELU underflows to zero there."""
    model = gnjax.models.MLP((4, 6, 3), activation=activation, key=jax.random.key(0))
    for layer in (model.dense1, model.dense2):
        layer.kernel[...] = layer.kernel[...] * factor
        layer.bias[...] = layer.bias[...] * factor - (factor if factor > 1 else 0.0)
    assert _null(gnjax.gauss_newton(model, X).net) == 0


@pytest.mark.parametrize("offset", [1e8, 1.6e9])
def test_what_rounding_hides_at_all_parameters_is_no_null_space(offset: float) -> None:
    """Time stamps: powers of z / offset tell units apart, and rounding hides all but the first."""
    rng = np.random.default_rng(1)
    model = gnjax.models.MLP((4, 6, 3), activation="tanh", key=jax.random.key(0))
    model.dense1.kernel[...] = model.dense1.kernel[...] / offset
    kappa = gnjax.condition_number(gnjax.gauss_newton(model, offset + rng.standard_normal(X.shape)))
    assert not kappa.resolved
    assert kappa.rank < 51 == rank_of(gnjax.gauss_newton(model, offset + X)).value


def test_a_network_that_sorts_has_the_rank_that_its_shape_allows() -> None:
    """The derivative of a sort moves integers beside the numbers, which no algebra follows."""
    rng = np.random.default_rng(0)
    params = [jnp.asarray(rng.standard_normal(shape)) for shape in ((3, 3), (3, 2))]
    op = gnjax.ntk((lambda p, x: jnp.sort(x @ p[0]) @ p[1], params), rng.standard_normal((4, 3)))
    found = gnjax.condition_number(op)
    assert op.facts().rank().value == 8
    assert found.rank == np.linalg.matrix_rank(np.asarray(op.as_matrix()))


def test_samples_outside_of_a_table_have_the_rank_of_what_they_read() -> None:
    """Their rows of J are far smaller, and no rounding: they read 0.5 where the table has ended."""
    rng = np.random.default_rng(0)
    params = {"e": rng.standard_normal((5, 3)), "o": rng.standard_normal((3, 2))}
    scale = np.array([1, 1, 1, 1e-16, 1e-16, 1])[:, None]
    data = {"t": np.array([0, 1, 2, 9, 9, 3]), "s": scale}

    def apply(p: Any, data: Any) -> jax.Array:
        return data["s"] * (p["e"].at[data["t"]].get(mode="fill", fill_value=0.5) @ p["o"])

    for make in (gnjax.gauss_newton, gnjax.ntk):
        kappa = gnjax.condition_number(make((apply, params), data))
        assert not kappa.resolved
        assert rank_of(make((apply, params), data)).value >= 10  # by exact fractions


def test_units_that_no_sample_wakes_are_no_parameters() -> None:
    model = gnjax.models.MLP((4, 6, 3), activation="relu", key=jax.random.key(0))
    model.dense1.bias[...] = jnp.asarray([-100.0, 0, 0, 0, 0, 0])
    op = gnjax.gauss_newton(model, X)
    # Four weights and a bias into the dead unit, three weights out of it; a scale of each other.
    assert _null(op.net) == 8 + 5
    assert rank_of(op).value == (_singular_values(op) > 1e-10 * _singular_values(op)[0]).sum()


def test_an_expert_that_few_samples_use_is_a_parameter() -> None:
    """The outputs of all samples are compared: one sample of 60 uses the second expert."""

    def apply(params: Any, x: jax.Array) -> jax.Array:
        experts = jnp.stack([jnp.tanh(x @ w + b[None]) for w, b in params])
        return jnp.where((x[:, :1] > np.sort(X[:, 0])[-2]), experts[1], experts[0])

    rng = np.random.default_rng(1)
    params = [(rng.standard_normal((4, 2)), rng.standard_normal(2)) for _ in range(2)]
    assert _null(gnjax.gauss_newton((apply, params), X).net) == 0


def test_parameters_that_are_held_fixed_compensate_nothing() -> None:
    model = _mlp("relu")
    op = gnjax.gauss_newton(model, X, only=["dense1/*"])
    assert _null(op.net) == 0
    op = gnjax.gauss_newton(model, X, only=["dense1/*", "dense2/*"])
    assert rank_of(op).value == 30 + 35 - 6


def _branch(factors: Any, params: Any, x: jax.Array) -> jax.Array:
    """A residual network: its branch and its two outputs have factors of their own."""
    h = x @ params["stem"]["kernel"]
    branch = jnp.tanh(h @ params["inner"]["kernel"]) @ params["outer"]["kernel"]
    return (h + factors[0] * branch) @ params["head"]["kernel"] * factors[1:][None]


def _heads(factors: Any, params: Any, x: jax.Array) -> jax.Array:
    """Two networks side by side, each with a hidden layer and an output of its own size."""
    parts = [
        jax.nn.softplus(x @ params[f"hidden{i}"]["kernel"]) @ params[f"head{i}"]["kernel"]
        for i in range(2)
    ]
    return jnp.concatenate(parts, axis=1) * factors[1:][None]


_UNEQUAL = {
    "branch": (_branch, {"stem": (3, 4), "inner": (4, 3), "outer": (3, 4), "head": (4, 2)}),
    "heads": (_heads, {"hidden0": (3, 2), "hidden1": (3, 2), "head0": (2, 1), "head1": (2, 1)}),
}


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(list(_UNEQUAL)),
    st.sampled_from(["dense", "factored", "inverse"]),
    st.integers(0, 10**6),
    st.floats(-12, 0),
    st.floats(-15, 15),
    st.floats(-15, 15),
    st.booleans(),
)
def test_the_rank_is_that_of_parts_of_one_size(
    name: str, method: str, seed: int, branch: float, first: float, second: float, single: bool
) -> None:
    """Factors of outputs and of a branch change singular values, and not the rank.

    In float32 they are smaller, as norms beyond 1e19 are refused there.
    """
    if single:
        first, second = first / 2, second / 2
    function, shapes = _UNEQUAL[name]
    rng, dtype = np.random.default_rng(seed), np.float32 if single else np.float64
    params = {
        layer: {"kernel": (rng.standard_normal(shape) / shape[0] ** 0.5).astype(dtype)}
        for layer, shape in shapes.items()
    }
    x = rng.standard_normal((20, 3)).astype(dtype)
    wide, inputs = jax.tree.map(lambda array: array.astype(float), (params, x))
    j = np.asarray(jacobian(partial(function, np.ones(3)), wide, inputs))
    values = np.linalg.svd(j, compute_uv=False)
    rank = int((values > 1e-11 * values[0]).sum())
    factors = np.array([10**branch, 10**first, 10**second], dtype)
    with jax.enable_x64(not single), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that JAX is in 32-bit mode
        op = gnjax.gauss_newton((Partial(function, factors), params), x)
        assert rank_of(op).value == rank
        found = gnjax.condition_number(op, method=method)
        assert found.rank == rank or not found.resolved, str(found)


@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["relu", "tanh", "linear"]),
    st.sampled_from(["squared_error", "cross_entropy"]),
    st.floats(-3, 3),
)
def test_the_bound_is_never_below_the_rank_of_random_networks(
    seed: int, activation: str, loss: str, decades: float
) -> None:
    rng = np.random.default_rng(seed)
    model = gnjax.models.MLP((3, 4, 3, 2), activation=activation, key=jax.random.key(seed))
    for layer in (model.dense1, model.dense2, model.dense3):
        layer.kernel[...] = layer.kernel[...] * 10 ** (decades * rng.uniform(-1, 1))
    op = gnjax.gauss_newton(model, rng.standard_normal((40, 3)), loss=loss)
    values = _singular_values(op)
    error = op.factorisation().error().value + 1e-15 * 80 * values[0]
    assert (values > error).sum() <= rank_of(op).value


@pytest.mark.parametrize("name", ["relu and softmax", "layer norm", "batch norm in training"])
def test_parts_of_the_parameters_have_the_null_spaces_of_networks_of_them_alone(name: str) -> None:
    model, x, loss, _ = _case(name)
    net = gnjax.gauss_newton(model, x, loss=loss).net
    groups = list(grouped(parameter_names(net), "layer").values())
    groups += [[0, len(net.leaf_indices) - 1], list(range(len(net.leaf_indices)))]
    sizes = [len(indices_of(net.counts, group)) for group in groups]
    bounds = rank_bounds(net, groups)
    found = [size - bound.value for size, bound in zip(sizes, bounds, strict=True)]
    assert found == [_null(restricted(net, group)) for group in groups]
    jacobian = gnjax.gauss_newton(model, x, loss=loss).factor().T
    for group, null in zip(groups, found, strict=True):
        columns = jacobian[:, indices_of(net.counts, group)]
        values = np.linalg.svd(columns, compute_uv=False)
        assert columns.shape[1] - null == (values > 1e-10 * values[0]).sum()
