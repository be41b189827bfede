"""What goes wrong with models of Equinox and Haiku."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest
from flax import nnx

import gnjax
from tests.zoo import images
from tests.zoo.mistakes import case_of, wrong


def _equinox(name):
    return getattr(pytest.importorskip("equinox"), name)


def _haiku(model, made):
    x = case_of(made).x
    return gnjax.ntk(model(*images.haiku_parts(x)), x)


def _mean_over_samples(f, y):
    return optax.l2_loss(f, y).mean(axis=1)


MISTAKES = {
    "equinox autoencoder": (
        images.equinox_autoencoder,
        {
            "mapped": (lambda m: wrong(m, model=jax.vmap), "got function"),
            "partitioned": (
                lambda m: wrong(
                    m, model=lambda model: _equinox("partition")(model, _equinox("is_array"))
                ),
                "goes in alone",
            ),
            "y flat": (lambda m: wrong(m, y=np.ones((3, 4))), r"targets \(3, 2, 2\)"),
            "a filter of NNX": (lambda m: wrong(m, only=nnx.Param), "by a pattern of the path"),
        },
    ),
    "equinox logistic regression": (
        images.equinox_logistic,
        {
            "labels of -1 and 1": (lambda m: wrong(m, y=np.array([1, -1, 1])), r"\(y \+ 1\) // 2"),
            "a weight for each class": (lambda m: wrong(m, weights=[1.0, 2.0]), "one for each"),
            "weights in a dict": (lambda m: wrong(m, weights={0: 1.0}), "must be one array"),
        },
    ),
    "haiku resnet": (
        images.haiku_resnet,
        {
            "no keyword": (lambda m: _haiku(lambda *parts: parts, m), "keywords of its call"),
            "no state": (lambda m: _haiku(lambda *parts: parts[:2], m), "params, state"),
            "apply": (lambda m: _haiku(lambda t, p, _: (t.apply, p), m), "the model raises"),
        },
    ),
    "haiku mlp, huber loss": (
        images.haiku_mlp,
        {
            "no y": (lambda m: wrong(m, y=...), "second argument, and none came"),
            "one target for all": (lambda m: wrong(m, y=np.ones((3, 1))), "would be stretched"),
            "a loss of the batch": (
                lambda m: wrong(m, loss=_mean_over_samples),
                "called for every sample by itself",
            ),
            "apply": (
                lambda m: wrong(m, gnjax.ntk, model=lambda pair: (pair[0].apply, pair[1])),
                "the model raises",
            ),
        },
    ),
}
