"""Magnitude pruning: what is pruned, what training does to it, and what kappa makes of it."""

import jax
import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import gnjax
from gnjax.models import MLP, ViT
from gnjax.papers.training import minibatch as training
from gnjax.papers.training import pruning
from tests import references

_KEY = jax.random.key(0)
_SIZES = st.tuples(st.integers(1, 7), st.integers(1, 7))


@given(arrays(float, _SIZES, elements=st.floats(-3, 3)), st.floats(0, 0.999))
def test_the_smallest_of_a_layer_go(weight, rate):
    mask = pruning.magnitude_mask({"w": weight}, rate)["w"]
    pruned, kept = np.abs(weight[~mask]), np.abs(weight[mask])
    assert mask.shape == weight.shape
    assert pruned.size == round(rate * weight.size)
    assert pruned.max(initial=0.0) <= kept.min(initial=np.inf)
    assert pruning.remaining({"w": mask}) == kept.size


def test_ties_go_from_the_first_on_or_are_drawn_in_every_leaf():
    """Smaller entries go before equal ones, whichever of these are drawn."""
    params = {name: np.r_[np.ones(100), 0.5] for name in "ab"}
    first = pruning.magnitude_mask(params, 0.4, vectors=True)
    drawn = pruning.magnitude_mask(params, 0.4, vectors=True, ties=0)
    for name, leaf in drawn.items():
        assert not first[name][:39].any()
        assert first[name][39:100].all()
        assert leaf.sum() == first[name].sum() == 61
        assert not leaf[-1]
        assert 5 < (~leaf[50:100]).sum() < 35
    assert (drawn["a"] != drawn["b"]).any()


def test_layers_are_pruned_one_by_one_and_biases_not_at_all():
    """A global threshold would take the whole of the small layer."""
    params = {"small": 1e-3 * np.ones((4, 5)), "large": np.ones((4, 5)), "bias": np.zeros(4)}
    mask = pruning.magnitude_mask(params, 0.25)
    assert [int(mask[name].sum()) for name in params] == [15, 15, 4]


def test_a_pattern_keeps_what_is_no_layers_weight():
    model = ViT(8, 3, width=8, depth=1, heads=2, key=_KEY)
    params = nnx.state(model, nnx.Param)
    mask = pruning.magnitude_mask(params, 0.5, only="*kernel*")
    assert jax.tree.structure(mask) == jax.tree.structure(params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(mask):
        pruned = "kernel" in jax.tree_util.keystr(path)
        assert leaf.sum() == (leaf.size / 2 if pruned else leaf.size), path


@pytest.mark.parametrize(("optimizer", "momentum"), [("sgd", 0.9), ("adamw", 0.0)])
def test_training_keeps_pruned_weights_at_zero(optimizer, momentum):
    model, x, y = _problem()
    mask = pruning.magnitude_mask(nnx.state(model, nnx.Param), 0.5, only="*kernel*")
    recipe = training.Recipe(
        optimizer, 0.05, 4, "cross_entropy", momentum=momentum, decay=0.1, drop_after=2
    )
    problem, state = training.begin(model, x, y, recipe, _KEY, mask=mask)
    start = state.params
    state, losses = training.train(problem, state, 4)
    after, before, kept = map(_flat, (state.params, start, mask))
    assert not after[~kept].any()
    assert (after != before)[kept].mean() > 0.9  # all but those of units that were cut off
    assert losses[-1] < losses[0]


def test_kappa_is_of_the_weights_that_are_left():
    """The NTK of the masked operator is that of the Jacobian's columns that are not pruned."""
    model, x, _ = _problem()
    params = nnx.state(model, nnx.Param)
    mask = pruning.magnitude_mask(params, 0.4, only="*kernel*")
    pruned = jax.tree.map(np.multiply, params, mask)
    apply, _ = gnjax.functional(model)
    jacobian = np.asarray(references.jacobian(apply, pruned, x))
    kept = _flat(mask)
    eigenvalues = np.linalg.svd(jacobian[:, kept], compute_uv=False) ** 2
    op = gnjax.ntk((apply, pruned), x, mask=mask)
    np.testing.assert_allclose(op.as_matrix(), jacobian[:, kept] @ jacobian[:, kept].T, atol=1e-12)
    kappa = gnjax.condition_number(op)
    assert op.net.parameters == pruning.remaining(mask) == kept.sum()
    np.testing.assert_allclose(kappa.value, eigenvalues[0] / eigenvalues[-1], rtol=1e-8)


def _flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def _problem():
    rng = np.random.default_rng(0)
    model = MLP((6, 8, 7, 3), activation="tanh", key=_KEY)
    return model, rng.standard_normal((10, 6)), rng.integers(0, 3, 10)


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_a_rate_is_a_share(rate):
    with pytest.raises(ValueError, match="share of each layer"):
        pruning.magnitude_mask({"w": np.ones((2, 2))}, rate)
