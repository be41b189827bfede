"""Operators made inside of jax.jit, as in the step of a Hessian-free optimiser."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import gnjax

RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 4))
Y = RNG.standard_normal((7, 3))
WEIGHTS = RNG.random(7)
PARAMS = {"first": RNG.standard_normal((4, 5)), "last": RNG.standard_normal((5, 3)) * (1 + 0.5j)}
LABELS = RNG.integers(-1, 3, 7)


def _apply(p, x):
    return jnp.tanh(x @ p["first"]) @ p["last"].real + (x @ p["first"])[:, :3] @ p["last"][:3].imag


def _cosh(f, y):
    return jnp.cosh(f - y).sum()


LOSSES = {
    "squared error": ("squared_error", Y, lambda f, y: jnp.square(f - y).sum(1) / 2),
    "cross-entropy": (
        "cross_entropy",
        LABELS,
        lambda f, y: jnp.where(
            y < 0, 0, -jnp.take_along_axis(jax.nn.log_softmax(f), y[:, None] % 3, 1)[:, 0]
        ),
    ),
    "binary": (
        "binary_cross_entropy",
        (Y > 0).astype(int),
        lambda f, y: (y * jax.nn.softplus(-f) + (1 - y) * jax.nn.softplus(f)).sum(1),
    ),
    "own": (_cosh, Y, lambda f, y: jnp.cosh(f - y).sum(1)),
}


def _by_hand(apply, losses, params, y, weights):
    """v -> G v by jvp and vjp with B in the middle, and v -> H v by forward over reverse."""
    weights = np.ones(7) if weights is None else weights
    counts = weights if y.ndim > 1 else weights * (y >= 0)

    def total(f):
        return (weights * losses(f, y)).sum() / counts.sum()

    def gauss_newton(v):
        f, image = jax.jvp(lambda p: apply(p, X), (params,), (v,))
        image = jax.jvp(jax.grad(total), (f,), (image,))[1]
        return jax.vjp(lambda p: apply(p, X), params)[1](image)[0]

    def hessian(v):
        return jax.jvp(jax.grad(lambda p: total(apply(p, X))), (params,), (v,))[1]

    return gauss_newton, hessian


REAL = {"first": PARAMS["first"], "last": PARAMS["last"].real}
DIRECTION = jax.tree.map(lambda leaf: RNG.standard_normal(leaf.shape), REAL)


def _real(p, x):
    return jnp.tanh(x @ p["first"]) @ p["last"]


def _centred(p, x):
    return _real(p, x) - _real(p, x).mean(axis=0, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["no weights", "weights"])
@pytest.mark.parametrize("case", LOSSES)
def test_products_inside_of_jit_are_those_of_an_operator_made_outside_and_those_by_hand(
    case, weights
):
    """Parameters, samples, targets and weights are traced; a coupled model in one case."""
    loss, y, losses = LOSSES[case]
    apply = _centred if case == "own" else _real

    def products(params, x, y, weights, v):
        arguments = {"loss": loss, "weights": weights}
        G = gnjax.gauss_newton((apply, params), x, y, **arguments)
        H = gnjax.hessian((apply, params), x, y, **arguments)
        return G.mv(v), gnjax.linearised(H).mv(v)

    inside = jax.jit(products)(REAL, X, y, weights, DIRECTION)
    outside = products(REAL, X, y, weights, DIRECTION)
    by_hand = [product(DIRECTION) for product in _by_hand(apply, losses, REAL, y, weights)]
    for images in zip(inside, outside, by_hand, strict=True):
        for leaves in zip(*map(jax.tree.leaves, images), strict=True):
            for other in leaves[1:]:
                np.testing.assert_allclose(leaves[0], other, atol=1e-13)


def _others(params, x):
    module = nnx.Linear(4, 3, param_dtype=float, rngs=nnx.Rngs(0))
    module.kernel[...] = params["first"][:, :3]
    yield gnjax.ntk((_real, params), x)
    yield gnjax.ntk((_real, params), x[:2], x)
    yield gnjax.hessian_of(lambda p, x: jnp.sin(_real(p, x)).sum(), params, x)
    yield gnjax.functional_hessian((_real, params), x, Y)
    yield gnjax.gauss_newton((_real, params), x, only="first") + 0.1
    yield gnjax.gauss_newton((_real, params), x, side="outputs")
    yield gnjax.gauss_newton(module, x)


def test_every_operator_of_a_model_multiplies_inside_of_jit():
    def images(params, x):
        return [op @ jnp.ones(op.shape[1]) for op in _others(params, x)]

    with jax.checking_leaks():
        inside = jax.jit(images)(REAL, X)
    for image, expected in zip(inside, images(REAL, X), strict=True):
        np.testing.assert_allclose(image, expected, atol=1e-13)


def test_complex_parameters_inside_of_jit():
    def image(params, v):
        return gnjax.gauss_newton((_apply, params), X).mv(v)

    inside, outside = jax.jit(image)(PARAMS, PARAMS), image(PARAMS, PARAMS)
    for name, leaf in outside.items():
        np.testing.assert_allclose(inside[name], leaf, atol=1e-13)


def test_a_compiled_step_is_traced_once_and_follows_its_parameters():
    traced = []

    @jax.jit
    def image(params, x, v):
        traced.append(1)
        return gnjax.gauss_newton((_real, params), x).mv(v)

    for factor in (1.0, 2.0):
        params = jax.tree.map(lambda leaf, by=factor: by * leaf, REAL)
        expected = gnjax.gauss_newton((_real, params), X).mv(DIRECTION)
        np.testing.assert_allclose(
            image(params, X, DIRECTION)["first"], expected["first"], atol=1e-12
        )
    assert len(traced) == 1


def _inside(call):
    return jax.jit(lambda p, x: call((_real, p), x))(REAL, X)


NEED_NUMBERS = {  # beside every question about a matrix and a Gauss-Newton matrix, in contracts
    "a sum": lambda m, x: gnjax.condition_number(gnjax.gauss_newton(m, x) + 0.1),
    "a Hessian": lambda m, x: gnjax.eigenvalues(gnjax.hessian(m, x, Y)),
    "the matrix": lambda m, x: gnjax.gauss_newton(m, x).as_matrix(),
    "a kernel": lambda m, x: gnjax.ntk(m, x[:2], x).as_matrix(),
    "the matrix of a Hessian": lambda m, x: gnjax.hessian(m, x, Y).as_matrix(),
    "a factor": lambda m, x: gnjax.gauss_newton(m, x).factor(),
    "blocks": gnjax.block_spectra,
    "a diagnosis": gnjax.diagnose,
    "a metric": lambda m, x: gnjax.preconditioned(gnjax.gauss_newton(m, x), "diagonal"),
    "a monitor": lambda m, x: gnjax.Monitor(x, Y)(0, m),
    "empirical Fisher": lambda m, x: gnjax.empirical_fisher(m, x, Y),
    "batches": lambda m, x: gnjax.gauss_newton(m, [(x, None)]),
    "a batch size": lambda m, x: gnjax.gauss_newton(m, x, batch_size=3),
    "a mask": lambda m, x: gnjax.gauss_newton(m, x, mask=m[1]),
    "a damping": lambda m, x: gnjax.gauss_newton(m, x) + x[0, 0],
}


@pytest.mark.parametrize("case", NEED_NUMBERS)
def test_what_needs_numbers_is_refused_inside_of_jit_in_one_sentence(case):
    with pytest.raises(ValueError, match="needs numbers, and some arrays are traced"):
        _inside(NEED_NUMBERS[case])


def test_shapes_are_checked_inside_of_jit():
    with pytest.raises(ValueError, match=r"y has shape \(3,\), but x has 7 samples"):
        _inside(lambda m, x: gnjax.gauss_newton(m, x, x[:3, 0], loss="cross_entropy"))
