"""One thing wrong with each model of the zoo, and the sentence that a user then reads."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gnjax
from tests.zoo import images, language
from tests.zoo.mistakes import (
    ending_in,
    frameworks,
    modern,
    others,
    science,
    wrong,
)
from tests.zoo.mistakes import images as of_images
from tests.zoo.mistakes import language as of_language

MADE = {**of_language.MISTAKES, **of_images.MISTAKES, **frameworks.MISTAKES}
MADE |= {**others.MISTAKES, **modern.MISTAKES, **science.MISTAKES}
MISTAKES = {
    f"{model}: {name}": (made, call, words)
    for model, (made, found) in MADE.items()
    for name, (call, words) in found.items()
}


@pytest.fixture(autouse=True)
def _users_rely_on_rank_promotion():
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_in_one_sentence_that_says_what_to_do(mistake):
    made, call, words = MISTAKES[mistake]
    with pytest.raises(ValueError, match=words) as refusal:
        call(made)
    text = str(refusal.value)
    assert "\n" not in text
    assert 40 < len(text) < 600
    assert Path(refusal.traceback[-1].path).is_relative_to(Path(gnjax.__file__).parent)


def _leaving_out(f, y):
    return jnp.where(y < 0, 0, of_language.integer_loss(f, jnp.maximum(y, 0)))


NO_MISTAKES = {
    "a loss of its own that leaves out -1": (
        lambda: wrong(language.gpt, loss=_leaving_out),
        lambda: wrong(language.gpt),
        2.0,  # over 2 samples, not over the 4 labels that count
    ),
    "log-probabilities": (
        lambda: wrong(language.bert, model=ending_in(jax.nn.log_softmax)),
        lambda: wrong(language.bert),
        1.0,
    ),
    "labels of -1, 0 and 1": (
        lambda: wrong(images.equinox_logistic, y=np.array([1, -1, 0])),
        lambda: wrong(
            images.equinox_logistic, y=np.array([1, 1, 0]), weights=np.array([1.0, 0.0, 0.5])
        ),
        1.0,
    ),
    "a default that is no target": (
        lambda: wrong(images.haiku_mlp, y=..., loss=lambda f, scale=3.0: scale * optax.l2_loss(f)),
        lambda: wrong(images.haiku_mlp, y=..., loss="squared_error"),
        3.0,
    ),
}


@pytest.mark.parametrize("name", NO_MISTAKES)
def test_what_only_looks_like_a_mistake_is_taken(name):
    """Products with G, beside those of the same matrix asked for in other words."""
    call, other, factor = NO_MISTAKES[name]
    op, known = call(), other()
    v = np.random.default_rng(0).standard_normal(op.shape[0])
    expected = factor * np.asarray(known.mv(v))
    np.testing.assert_allclose(op.mv(v), expected, atol=1e-12 * np.linalg.norm(expected), rtol=0)
