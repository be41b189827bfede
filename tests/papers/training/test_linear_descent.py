"""Reduced descents are the plain one: same weights, same rates, same Hessian."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gnjax
from experiments.shared.linear_training import representatives
from gnjax import initializers
from gnjax.papers.training import descent, linear_descent
from gnjax.papers.training.descent import Halving, descend

EPOCHS = 200
RATE = 0.3
OFTEN = Halving(every=20, improvement=0.05)  # halves several times within 200 epochs
SHAPES = [(12, 8, 7, 3), (12, 6, 6, 6, 4), (9, 5, 4)]


def labelled(seed, samples, inputs, outputs, white):
    """One-hot labels, as in the paper, of inputs that are whitened or correlated."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((samples, inputs)) @ rng.standard_normal((inputs, inputs)) / 4
    labels = rng.choice(outputs, samples, p=np.r_[0.5, np.full(outputs - 1, 0.5 / (outputs - 1))])
    return gnjax.data.orthogonalise(x, 1.3) if white else x, np.eye(outputs)[labels]


def plain(weights, x, y, epochs, rate, halving=None):
    """Gradient descent on all samples as the equations stand; weights and the final rate."""
    weights = [np.asarray(w) for w in weights]
    tested = np.inf
    for epoch in range(epochs):
        states = [x.T]
        for w in weights:
            states.append(w @ states[-1])
        error = states[-1] - y.T
        if halving is not None and epoch % halving.every == 0:
            loss = (error**2).sum() / (2 * len(x))
            rate = rate if loss <= (1 - halving.improvement) * tested else rate / 2
            tested = loss
        slopes = []
        for w, state in zip(reversed(weights), reversed(states[:-1]), strict=True):
            slopes.insert(0, error @ state.T / len(x))
            error = w.T @ error
        weights = [w - rate * slope for w, slope in zip(weights, slopes, strict=True)]
    return weights, rate


def trained(reduced, halving=OFTEN):
    """The reduced weights after EPOCHS, and the rate."""
    path = descend(
        linear_descent.loss,
        reduced.weights,
        reduced.data,
        keep=(EPOCHS,),
        rate=RATE,
        halving=halving,
    )
    return [np.asarray(w)[-1] for w in path.params], float(np.asarray(path.rates)[-1])


def start(name, seed, widths):
    options = {"singular_values": np.full(min(widths), 0.6)} if name == "balanced" else {}
    return initializers.chain(jax.random.key(seed), widths, name, **options)


def assert_same_path(reductions, weights, x, y):
    """Apply the reductions one after the other, train, lift, and compare with the plain descent."""
    reduced = linear_descent.ReducedProblem(
        list(weights), linear_descent.moments(x, y), (None,) * (len(weights) + 1)
    )
    chain = []
    for reduction in reductions:
        reduced = reduction(reduced.weights, reduced.data)
        chain.append(reduced)
    found, rate = trained(reduced)
    for step in reversed(chain):
        found = linear_descent.lift(found, step)
    expected, expected_rate = plain(weights, x, y, EPOCHS, RATE, OFTEN)
    assert rate == expected_rate < RATE
    for w, reference in zip(found, expected, strict=True):
        np.testing.assert_allclose(w, reference, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "widths"),
    [("pytorch_default", SHAPES[0]), ("balanced", SHAPES[1]), ("balanced", SHAPES[2])],
)
def test_second_moments_are_enough(name, widths):
    x, y = labelled(0, 40, widths[0], widths[-1], white=False)
    assert_same_path([], start(name, 1, widths), x, y)


@pytest.mark.parametrize("widths", SHAPES)
def test_principal_axes_change_nothing(widths):
    x, y = labelled(1, 40, widths[0], widths[-1], white=False)
    x[:, 2] = x[:, 1]  # a null direction
    assert_same_path([linear_descent.principal_axes], start("pytorch_default", 2, widths), x, y)


@pytest.mark.parametrize("widths", [(30, 6, 5, 3), (30, 4, 4, 4, 2), (5, 9, 3)])
def test_whitened_inputs_rotate_onto_the_rows_of_b_and_the_first_layer(widths):
    x, y = labelled(2, 60, widths[0], widths[-1], white=True)
    weights = start("pytorch_default", 3, widths)
    reduced = linear_descent.row_space(weights, linear_descent.moments(x, y))
    assert reduced.weights[0].shape[1] == min(widths[0], widths[1] + widths[-1])
    assert_same_path([linear_descent.row_space], weights, x, y)


