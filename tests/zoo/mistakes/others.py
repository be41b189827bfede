"""What goes wrong with graphs, experts, adapters, fixed points and several outputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import gnjax
from tests.zoo import others
from tests.zoo.mistakes import case_of, ending_in, wrong


def _with_params(**others):
    return lambda model: (lambda p, x: model[0](p, x), {**model[1], **others})


def _iterated(model):
    """The fixed point by a loop that ends when nothing moves any more."""

    def apply(p, x):
        def step(z):
            return jnp.tanh(z @ p["w"] + x)

        def moves(z):
            return jnp.abs(z - step(z)).max() > 1e-9

        return jax.lax.while_loop(moves, step, jnp.zeros_like(x)) @ p["head"]

    return apply, model[1]


def _misspelt_loss(f, y):
    return optax.l2_loss(f["values"], y["value"])


MISTAKES = {
    "graphs": (
        others.graphs,
        {
            "a list of two arrays": (lambda m: wrong(m, x=list), "give a tuple or a dict"),
            "a list of graphs": (
                lambda m: wrong(m, x=lambda x: list(zip(*x, strict=True))),
                "stack x to arrays",
            ),
            "one adjacency": (
                lambda m: wrong(m, x=lambda x: (x[0], x[1][0])),
                "same number of samples first",
            ),
            "nodes alone": (lambda m: wrong(m, x=lambda x: x[0]), "several arguments of a module"),
        },
    ),
    "one graph": (
        others.one_graph,
        {
            "batches of it": (lambda m: wrong(m, batch_size=2), "leave batch_size out"),
            "a generator": (
                lambda m: wrong(m, x=lambda x: (pair for pair in [(x, None)]), y=...),
                "passed over once only",
            ),
        },
    ),
    "mixture of experts": (
        others.experts,
        {
            "a name": (lambda m: wrong(m, model=_with_params(kind="moe")), "is of type str"),
            "a number": (lambda m: wrong(m, model=_with_params(top_k=1)), "has dtype int"),
            "x first": (
                lambda m: wrong(m, model=lambda pair: (lambda x, p: pair[0](p, x), pair[1])),
                r"apply.params, x.",
            ),
            "a vector": (
                lambda m: gnjax.ntk((lambda p, x: x @ p, np.ones((3, 3))), np.ones(3)),
                "single sample; give x.None",
            ),
        },
    ),
    "deep equilibrium": (
        others.deq,
        {
            "a loop of any length": (lambda m: wrong(m, model=_iterated), "custom_vjp"),
            "a root at zero": (
                lambda m: wrong(m, model=ending_in(lambda f: jnp.sqrt(f * 0))),
                "derivative of the model",
            ),
            "numpy": (lambda m: wrong(m, model=ending_in(np.tanh)), "jax.numpy in place of"),
            "kappa of a Hessian": (
                lambda m: gnjax.condition_number(wrong(m, gnjax.hessian)),
                "gnjax.eigenvalues gives",
            ),
            "kappa of a model": (
                lambda m: gnjax.condition_number(case_of(m).model),
                r"such as gnjax\.gauss_newton\(model, x\)",
            ),
        },
    ),
    "lora": (
        others.lora,
        {
            "a layer's type": (lambda m: wrong(m, only=nnx.Linear), "no type of NNX variables"),
            "one pattern of two": (
                lambda m: wrong(m, only=["*lora_a", "*lora_x"]),
                "'.lora_x' chooses no parameter",
            ),
            "a function of two": (
                lambda m: wrong(m, only=lambda path, leaf: True),
                "the path of a parameter, one string",
            ),
        },
    ),
    "two heads": (
        others.two_heads,
        {
            "a loss of one array": (lambda m: wrong(m, loss="cross_entropy"), "returns 2; pass a"),
            "another entry": (lambda m: wrong(m, loss=_misspelt_loss), "no entry 'values'"),
            "weights of each": (lambda m: wrong(m, weights={"class": 1}), "must be one array"),
            "a label too high": (
                lambda m: wrong(m, y={"class": np.array([0, 1, 5]), "value": np.ones(3)}),
                "the loss is NaN",
            ),
        },
    ),
    "spectrum inside": (
        others.spectrum_inside,
        {
            "complex outputs": (
                lambda m: wrong(m, model=ending_in(jnp.fft.fft), loss="cross_entropy"),
                "modulus",
            ),
            "batches in dicts": (
                lambda m: wrong(m, x=lambda x: [{"x": x, "y": x}], y=...),
                r"a batch is a pair \(x, y\)",
            ),
            "batches of three": (
                lambda m: wrong(m, x=lambda x: [(x, x, x)], y=...),
                "got tuple of 3",
            ),
        },
    ),
}
