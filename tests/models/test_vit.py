"""ViT: the forward pass is PyTorch's, and what is refused."""

import jax
import numpy as np
import pytest

from gnjax.models import ViT
from tests.models import outputs
from tests.torch_fixtures import assert_outputs_are_torchs

_KEY = jax.random.key(0)


def test_outputs_are_torchs():
    assert_outputs_are_torchs(ViT(16, 10, key=_KEY), "ViT")


def test_without_positions_patches_may_be_permuted():
    """Attention sees a set: exchanging two patches of an image changes nothing."""
    model = ViT(4, 3, patch=2, width=8, depth=2, heads=2, key=_KEY)
    model.positions[...] = jax.device_put(np.zeros(model.positions.shape))
    x = np.random.default_rng(0).standard_normal((3, 4, 4, 3))
    exchanged = np.concatenate([x[:, 2:], x[:, :2]], axis=1)
    np.testing.assert_allclose(outputs(model, exchanged), outputs(model, x), rtol=1e-12)


def test_token_and_positions_are_standard_normal():
    model = ViT(32, 10, width=64, depth=1, key=_KEY)
    drawn = np.concatenate([model.token[...][None], model.positions[...]])
    assert drawn.shape == (66, 64)
    assert abs(drawn.mean()) < 5 * drawn.size**-0.5
    assert abs(drawn.var() - 1) < 5 * (2 / drawn.size) ** 0.5


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ViT(10, 3, key=_KEY), "patch of 4 must divide the side 10"),
        (lambda: ViT(8, 3, heads=5, key=_KEY), "5 heads the width 48"),
        (lambda: ViT(8, 3, depth=1, key=_KEY)(np.ones((2, 4, 4, 3))), "n, 8, 8, 3"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