@pytest.mark.parametrize("white", [True, False])
def test_hidden_layers_shrink_to_the_rank_of_balanced_weights(white):
    widths, rank = (20, 9, 8, 7, 4), 3
    x, y = labelled(3, 50, widths[0], widths[-1], white)
    weights = initializers.balanced(jax.random.key(4), widths, [0.7, 0.6, 0.5])

    def core(weights, data):
        return linear_descent.core(weights, data, rank)

    after = linear_descent.row_space if white else linear_descent.principal_axes
    reduced = after(*core(weights, linear_descent.moments(x, y))[:2])
    shapes = [w.shape for w in reduced.weights]
    assert shapes == [(3, 7 if white else 20), (3, 3), (3, 3), (4, 3)]
    assert_same_path([core, after], weights, x, y)


@given(st.integers(0, 10**6), st.lists(st.integers(1, 6), min_size=2, max_size=5), st.booleans())
@settings(max_examples=10)
def test_the_loss_of_moments_is_the_loss_of_samples(seed, widths, diagonal):
    x, y = labelled(seed, 15, widths[0], widths[-1] + 1, white=False)
    rng = np.random.default_rng(seed)
    shapes = pairwise([*widths[:-1], widths[-1] + 1])
    weights = [jax.device_put(rng.standard_normal((after, before))) for before, after in shapes]
    data = linear_descent.moments(x, y)
    if diagonal:
        weights, data, _ = linear_descent.principal_axes(weights, data)
        x = x @ np.linalg.eigh(x.T @ x)[1]
    outputs = x @ np.asarray(jax.jit(linear_descent.end_to_end)(weights)).T
    expected = ((outputs - y) ** 2).sum() / 30
    np.testing.assert_allclose(jax.jit(linear_descent.loss)(weights, data), expected, rtol=1e-11)
    fit = x @ np.linalg.lstsq(x, y, rcond=None)[0]
    least = ((fit - y) ** 2).sum() / 30
    # An eigenvalue of C with an error of eps |C| changes its share of the loss by kappa(C) eps.
    rounding = 3 * np.finfo(float).eps * np.linalg.cond(x) ** 2 * float(data.energy)
    np.testing.assert_allclose(linear_descent.floor(data), least, rtol=0, atol=rounding)


@jax.jit
def dense_hessian(weights, x, y):
    """On all samples, in the original coordinates."""
    flat, unflatten = jax.flatten_util.ravel_pytree(weights)

    def loss(theta):
        f = x
        for w in unflatten(theta):
            f = f @ w.T
        return jnp.square(f - y).sum() / (2 * len(x))

    return jax.hessian(loss)(flat)


@pytest.mark.parametrize("scale", [0.1, 2.0])
@pytest.mark.parametrize("white", [True, False])
def test_the_reduced_sharpness_is_that_of_the_whole_network(white, scale):
    """Far from a minimum, too, where hidden units outside the core have curvature."""
    widths, rank = (14, 6, 5, 6, 4), 3
    x, y = labelled(5, 40, widths[0], widths[-1], white)
    weights = initializers.balanced(jax.random.key(6), widths, scale * np.ones(rank))
    small, data, _ = linear_descent.core(weights, linear_descent.moments(x, y), rank)
    after = linear_descent.row_space if white else linear_descent.principal_axes
    small, data, _ = after(small, data)
    expected = np.linalg.eigvalsh(dense_hessian(weights, x, y))
    found = np.linalg.eigvalsh(dense_hessian(small, *representatives(data)))
    assert len(found) < len(expected)
    np.testing.assert_allclose(found[-1], expected[-1], rtol=1e-10)


@given(st.integers(0, 10**6))
@settings(max_examples=5)
def test_inputs_outside_the_row_space_are_never_the_sharpest(seed):
    widths = (20, 3, 4, 2)
    x, y = labelled(seed, 40, widths[0], widths[-1], white=True)
    weights = start("pytorch_default", seed, widths)
    small, data, _ = linear_descent.row_space(weights, linear_descent.moments(x, y))
    expected = np.linalg.eigvalsh(dense_hessian(weights, x, y))
    found = np.linalg.eigvalsh(dense_hessian(small, *representatives(data)))
    assert len(found) < len(expected)
    np.testing.assert_allclose(found[-1], expected[-1], rtol=1e-10)


