"""The class: a layer multiplies its inputs in the precision of the network, whatever their type.

JAX multiplies float64 weights with booleans, with integers and with half precision as they come in,
exactly. What is formed from the inputs of layers (kernels, blocks, metrics, streams, ranks) must be
the same as for the same numbers in float64, which are exact in every type here.
"""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import gnjax
from gnjax.operators.facts import rank_of
from tests import references

N = 4
INTEGERS = ("uint8", "int8", "int16", "int32", "uint32")
HALVES = ("float16", "bfloat16")
TYPES = ("bool", *INTEGERS, *HALVES)

SHAPES = {  # of the parameter, and of the input of one sample
    "convolution": ((2, 2, 1, 2), (3, 3, 1)),
    "dense": ((3, 2), (3,)),
    "dense at positions": ((3, 2), (2, 3)),
    "grouped": ((2, 3, 2), (2, 3)),
    "left": ((2, 3), (3,)),
    "lookup": ((5, 2), (2,)),
    "lookup at many positions": ((3, 2), (4,)),
    "scale": ((3,), (3,)),
    "steps": ((3, 2), (2, 3)),
    "tied": ((3, 2), (3,)),
}


def _convolution(p, x):
    channels_last = ("NHWC", "HWIO", "NHWC")
    alike = x.astype(p.dtype)  # JAX asks for it
    return jax.lax.conv_general_dilated(alike, p, (1, 1), "VALID", dimension_numbers=channels_last)


def _steps(p, x):
    def step(total, row):
        return total + row @ p, None

    return jax.lax.scan(step, jnp.zeros((x.shape[0], 2)), x.swapaxes(0, 1))[0]


LAYERS = {
    "convolution": _convolution,
    "dense": lambda p, x: x @ p,
    "dense at positions": lambda p, x: x @ p,
    "grouped": lambda p, x: jnp.einsum("ngi,gio->ngo", x, p),
    "left": lambda p, x: jnp.einsum("oi,ni->no", p, x),
    "lookup": lambda p, x: p[x.astype(int) % 5].sum(axis=1),
    "lookup at many positions": lambda p, x: p[x.astype(int) % 3].sum(axis=1),
    "scale": lambda p, x: x * p[None],
    "steps": _steps,
    "tied": lambda p, x: (x @ p) @ p.T,
}


def _flat(array):
    return array.reshape(len(array), -1)


def network(name):
    """Every type of layer beside the others, all of about the same size, on inputs of a type."""
    size = float(np.iinfo(name).max) if name in INTEGERS else 1.0

    def apply(params, x):
        outputs = [_flat(LAYERS[key](p, x[key])) / size for key, p in params.items()]
        return jnp.concatenate(outputs, axis=1)

    return apply


def halved(apply, name):
    """The same network, whose inputs are cast to a type inside of it."""
    return lambda params, x: apply(params, jax.tree.map(lambda leaf: leaf.astype(name), x))


def _numbers(rng, name, shape):
    if name == "bool":
        return rng.random(shape) < 0.6
    if name in INTEGERS:  # most of them overflow when two are multiplied in their own type
        return rng.integers(np.iinfo(name).min, np.iinfo(name).max, shape).astype(name)
    return rng.standard_normal(shape).astype(getattr(ml_dtypes, name, name)).astype(float)


def case(name):
    """(model, x) with inputs of a type, and the same with inputs in float64."""
    rng = np.random.default_rng(TYPES.index(name))
    params = {key: rng.standard_normal(shape) for key, (shape, _) in SHAPES.items()}
    x = {key: _numbers(rng, name, (N, *shape)) for key, (_, shape) in SHAPES.items()}
    wide = jax.tree.map(lambda leaf: leaf.astype(float), x)
    apply = network(name)
    return (halved(apply, name) if name in HALVES else apply, params), x, (apply, params), wide


