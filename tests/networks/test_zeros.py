"""Columns and rows of the Jacobian that are zero, against singular values of a dense Jacobian.

Class of faults: what is exactly zero (a factor that starts at zero, dead units, words that nobody
says, outputs that nothing moves) is counted as if it could have rank, so that an answer stays
unresolved without need; or what only rounding makes zero is taken for exact, so that a rank is
called analytic and is too small.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.networks.null_space.ranks import ALGEBRA, rank_bound_of_batches
from gnjax.operators.facts import rank_of
from tests.references import jacobian

pytestmark = pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 4))


def _dense(*sizes: int, seed: int = 1, bias: bool = True) -> dict[str, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    layers = {}
    for i, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        layers[f"layer{i}"] = {"kernel": rng.standard_normal((rows, columns)) / rows**0.5}
        if bias:
            layers[f"layer{i}"]["bias"] = 0.3 * rng.standard_normal(columns)
    return layers


def _affine(layer: Any, x: jax.Array) -> jax.Array:
    shift = layer["bias"][None] if "bias" in layer else 0.0
    return x @ layer["kernel"] + shift


def _mlp(activation: Any) -> Any:
    def apply(params: Any, x: jax.Array) -> jax.Array:
        for i in range(len(params) - 1):
            x = activation(_affine(params[f"layer{i}"], x))
        return _affine(params[f"layer{len(params) - 1}"], x)

    return apply


def _lora() -> tuple[Any, Any, Any, dict[str, Any]]:
    """W + A B with B = 0, of which A and B are trained; of J only the columns of B are not zero."""

    def apply(params: Any, x: jax.Array) -> jax.Array:
        hidden = jnp.tanh(x @ params["w0"])
        return hidden @ params["w1"] + (hidden @ params["a"]) @ params["b"]

    params = {
        "w0": RNG.standard_normal((4, 20)),
        "w1": RNG.standard_normal((20, 5)),
        "a": RNG.standard_normal((20, 2)),
        "b": np.zeros((2, 5)),
    }
    return apply, params, X[:4], {"only": ["a", "b"]}


def _zero_head() -> tuple[Any, Any, Any, dict[str, Any]]:
    params = _dense(4, 30, 3, 5)
    params["layer2"]["kernel"] = np.zeros((3, 5))
    return _mlp(jnp.tanh), params, X, {}


def _zero_residual() -> tuple[Any, Any, Any, dict[str, Any]]:
    """x + gamma tanh(W x) with gamma = 0: of J the columns of gamma and of the last layer."""

    def apply(params: Any, x: jax.Array) -> jax.Array:
        branch = jnp.tanh(_affine(params["branch"], x)) @ params["inner"]["kernel"]
        return (x + params["norm"]["gamma"][None] * branch) @ params["head"]["kernel"]

    params = {
        "branch": _dense(4, 30)["layer0"],
        "inner": {"kernel": RNG.standard_normal((30, 4))},
        "norm": {"gamma": np.zeros(4)},
        "head": {"kernel": RNG.standard_normal((4, 5))},
    }
    return apply, params, X, {"only": ["branch/*", "inner/*", "norm/*"]}


def _dead_units() -> tuple[Any, Any, Any, dict[str, Any]]:
    """Of 20 ReLU units two are awake."""
    params = _dense(4, 20, 6)
    params["layer0"]["bias"] = np.array([0.1, -0.1] + [-100.0] * 18)
    return _mlp(jax.nn.relu), params, np.random.default_rng(2).standard_normal((18, 4)), {}


def _words() -> tuple[Any, Any, Any, dict[str, Any]]:
    """Two words of 40 are said."""

    def apply(params: Any, tokens: jax.Array) -> jax.Array:
        return jnp.tanh(params["words"][tokens].reshape(len(tokens), -1) @ params["out"])

    params = {"words": RNG.standard_normal((40, 3)), "out": RNG.standard_normal((9, 4))}
    tokens = np.array([[3, 3, 8], [8, 3, 8], [3, 8, 3], [8, 8, 8]])
    return apply, params, tokens, {"only": ["words"]}


def _outputs_that_nothing_moves() -> tuple[Any, Any, Any, dict[str, Any]]:
    """Half of the outputs, and all of those of a sample that is zero in a network of no bias."""

    def apply(params: Any, x: jax.Array) -> jax.Array:
        return _mlp(jnp.tanh)(params, x) * jnp.asarray([1.0, 0, 1, 0, 0])[None]

    x = X.copy()
    x[2] = 0.0
    return apply, _dense(4, 30, 5, bias=False), x, {}


CASES = {
    "LoRA": _lora,
    "a last layer of zeros": _zero_head,
    "a residual branch behind zero": _zero_residual,
    "dead units": _dead_units,
    "unused words": _words,
    "outputs that nothing moves": _outputs_that_nothing_moves,
}


def _truth(apply: Any, params: Any, x: Any, only: Any) -> tuple[float, int]:
    """kappa and the rank by a Jacobian in float64 of the plain function."""
    some = [key for key in params if only is None or {key, f"{key}/*"} & set(only)]

    def chosen(part: Any, inputs: Any) -> jax.Array:
        return apply({**params, **part}, inputs)

    j = np.asarray(jacobian(chosen, {key: params[key] for key in some}, x))
    values = np.linalg.svd(j, compute_uv=False)
    rank = int((values > 1e-10 * values[0]).sum())
    return float((values[0] / values[rank - 1]) ** 2), rank


@pytest.mark.parametrize("name", CASES)
def test_zeros_of_the_jacobian_are_structure(name: str) -> None:
    """The rank follows, by what kind of evidence the certificate says, on both sides of J."""
    apply, params, x, options = CASES[name]()
    kappa, rank = _truth(apply, params, x, options.get("only"))
    assert rank < min(len(x) * 5, sum(leaf.size for leaf in jax.tree.leaves(params)))
    for make in (gnjax.gauss_newton, gnjax.ntk):
        found = gnjax.condition_number(make((apply, params), x, **options))
        assert (found.rank, found.rank_source, found.resolved) == (rank, "analytic", True), str(
            found
        )
        # The singular values of the reference have an error of a few eps of the largest.
        assert found.interval[0] * (1 - 1e-9) <= kappa <= found.interval[1] * (1 + 1e-9)
        assert ALGEBRA in found.certificate.parts
        assert ALGEBRA.reason in str(found.certificate)


@pytest.mark.parametrize("name", ["LoRA", "a last layer of zeros", "unused words"])
def test_zeros_are_structure_in_single_precision_too(name: str) -> None:
    apply, params, x, options = CASES[name]()
    _, rank = _truth(apply, params, x, options.get("only"))
    with jax.enable_x64(False):
        single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)
        found = gnjax.condition_number(gnjax.gauss_newton((apply, single), x, **options))
    assert (found.rank, found.rank_source) == (rank, "analytic")


def test_zeros_are_structure_where_samples_come_in_batches() -> None:
    """The second batch alone does not use one of the words."""
    apply, params, x, options = CASES["unused words"]()
    batches = [(x[:3], np.zeros((3, 4))), (x[3:], np.zeros((1, 4)))]
    streamed = gnjax.gauss_newton((apply, params), batches, **options)
    assert rank_of(streamed).value == 6
    assert rank_of(streamed).evidence == ALGEBRA
    found = gnjax.condition_number(streamed, method="dense")
    assert (found.rank, found.rank_source) == (6, "analytic")


@pytest.mark.parametrize("by", ["layer", "entries"])
def test_zeros_are_structure_in_blocks(by: str) -> None:
    apply, params, x, _ = CASES["dead units"]()
    op = gnjax.gauss_newton((apply, params), x)
    entries = {f"{layer}/{leaf}": layer for layer in params for leaf in params[layer]}
    found = gnjax.block_spectra(op, by=by if by == "layer" else entries)
    for block in found.blocks:
        condition = block.condition
        assert condition is not None
        assert condition.rank_source in ("analytic", "full"), str(condition)
        assert ALGEBRA in condition.certificate.parts


def _saturated() -> tuple[Any, Any, Any]:
    """tanh(1e6 z): 1 - tanh^2 underflows, for parameters of both hidden layers."""
    params = _dense(4, 30, 3, 5)
    for layer in ("layer0", "layer1"):
        params[layer] = jax.tree.map(lambda leaf: 1e6 * leaf, params[layer])
    return _mlp(jnp.tanh), params, X


def _far_out() -> tuple[Any, Any, Any]:
    """GELU far below zero underflows."""
    params = _dense(4, 30, 3, 5)
    params["layer0"]["bias"] = np.full(30, -200.0)
    return _mlp(jax.nn.gelu), params, X


def _huge_inputs() -> tuple[Any, Any, Any]:
    return _mlp(jnp.tanh), _dense(4, 30, 3, 5), 1e12 * X


def _tiny() -> tuple[Any, Any, Any]:
    """Products of two layers of 1e-200 underflow."""
    params = _dense(4, 30, 3, 5, 5)
    for layer in ("layer1", "layer2"):
        params[layer] = jax.tree.map(lambda leaf: 1e-200 * leaf, params[layer])
    return _mlp(jnp.tanh), params, X


ROUNDED = {
    "saturated": _saturated,
    "far out": _far_out,
    "huge inputs": _huge_inputs,
    "tiny": _tiny,
}


@pytest.mark.slow
@pytest.mark.parametrize("samples", [6, 40])  # few, and so many that directions are looked for
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ROUNDED)
def test_zeros_of_rounding_are_no_structure(name: str, dtype: Any, samples: int) -> None:
    """J has columns that are computed as zero, and the rank of the same layers of ordinary size."""
    apply, params, x = ROUNDED[name]()
    x = np.resize(x, (samples, 4)) + 1e-3 * np.abs(x).max() * np.arange(samples)[:, None]
    if name == "tiny" and dtype == np.float32:  # of layers of 1e-200 make some of 1e-30
        params = jax.tree.map(lambda a: 1e170 * a if np.abs(a).max() < 1e-9 else a, params)
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), params)
    ordinary = _dense(*[len(layer["kernel"]) for layer in params.values()], 5)
    inputs = np.random.default_rng(1).standard_normal(x.shape)
    values = np.linalg.svd(jacobian(_mlp(jnp.tanh), ordinary, inputs), compute_uv=False)
    with jax.enable_x64(dtype == np.float64):
        op = gnjax.gauss_newton((apply, params), x.astype(dtype))
        assert not np.asarray(op.mv(np.ones(op.shape[0], dtype))).all()  # zeros there are
        rank = (values > 1e-12 * values[0]).sum()
        assert rank <= rank_of(op).value <= (rank if samples == 40 else 5 * samples)


def test_a_sure_classifier_keeps_its_words() -> None:
    """The root of the softmax's Hessian underflows for one sample, which alone has one word."""

    def apply(params: Any, tokens: jax.Array) -> jax.Array:
        return params["words"][tokens[:, 0]]

    words = np.zeros((30, 3))
    words[7] = [2000.0, 0.0, -2000.0]
    x = np.array([[1], [7], [2], [3]])
    op = gnjax.gauss_newton((apply, {"words": words}), x, loss="cross_entropy")
    assert rank_of(op).value == 8  # two of three logits of each of the four samples


def test_samples_are_read_until_enough_columns_are_not_zero():
    """One batch shows that J has many columns for its rows; a column of zeros is zero in all."""
    params, apply = _dense(4, 3, bias=False), _mlp(jnp.tanh)
    read = []

    def rank_bound(x: np.ndarray, rows: int) -> int:
        read.clear()

        def batches() -> Any:
            for start in (0, 2, 4):
                read.append(start)
                yield gnjax.ntk((apply, params), x[start : start + 2]).net

        first = gnjax.ntk((apply, params), x[:2]).net
        return rank_bound_of_batches(first, batches, rows).value

    assert (rank_bound(X, 5), read) == (5, [0])
    assert rank_bound(X * [1, 1, 1, 0], 18) == 9
    assert read[:3] == [0, 2, 4]
