"""A network with two hidden layers, for `python -m gnjax diagnose mymodel:factory`."""

import jax

import gnjax


def factory():
    return gnjax.models.MLP((784, 100, 100, 10), activation="relu", key=jax.random.key(0))