def assert_same(found, expected):
    """To the rounding of a few hundred float64 operations, relative to the largest entry."""
    found, expected = np.asarray(found), np.asarray(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.fixture(scope="module", params=["bool", "uint8", "int32", "float16"])
def both(request):
    """A type of every kind: all of them take the same way."""
    return case(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
def test_kernels_are_those_of_the_same_numbers_in_float64(name):
    given, x, (plain, params), wide = case(name)
    jacobian = np.asarray(references.jacobian(plain, params, wide))
    op = gnjax.ntk(given, x, side="outputs")
    assert_same(op.as_matrix(), op.scale * jacobian @ jacobian.T)
    whole = gnjax.gauss_newton(given, x, side="parameters").as_matrix()
    assert_same(whole, jacobian.T @ jacobian / N)


def test_blocks_are_those_of_the_same_numbers_in_float64(both):
    """From kernels: every block has more parameters than J has rows, and no factor is wanted."""
    (_, params), x, _, wide = both
    chosen = {name: params[name] for name in ("dense", "left")}

    def model(p, x):
        return LAYERS["dense"](p["dense"], x["dense"]) + LAYERS["left"](p["left"], x["left"])

    def found(x):
        some = jax.tree.map(lambda leaf: leaf[:2], x)
        op = gnjax.ntk((model, chosen), some)
        return gnjax.block_spectra(op, by="parameter", limits=gnjax.Limits(factor_work=0))

    spectra, expected = found(x), found(wide)
    assert spectra.method == "kernels"
    for one, other in zip(spectra.blocks, expected.blocks, strict=True):
        values, errors = one.spectrum.values, one.spectrum.errors
        assert (np.abs(values - other.spectrum.values) <= errors + other.spectrum.errors).all()
        assert errors.max() <= 1e-12 * values.max()  # not so wide as to say nothing


@pytest.mark.parametrize("metric", [gnjax.metrics.kfac, gnjax.metrics.ekfac])
def test_metrics_are_those_of_the_same_numbers_in_float64(both, metric):
    given, x, plain, wide = both
    found, expected = (
        metric(gnjax.gauss_newton(model, inputs, side="parameters"), damping=0.0)
        for model, inputs in ((given, x), (plain, wide))
    )
    for one, other in zip(found.blocks, expected.blocks, strict=True):
        assert_same(one.as_matrix(), other.as_matrix())


def test_streams_are_those_of_the_same_numbers_in_float64(both):
    given, x, plain, wide = both
    batches = [(jax.tree.map(lambda leaf, i=i: leaf[i : i + 2], x), None) for i in (0, 2)]
    streamed = gnjax.gauss_newton(given, batches)
    expected = gnjax.gauss_newton(plain, wide, side="parameters").as_matrix()
    assert_same(streamed.as_matrix(), expected)
    v = np.random.default_rng(0).standard_normal(len(expected))
    assert_same(streamed.mv(v), expected @ v)


def test_products_with_a_stored_jacobian_are_those_of_the_same_numbers_in_float64(both):
    given, x, plain, wide = both
    op, same = (
        gnjax.ntk(model, inputs, side="outputs") for model, inputs in ((given, x), (plain, wide))
    )
    v = np.random.default_rng(0).standard_normal(op.shape[0])
    assert_same(gnjax.with_jacobian(op).mv(v), same.as_matrix() @ v)


def _rank_bounds(name):
    given, x, plain, wide = case(name)
    pairs = ((given, x), (plain, wide))
    return tuple(rank_of(gnjax.ntk(model, inputs, side="outputs")).value for model, inputs in pairs)


@pytest.mark.parametrize("name", ["bool", "uint8", "int32"])
def test_ranks_are_those_of_the_same_numbers_in_float64(name):
    found, expected = _rank_bounds(name)
    assert found == expected


def test_of_a_rank_less_is_known_where_a_coarse_format_rounds():
    found, expected = _rank_bounds("float16")
    assert found >= expected


@pytest.mark.parametrize("name", ["bool", "uint8", "int8", "int32"])
def test_kappa_by_the_matrix_holds_that_by_the_factor(name):
    _, x, (_, params), wide = case(name)
    model, w = LAYERS["dense"], params["dense"]  # 6 parameters, and 4 rows of J
    jacobian = np.asarray(references.jacobian(model, w, wide["dense"][:2]))
    values = np.linalg.svd(jacobian, compute_uv=False) ** 2
    kappa = gnjax.condition_number(gnjax.ntk((model, w), x["dense"][:2]), method="dense")
    assert kappa.resolved
    assert kappa.interval[0] <= values[0] / values[-1] <= kappa.interval[1]


def test_complex_inputs_are_refused_with_what_to_give_in_their_place():
    model = (lambda p, x: (x @ p).real, np.ones((2, 1)))
    with pytest.raises(ValueError, match="complex128; pass the real and the imaginary part"):
        gnjax.ntk(model, np.ones((3, 2), complex))


def test_real_weights_on_complex_values_inside_of_a_network_are_differentiated():
    """J is then the real part of what the structure of the layer says."""
    rng = np.random.default_rng(1)
    w, x = rng.standard_normal((4, 2)), rng.standard_normal((3, 6))

    def model(p, x):
        return jnp.square(jnp.abs(jnp.fft.rfft(x) @ p))

    jacobian = np.asarray(references.jacobian(model, w, x))
    op = gnjax.ntk((model, w), x, side="outputs")
    assert_same(op.as_matrix(), op.scale * jacobian @ jacobian.T)


def _fourier(p, x):
    """The layer of a Fourier neural operator: some frequencies times complex weights, then back."""
    low = jnp.fft.rfft(x, axis=1)[:, :3]
    mixed = jnp.einsum("nkc,kco->nko", low, jax.lax.complex(p["re"], p["im"]))
    whole = jnp.zeros((x.shape[0], 5, 3), mixed.dtype).at[:, :3].set(mixed)
    return jnp.fft.irfft(whole, n=8, axis=1)


COMPLEX = {
    "fourier": lambda p, x: jnp.tanh(_fourier(p, x)).mean(axis=1),
    "modulus": lambda p, x: jnp.abs(jnp.fft.fft(x @ p["w"], axis=1)).mean(axis=1),
    "square": lambda p, x: jnp.square(jnp.fft.rfft(x @ p["w"], axis=1)).real.mean(axis=1),
    "quotient": lambda p, x: ((x @ p["w"]) / jax.lax.complex(x[..., :1], x[..., 1:])).real[:, 0],
}


@pytest.mark.parametrize("name", COMPLEX)
def test_no_imaginary_part_is_dropped_with_a_warning(name):
    """Beside zeros, such as a channel without a signal, whose products may have underflowed."""
    rng = np.random.default_rng(3)
    shapes = {"re": (3, 2, 3), "im": (3, 2, 3), "w": (2, 3)}
    params = {key: rng.standard_normal(shape) for key, shape in shapes.items()}
    x = rng.standard_normal((2, 8, 2))
    x[:, ::2, 1] = 0.0
    jacobian = np.asarray(references.jacobian(COMPLEX[name], params, x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        op = gnjax.gauss_newton((COMPLEX[name], params), x, side="outputs")
        spectrum = gnjax.eigenvalues(op)
        gnjax.eigenvalues(gnjax.hessian((COMPLEX[name], params), x, np.zeros((2, 3))), k=1)
    exact = np.linalg.eigvalsh(jacobian @ jacobian.T / 2)[::-1]
    rounding = 1e-13 * exact[0]  # of the reference
    assert (np.abs(spectrum.values - exact) <= spectrum.errors + rounding).all()
