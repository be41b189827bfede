"""What goes wrong with models of images, and with BatchNorm and dropout."""

from __future__ import annotations

import jax
import numpy as np
import optax
from flax.training.train_state import TrainState

import gnjax
from tests.zoo import images, made
from tests.zoo.mistakes import wrong


def _with_nan(model):
    apply, params = gnjax.functional(model)
    leaves, structure = jax.tree.flatten(params)
    return apply, jax.tree.unflatten(structure, [np.full_like(leaf, np.nan) for leaf in leaves])


def _linen(model=lambda *pair: pair, **options):
    module, variables, _, x, known = images._normed()
    return gnjax.gauss_newton(model(module, variables), x, **{**known, **options})


def _train_state(module, variables):
    """Without the statistics of BatchNorm."""
    params = variables["params"]
    state = TrainState.create(apply_fn=module.apply, params=params, tx=optax.sgd(0.1))
    return gnjax.functional(state, train=False)


def _training(module, variables):
    keys = {"dropout": jax.random.key(3)}
    return gnjax.functional((module, variables), train=True, rngs=keys, mutable=["batch_stats"])


MISTAKES = {
    "vit": (
        images.vit,
        {
            "channels first": (
                lambda m: wrong(m, x=lambda x: np.moveaxis(x, -1, 1)),
                "channels last",
            ),
            "labels from 1 on": (lambda m: wrong(m, y=np.array([1, 2, 3])), "from 0 to 2"),
            "training": (
                lambda m: wrong(m, model=lambda _: made(images.ViT, 0)),
                r"model\.eval",
            ),
            "another keyword": (
                lambda m: wrong(
                    m, model=lambda _: gnjax.functional(made(images.ViT, 0), train=False)
                ),
                r"gnjax\.functional\(model, name=value\)",
            ),
            "NaN": (lambda m: wrong(m, model=_with_nan), "before the training diverged"),
            "the class": (lambda m: wrong(m, model=lambda _: images.ViT), "a model is"),
        },
    ),
    "unet": (
        images.unet,
        {
            "swapped": (lambda m: wrong(m, model=lambda pair: pair[::-1]), "starts with dict"),
            "the module alone": (lambda m: wrong(m, model=lambda pair: pair[0]), "got UNet"),
            "no channel in y": (lambda m: wrong(m, y=np.ones((2, 4, 4))), r"4, 4, 1\) are needed"),
            "masks to 255": (
                lambda m: wrong(m, y=255 * np.ones((2, 4, 4, 1)), loss="binary_cross_entropy"),
                "lie between 0 and 1",
            ),
            "an odd size": (lambda m: wrong(m, x=np.ones((2, 5, 5, 1))), "at an x of shape"),
            "params to apply": (
                lambda m: wrong(m, model=lambda pair: (pair[0].apply, pair[1]["params"])),
                r"in place of \(module\.apply, params\)",
            ),
        },
    ),
    "batch norm": (
        None,
        {
            "no keyword": (lambda _: _linen(), "keywords of its call"),
            "has_aux of a plain model": (
                lambda _: _linen(lambda *m: gnjax.functional(m, train=False), has_aux=True),
                "leave has_aux out",
            ),
            "statistics as parameters": (
                lambda _: _linen(lambda m, v: (m.apply, v)),
                "differentiated like parameters",
            ),
            "part of a mask": (
                lambda _: _linen(lambda *m: gnjax.functional(m, train=False), mask={"a": 1}),
                r"at BatchNorm_0/bias it has no entry, and \(4,\) is needed",
            ),
            "batches in training": (
                lambda _: _linen(_training, has_aux=True, batch_size=1),
                "splits the samples",
            ),
            "a train state without them": (lambda _: _linen(_train_state), "statistics included"),
        },
    ),
}
