"""What a factory may return at the command line: each form of a model, alone, with x, with y."""

import argparse
import sys
from types import SimpleNamespace

import flax.linen
import jax
import numpy as np
import optax
import pytest
from flax.training.train_state import TrainState

import gnjax
from gnjax.cli import factories

X = np.random.default_rng(0).standard_normal((5, 3))
Y = np.arange(5)
LINEN = flax.linen.Dense(2)
VARIABLES = LINEN.init(jax.random.key(0), X)


class _Layer:
    """In place of a layer of Keras, which is not imported."""

    def __call__(self, x):
        return x


def _equinox():
    eqx = pytest.importorskip("equinox")
    return eqx.nn.Linear(3, 2, key=jax.random.key(0))


def _equinox_with_state():
    eqx = pytest.importorskip("equinox")
    return eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, "samples", mode="batch")


def _haiku(transform, parts):
    hk = pytest.importorskip("haiku")
    transformed = getattr(hk, transform)(lambda x: hk.Linear(2)(x))
    variables = transformed.init(jax.random.key(0), X)
    return transformed, *(variables if parts == 3 else (variables,))


def _train_state():
    return TrainState.create(apply_fn=LINEN.apply, params=VARIABLES, tx=optax.sgd(0.1))


FORMS = {
    "NNX": lambda: gnjax.models.MLP((3, 2), key=jax.random.key(0)),
    "Linen with variables": lambda: (LINEN, VARIABLES),
    "a function with parameters": lambda: (lambda w, x: x @ w, np.ones((3, 2))),
    "TrainState": _train_state,
    "Equinox": _equinox,
    "Equinox with state": _equinox_with_state,
    "Haiku": lambda: _haiku("transform", 2),
    "Haiku with state": lambda: _haiku("transform_with_state", 3),
    "Keras": _Layer,
}


def _problem(returned, **call):
    parsed = {"data": None, "samples": None, "seed": 0, **call}
    return factories.problem(argparse.Namespace(**parsed), returned)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_model_goes_in_alone_with_x_and_with_y(form, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", SimpleNamespace(Layer=_Layer))
    model = FORMS[form]()
    assert _problem((model, X)) == (model, X, None)
    assert _problem((model, X, Y)) == (model, X, Y)
    with pytest.raises(factories.MistakeError, match="it returns no inputs"):
        _problem(model)
    monkeypatch.setattr(factories, "_fitting", lambda given, _: ("fitted", given))
    assert _problem(model, data="digits", samples=3) == (model, "fitted", model)


@pytest.mark.parametrize("returned", [3, None, [], (), (X,)], ids=repr)
def test_what_is_no_model_is_refused_with_its_type(returned):
    with pytest.raises(factories.MistakeError, match=f"not {type(returned).__name__}"):
        _problem(returned)
