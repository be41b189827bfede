"""GPT: the forward pass written a second time in NumPy, causality, scales, and what is refused."""

import jax
import numpy as np
import pytest
import scipy.special

import gnjax
from gnjax.models import GPT
from tests.models import outputs
from tests.references import jacobian

_KEY = jax.random.key(0)
_TOKENS = np.random.default_rng(0).integers(0, 7, (3, 5))


def _by_loops(model, tokens, heads, norm, skip, branch):
    """One sample, one head and one position after the other."""

    def dense(layer, x):
        bias = 0 if layer.bias is None else np.asarray(layer.bias[...])
        return x @ np.asarray(layer.kernel[...]) + bias

    def normalised(layer, x):
        spread = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
        centred = (x - x.mean(axis=-1, keepdims=True)) / spread
        return centred * np.asarray(layer.scale[...]) + np.asarray(layer.bias[...])

    def attention(layer, x):
        q, k, v = (dense(part, x) for part in (layer.query, layer.key, layer.value))
        size = x.shape[1] // heads
        mixed = np.zeros_like(x)
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            for t in range(len(x)):
                scores = k[: t + 1, part] @ q[t, part] / np.sqrt(size)
                mixed[t, part] = scipy.special.softmax(scores) @ v[: t + 1, part]
        return dense(layer.out, mixed)

    def feed(block, x):
        up = dense(block.dense1, x)
        inner = np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)
        return dense(block.dense2, up * (1 + np.tanh(inner)) / 2)

    def added(x, layers, layer):
        x = skip * x + branch * layers(normalised(layer, x) if norm == "pre" else x)
        return normalised(layer, x) if norm == "post" else x

    table = np.asarray(model.tokens[...])
    logits = []
    for row in tokens:
        x = table[row] + np.asarray(model.positions[...])[: len(row)]
        for block in (getattr(model, f"block{i}") for i in range(1, model.depth + 1)):
            norms = [getattr(block, f"norm{i}", None) for i in (1, 2)]
            x = added(x, lambda v, b=block: attention(b.attention, v), norms[0])
            x = added(x, lambda v, b=block: feed(b, v), norms[1])
        x = normalised(model.norm, x) if norm == "pre" else x
        logits.append(x @ table.T if model.head is None else dense(model.head, x))
    return np.array(logits)


@pytest.mark.parametrize(
    ("norm", "skip", "branch", "tied", "initializer"),
    [
        ("pre", 1.0, 1.0, True, "gpt2"),
        ("post", 1.0, 1.0, False, "lecun"),
        ("none", 0.7, 0.4, True, "lecun"),
    ],
)
def test_logits_are_those_of_the_definition(norm, skip, branch, tied, initializer):
    model = GPT(
        7,
        length=6,
        width=8,
        depth=2,
        heads=2,
        norm=norm,
        skip=skip,
        branch=branch,
        tied=tied,
        initializer=initializer,
        key=_KEY,
    )
    expected = _by_loops(model, _TOKENS, 2, norm, skip, branch)
    np.testing.assert_allclose(outputs(model, _TOKENS), expected, rtol=1e-11, atol=1e-13)


def test_a_token_sees_none_behind_itself():
    model = GPT(7, length=5, width=8, initializer="lecun", key=_KEY)
    changed = _TOKENS.copy()
    changed[:, 3] = (changed[:, 3] + 1) % 7
    before, after = (np.asarray(outputs(model, x)) for x in (_TOKENS, changed))
    np.testing.assert_array_equal(after[:, :3], before[:, :3])
    assert (np.abs(after - before)[:, 3:].max(axis=(0, 2)) > 1e-3).all()


def test_weights_have_the_scales_of_gpt2():
    model = GPT(100, length=50, width=64, depth=2, key=_KEY)
    block = model.block1
    for drawn, scale in (
        (model.tokens, 0.02),
        (model.positions, 0.02),
        (block.attention.query.kernel, 0.02),
        (block.attention.out.kernel, 0.01),
        (block.dense1.kernel, 0.02),
        (block.dense2.kernel, 0.01),
    ):
        values = np.asarray(drawn[...])
        assert abs(values.std() / scale - 1) < 5 * (2 * values.size) ** -0.5
    assert not np.asarray(block.dense1.bias[...]).any()
    query, key = (
        np.asarray(layer.kernel[...]) for layer in (block.attention.query, block.attention.key)
    )
    assert abs(np.corrcoef(query.ravel(), key.ravel())[0, 1]) < 0.1  # two draws, not one


def test_all_of_its_gauss_newton_matrix_is_that_of_automatic_differentiation():
    model = GPT(5, length=4, width=4, depth=1, heads=2, initializer="lecun", key=_KEY)
    x = _TOKENS[:, :4] % 5
    op = gnjax.gauss_newton(model, x, loss="cross_entropy")
    apply, params = gnjax.functional(model)
    j = np.asarray(jacobian(apply, params, x)).reshape(x.size, 5, -1)
    p = scipy.special.softmax(np.asarray(outputs(model, x)).reshape(-1, 5), axis=1)
    of_loss = p[:, :, None] * (np.eye(5) - p[:, None, :])
    expected = np.einsum("tca,tcd,tdb->ab", j, of_loss, j, optimize=True) / len(p)
    np.testing.assert_allclose(op.as_matrix(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: GPT(7, length=5, width=8, heads=3, key=_KEY), "heads must divide the width"),
        (lambda: GPT(7, length=0, key=_KEY), "at least 1"),
        (lambda: GPT(7, length=5, norm="rms", key=_KEY), "pre, post, none"),
        (lambda: GPT(7, length=5, initializer="xavier", key=_KEY), "gpt2, lecun"),
        (lambda: GPT(7, length=4, key=_KEY)(_TOKENS), "t <= 4"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
