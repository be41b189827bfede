"""The rank where a loss of one's own does not see all outputs, against dense matrices of plain JAX.

Class of faults: a direction that the loss sees a little is taken for one that it does not see, so
that kappa is too small; or one that it does not see is not known, and kappa stays unresolved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import gnjax
from gnjax.networks.null_space.loss_projections import loss_projections
from gnjax.numerics import modular
from gnjax.operators.facts import rank_of

CLASS_WEIGHTS = np.array([0.5, 2.0, 1.0, 3.0])


def _weighted_classes(f: jax.Array, y: jax.Array) -> jax.Array:
    return -jnp.asarray(CLASS_WEIGHTS)[y] * jax.nn.log_softmax(f)[y]


def _smoothed(f: jax.Array, y: jax.Array) -> jax.Array:
    return -((0.9 * jax.nn.one_hot(y, 4) + 0.025) * jax.nn.log_softmax(f)).sum()


def _huber(f: jax.Array, y: jax.Array) -> jax.Array:
    far = jnp.abs(f - y)
    return jnp.where(far < 0.7, jnp.square(f - y) / 2, 0.7 * (far - 0.35)).sum()


def _masked(f: jax.Array, y: dict[str, jax.Array]) -> jax.Array:
    return (jnp.square(f - y["values"]) * y["mask"]).sum() / jnp.maximum(y["mask"].sum(), 1.0)


def _log_cosh(f: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.log(jnp.cosh(f - y)).sum()


LOSSES = {"weights": _weighted_classes, "smoothed": _smoothed, "Huber": _huber}
LOSSES |= {"masked": _masked, "log cosh": _log_cosh}


def _targets(name: str, n: int) -> Any:
    rng = np.random.default_rng(1)
    if name in ("weights", "smoothed"):
        return rng.integers(0, 4, n)
    values = rng.standard_normal((n, 4))
    mask = (rng.random((n, 4)) < 0.5) * 1.0
    return {"values": values, "mask": mask} if name == "masked" else values


def _network(width: int, n: int) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(2)
    shapes = {"a": (3, width), "b": (width, width), "c": (width, 4)}
    params = {name: rng.standard_normal(shape) / shape[0] ** 0.5 for name, shape in shapes.items()}

    def apply(p: Any, x: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.tanh(x @ p["a"]) @ p["b"]) @ p["c"]

    return (apply, params), rng.standard_normal((n, 3))


def _eigenvalues(model: Any, x: np.ndarray, y: Any, loss: Callable[..., jax.Array]) -> np.ndarray:
    """Those of the mean of J_i^T B_i J_i, with ``jax.jacrev`` and ``jax.hessian``, falling."""
    apply, params = model
    vector, unravel = ravel_pytree(params)
    outputs = apply(params, x)
    n = len(outputs)
    j = jax.jacrev(lambda v: apply(unravel(v), x))(vector).reshape(n, -1, vector.size)
    b = jax.vmap(jax.hessian(loss))(outputs, y).reshape(n, j.shape[1], j.shape[1])
    return np.linalg.eigvalsh(np.einsum("nkp,nkl,nlq->pq", j, b, j) / n)[::-1]


@pytest.mark.parametrize("size", ["more rows", "more parameters"])
@pytest.mark.parametrize("name", LOSSES)
def test_kappa_is_resolved_where_a_loss_does_not_see_all_outputs(name: str, size: str) -> None:
    model, x = _network(*((3, 40) if size == "more rows" else (8, 5)))
    y, loss = jax.tree.map(jnp.asarray, _targets(name, len(x))), LOSSES[name]
    values = _eigenvalues(model, x, y, loss)
    rank = int((values > 1e-12 * values[0]).sum())
    kappa = gnjax.condition_number(gnjax.gauss_newton(model, x, y, loss=loss))
    assert (kappa.resolved, kappa.rank) == (True, rank)
    low, high = kappa.interval
    true = values[0] / values[rank - 1]
    assert low * (1 - 1e-9) <= true <= high * (1 + 1e-9)
    # the root R of a singular B is known to eps^{1/2} of its norm, by bounds that double this often
    assert high <= low * (1 + 1e-6 * true**0.5)


FAINT = {  # losses whose output Hessian is singular to working precision, and not exactly
    "softmax and a faint square": lambda f, y: _smoothed(f, y) + 1e-20 * jnp.square(f).sum(),
    "pseudo-Huber far out": lambda f, y: jnp.sqrt(1 + jnp.square(1e6 * (f - y))).sum(),
    "a faint output": lambda f, y: (jnp.square(f - y) * jnp.array([1, 1e-20, 1, 1e-25])).sum(),
}


@pytest.mark.parametrize("name", FAINT)
def test_what_a_loss_sees_faintly_it_sees(name: str) -> None:
    model, x = _network(8, 5)
    y = _targets("smoothed" if "softmax" in name else "Huber", len(x))
    op = gnjax.gauss_newton(model, x, y, loss=FAINT[name])
    assert (loss_projections(op.net).ranks == 4).all()
    assert rank_of(op).value == 20
    kappa = gnjax.condition_number(op)
    assert kappa.rank == 20 or not kappa.resolved


def test_the_ranks_are_those_of_each_sample() -> None:
    """Far in 0 .. 4 of the outputs, and weights of samples, of which one is zero."""
    model = (lambda p, x: x @ (jnp.eye(4) + p["w"]), {"w": np.zeros((4, 4))})
    x = 3.0 * np.tri(5, 4, -1)
    op = gnjax.gauss_newton(model, x, np.zeros((5, 4)), loss=_huber)
    projections = loss_projections(op.net)
    assert projections.ranks.tolist() == [4, 3, 2, 1, 0]
    np.testing.assert_array_equal(projections.hessians, jax.vmap(jnp.diag)(x == 0))
    weights = np.array([1.0, 0.0, 1.0, 1.0, 1.0])
    op = gnjax.gauss_newton(model, x, np.zeros((5, 4)), loss=_huber, weights=weights)
    assert loss_projections(op.net).ranks.tolist() == [4, 0, 2, 1, 0]


@pytest.mark.parametrize("loss", ["squared_error", "cross_entropy", _weighted_classes, _huber])
def test_products_with_the_projections_are_those_of_their_matrices(loss: Any) -> None:
    model, x = _network(3, 5)
    y = _targets("Huber" if loss in ("squared_error", _huber) else "weights", 5)
    projections = loss_projections(gnjax.gauss_newton(model, x, y, loss=loss).net)
    places, u = np.array([3, 1, 4]), modular.drawn(0, 3, 4)
    matrices = projections.at(places)
    for row, matrix, product in zip(u, matrices, projections.times(u, places), strict=True):
        np.testing.assert_array_equal(modular.product(matrix, row[:, None])[:, 0], product)
    if loss == "cross_entropy":
        assert not modular.product(matrices[0], np.ones((4, 1), np.int64)).any()
        assert modular.rank(matrices[0]) == 3


def test_a_large_vocabulary_forms_no_matrix_of_it() -> None:
    """60,000 classes: a matrix of them would take 29 GB."""
    rng = np.random.default_rng(5)
    params = {"w": rng.standard_normal((2, 60_000))}
    y = rng.integers(0, 60_000, 3)
    op = gnjax.gauss_newton(
        (lambda p, x: x @ p["w"], params), rng.standard_normal((3, 2)), y, loss="cross_entropy"
    )
    assert rank_of(op).value <= 3 * 59_999


def test_samples_that_meet_and_samples_in_batches_have_the_same_rows() -> None:
    (apply, params), x = _network(8, 6)
    y = _targets("weights", 6)

    def centred(p: Any, x: jax.Array) -> jax.Array:
        return apply(p, x) - apply(p, x).mean(axis=0, keepdims=True)

    assert rank_of(gnjax.gauss_newton((centred, params), x, y, loss=_weighted_classes)).value == 15
    batches = [(x[:4], y[:4]), (x[4:], y[4:])]
    streamed = gnjax.gauss_newton((apply, params), batches, loss=_weighted_classes)
    assert rank_of(streamed).value == 18
    assert gnjax.condition_number(streamed).resolved


def test_outputs_that_are_compared_in_pairs_have_dependent_rows() -> None:
    """Products of 5 pairs with 5 others: 20 numbers less (A, A^{-T}) and a shift of one side."""
    rng = np.random.default_rng(4)
    shapes = {"in0": (2, 6), "out0": (6, 2), "in1": (2, 6), "out1": (6, 2)}
    params = {name: rng.standard_normal(shape) / shape[0] ** 0.5 for name, shape in shapes.items()}

    def towers(p: Any, x: jax.Array) -> jax.Array:
        a, b = (jnp.tanh(x[:, i] @ p[f"in{i}"]) @ p[f"out{i}"] for i in range(2))
        return a @ b.T

    x = rng.standard_normal((5, 2, 2))
    op = gnjax.gauss_newton((towers, params), x, np.arange(5), loss="cross_entropy")
    values = np.linalg.svd(op.factor(), compute_uv=False)
    kappa = gnjax.condition_number(op)
    assert (kappa.resolved, kappa.rank) == (True, 20 - 4 - 2)
    assert values[14:].max() < 1e-12 * values[0]
    assert kappa.value == pytest.approx((values[0] / values[13]) ** 2, rel=1e-6)


def test_a_loss_that_cannot_be_followed_leaves_the_rank_to_the_shapes() -> None:
    def of_sorted(f: jax.Array, y: jax.Array) -> jax.Array:
        return (jnp.square(jnp.sort(f - y)) * jnp.array([1.0, 2.0, 0.0, 1.0])).sum()

    model, x = _network(8, 5)
    op = gnjax.gauss_newton(model, x, _targets("Huber", 5), loss=of_sorted)
    assert rank_of(op).value == 20
    assert not gnjax.condition_number(op).resolved


MASKS = {
    "-1e9": lambda scores, seen: jnp.where(seen, scores, -1e9),
    "-inf": lambda scores, seen: jnp.where(seen, scores, -jnp.inf),
    "least number": lambda scores, seen: jnp.where(seen, scores, jnp.finfo(scores.dtype).min),
    "added": lambda scores, seen: scores + (1.0 - seen) * -1e4,
}


def _attention(mask: Callable[..., jax.Array]) -> tuple[Any, np.ndarray]:
    """One head over tokens of which those of 0 are padding, which no output depends on."""
    rng = np.random.default_rng(3)
    params = {"words": rng.standard_normal((5, 3)), "qkv": rng.standard_normal((3, 9)) / 2}

    def apply(p: Any, tokens: jax.Array) -> jax.Array:
        q, k, v = jnp.split(p["words"][tokens] @ p["qkv"], 3, axis=-1)
        real = (tokens > 0)[:, None]
        h = jax.nn.softmax(mask(q @ k.mT, jnp.broadcast_to(real, (len(q), 3, 3)))) @ v
        return h[:, 0]

    lengths = rng.integers(1, 4, (30, 1))
    return (apply, params), rng.integers(1, 5, (30, 3)) * (np.arange(3)[None] < lengths)


@pytest.mark.parametrize("name", MASKS)
def test_what_a_mask_of_attention_hides_is_not_seen(name: str) -> None:
    model, x = _attention(MASKS[name])
    op = gnjax.ntk(model, x)
    values = np.linalg.svd(op.factor(), compute_uv=False)
    rank = int((values > 1e-9 * values[0]).sum())
    kappa = gnjax.condition_number(op)
    assert (kappa.resolved, kappa.rank) == (True, rank)
    assert kappa.value == pytest.approx((values[0] / values[rank - 1]) ** 2, rel=1e-6)


def test_a_sharp_softmax_is_no_mask() -> None:
    """exp(-2000) is zero in floating arithmetic, and no zero of the equations."""
    model, x = _attention(lambda scores, seen: jnp.where(seen, scores, -2000.0))
    masked, _ = _attention(MASKS["-1e9"])
    assert rank_of(gnjax.ntk(model, x)).value > rank_of(gnjax.ntk(masked, x)).value