def test_the_rate_halves_where_the_loss_stalls_and_only_there():
    x, y = labelled(7, 40, 6, 3, white=True)
    weights = start("pytorch_default", 0, (6, 6, 3))
    keep = tuple(range(0, 2001, 100))
    path = descend(linear_descent.loss, weights, linear_descent.moments(x, y), keep=keep, rate=0.1)
    losses, rates = np.asarray(path.losses), np.asarray(path.rates)
    stalled = losses[1:] > (1 - 1e-3) * losses[:-1]
    assert stalled.any()
    assert not stalled.all()
    # The test at epoch t is made before its step: the rate kept at t is that of the step to t.
    np.testing.assert_array_equal(rates[2:] / rates[1:-1], np.where(stalled[:-1], 0.5, 1.0))
    assert (np.diff(losses) <= 1e-15).all()


def test_a_path_keeps_the_epochs_asked_for_whatever_lies_between():
    x, y = labelled(8, 30, 5, 3, white=False)
    weights, data = start("pytorch_default", 1, (5, 4, 3)), linear_descent.moments(x, y)
    path = descend(linear_descent.loss, weights, data, keep=(0, 1, 7, 50), rate=0.1)
    for index, epoch in enumerate((0, 1, 7, 50)):
        expected, _ = plain(weights, x, y, epoch, 0.1)
        kept = [np.asarray(w)[index] for w in path.params]
        for found, w in zip(kept, expected, strict=True):
            np.testing.assert_allclose(found, w, rtol=0, atol=1e-12)
        loss = jax.jit(linear_descent.loss)(kept, data)
        np.testing.assert_allclose(np.asarray(path.losses)[index], loss, rtol=1e-14)


def test_batched_runs_are_the_single_ones():
    runs = []
    for seed in range(3):
        x, y = labelled(seed, 30, 5, 3, white=True)
        runs.append((start("pytorch_default", seed, (5, 4, 3)), linear_descent.moments(x, y)))
    weights, data = jax.tree.map(lambda *leaves: np.stack(leaves), *runs)

    def run(weights, data, rate):
        return descend(linear_descent.loss, weights, data, keep=(0, 300), rate=rate)

    rates = np.array([0.1, 0.2, 0.3])
    together = jax.vmap(run)(weights, data, rates)
    for index, (single, moments) in enumerate(runs):
        alone = run(single, moments, rates[index])
        for found, w in zip(together.params, alone.params, strict=True):
            np.testing.assert_allclose(np.asarray(found)[index], w, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(np.asarray(together.rates)[index], alone.rates)


def test_tanh_descends_its_loss_over_all_samples():
    x, y = labelled(9, 25, 6, 3, white=True)
    weights = start("balanced", 2, (6, 5, 4, 3))
    path = descend(descent.tanh_loss, weights, descent.Samples(x, y), keep=(1,))
    w1, w2, w3 = (np.asarray(w) for w in weights)
    h1 = np.tanh(x @ w1.T)
    h2 = np.tanh(h1 @ w2.T)
    error = h2 @ w3.T - y
    loss = jax.jit(descent.tanh_loss)(weights, descent.Samples(x, y))
    np.testing.assert_allclose(loss, (error**2).sum() / 50, rtol=1e-13)
    back2 = (error @ w3) * (1 - h2**2)
    back1 = (back2 @ w2) * (1 - h1**2)
    slopes = [back1.T @ x / 25, back2.T @ h1 / 25, error.T @ h2 / 25]
    for found, w, slope in zip(path.params, (w1, w2, w3), slopes, strict=True):
        np.testing.assert_allclose(np.asarray(found)[-1], w - 0.01 * slope, rtol=0, atol=1e-14)


def test_mistakes_are_named():
    x, y = labelled(11, 20, 6, 3, white=False)
    weights, data = start("pytorch_default", 0, (6, 5, 3)), linear_descent.moments(x, y)
    with pytest.raises(ValueError, match="multiple of the identity"):
        linear_descent.row_space(weights, data)
    with pytest.raises(ValueError, match="more than rank=2"):
        linear_descent.core(weights, data, 2)
    with pytest.raises(ValueError, match="more than rank=2"):  # the rows of W_2 alone have rank 3
        linear_descent.core([np.eye(5, 2) @ np.asarray(weights[0])[:2], weights[1]], data, 2)
    with pytest.raises(ValueError, match="increasing epochs"):
        descend(linear_descent.loss, weights, data, keep=(5, 5))
    with pytest.raises(ValueError, match="at least 1"):
        descend(linear_descent.loss, weights, data, keep=(5,), halving=Halving(every=0))
    with pytest.raises(ValueError, match=r"give \(n, d\)"):
        linear_descent.moments(x, y[:-1])
