"""What goes wrong with networks of the sciences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import gnjax
from tests.zoo import science
from tests.zoo.mistakes import case_of, ending_in, wrong


def _growing(model):
    """A step size of one's own: the loop ends when the numbers have grown."""

    def apply(p, x):
        def step(z):
            return 1.1 * z + jnp.tanh(z @ p["in"]) @ p["out"]

        return jax.lax.while_loop(lambda z: jnp.abs(z).max() < 3, step, x)

    return apply, model[1]


def _solved_by_scipy(model):
    integrate = __import__("scipy.integrate").integrate

    def apply(p, x):
        return integrate.solve_ivp(lambda t, z: z, (0, 1), x[0]).y.T

    return apply, model[1]


def _hessian_of(made, *order):
    """``gnjax.hessian_of`` of the loss and the parameters, in some order."""
    given = case_of(made).model
    return gnjax.hessian_of(*(given[place] for place in order), case_of(made).x)


def _misspelt_loss(f, y):
    return jnp.square(f["reconstruction"] - y).sum()


def _loss_of_the_batch(f, y):
    return jnp.square(f["image"] - y).sum(axis=1).mean()


MISTAKES = {
    "physics-informed": (
        science.pinn,
        {
            "the mean of the residuals": (
                lambda m: wrong(m, model=ending_in(lambda f: jnp.square(f).mean()), y=...),
                "one entry for each sample",
            ),
            "one point": (lambda m: wrong(m, x=np.ones(2)), "goes in as x.None"),
            "parameters first": (lambda m: _hessian_of(m, 1, 0), "loss_fn must be a function"),
            "residuals as a loss": (lambda m: _hessian_of(m, 0, 1), "take the mean or the sum"),
        },
    ),
    "differential equation": (
        science.neural_ode,
        {
            "a step size of one's own": (lambda m: wrong(m, model=_growing), "custom_vjp"),
            "the number of steps": (
                lambda m: wrong(m, model=lambda pair: (pair[0], {**pair[1], "steps": 4})),
                "has dtype int",
            ),
            "scipy": (lambda m: wrong(m, model=_solved_by_scipy), "jax.numpy in place of numpy"),
        },
    ),
    "sines of coordinates": (
        science.siren,
        {
            "three coordinates": (lambda m: wrong(m, x=np.ones((3, 3))), "at an x of shape"),
            "one point": (lambda m: wrong(m, x=np.ones(2)), "one entry for each sample"),
        },
    ),
    "variational autoencoder": (
        science.vae,
        {
            "no noise": (lambda m: wrong(m, x=lambda x: {"x": x["x"]}), "no entry 'noise'"),
            "one noise for all": (
                lambda m: wrong(m, x=lambda x: {**x, "noise": x["noise"][0]}),
                "same number of samples first",
            ),
            "another entry": (lambda m: wrong(m, loss=_misspelt_loss), "no entry 'reconstruction'"),
            "a loss of the batch": (
                lambda m: wrong(m, loss=_loss_of_the_batch),
                "called for every sample by itself",
            ),
            "the images alone": (
                lambda m: wrong(m, loss="squared_error"),
                "in the structure of the outputs",
            ),
        },
    ),
    "flow": (
        science.flow,
        {
            "not convex": (
                lambda m: wrong(m, loss=lambda f, y: -jnp.square(f[0]).sum()),
                "not convex in the outputs",
            ),
        },
    ),
    "diffusion": (
        science.diffusion,
        {
            "one time for all": (lambda m: wrong(m, x=lambda x: (x[0], 0.5)), "at least one"),
            "no time": (lambda m: wrong(m, x=lambda x: x[0]), "arguments of a module"),
            "time in a column": (lambda m: wrong(m, x=lambda x: (x[0], x[1][:, None])), "y has"),
        },
    ),
    "counts": (
        science.poisson,
        {
            "overflow": (lambda m: wrong(m, model=ending_in(lambda f: 1e4 * f)), "NaN or infinite"),
            "a name": (lambda m: wrong(m, loss="poisson"), "is not one of squared_error"),
            "a loss of the batch": (
                lambda m: wrong(m, loss=lambda f, y: (jnp.exp(f) - y * f).mean(axis=0)),
                "called for every sample by itself",
            ),
            "strings": (lambda m: wrong(m, y=np.array(["0", "2", "5"])), "got dtype <U1"),
        },
    ),
}
