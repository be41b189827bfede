"""Complex parameters and outputs: beside dense complex Jacobians, and beside (Re, Im) by hand."""

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.flatten_util import ravel_pytree

import gnjax
from gnjax.networks.parameters import paths
from tests import references

RNG = np.random.default_rng(0)
SPINS = RNG.choice([-1.0, 1.0], (9, 4))
CHANCE = RNG.random(9)
CHANCE /= CHANCE.sum()


def _drawn(*shape):
    return 0.4 * (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape))


PARAMS = {"couplings": _drawn(4, 2), "hidden": _drawn(2), "shift": RNG.standard_normal(2)}
ALL_COMPLEX = {**PARAMS, "shift": _drawn(2)}
EPS = 2.0**-52


def _log_psi(p, s):
    """Holomorphic in all of its parameters (n,)."""
    field = s @ p["couplings"] + p["hidden"][None]
    return jnp.log(2 * jnp.cosh(field)).sum(axis=1) + s[:, :2] @ p["shift"]


def _centred(p, s):
    values = _log_psi(p, s)
    return values - CHANCE @ values


def _not_holomorphic(p, s):
    """Two outputs for each sample; conjugates and absolute values of the parameters."""
    return jnp.stack([_log_psi(p, s) * jnp.conj(p["hidden"][0]), 1j * abs(_log_psi(p, s))], axis=1)


def _dict(p, s):
    return {"log": _log_psi(p, s), "size": abs(_log_psi(p, s))}


MODELS = {
    "holomorphic": (_log_psi, ALL_COMPLEX),
    "centred": (_centred, ALL_COMPLEX),
    "real and complex parameters": (_not_holomorphic, PARAMS),
    "real parameters": (
        lambda p, s: _log_psi({**p, "hidden": 1j * p["hidden"]}, s),
        jax.tree.map(np.real, PARAMS),
    ),
    "real outputs": (lambda p, s: _log_psi(p, s).real, PARAMS),
    "a dict": (_dict, PARAMS),
}


def _parts(params):
    """The real and the imaginary part of every complex array, as a last axis."""
    return jax.tree.map(
        lambda a: np.stack([a.real, a.imag], -1) if a.dtype == complex else a, params
    )


def _by_hand(apply, like):
    """The function (n, k) of :func:`_parts`, with the parts of its outputs side by side."""

    def joined(parts, leaf):
        return parts[..., 0] + 1j * parts[..., 1] if leaf.dtype == complex else parts

    def real(parts, s):
        outputs = apply(jax.tree.map(joined, parts, like), s)
        flat = [out.reshape(len(s), -1) for out in jax.tree.leaves(outputs)]
        flat = [jnp.stack([a.real, a.imag], -1) if jnp.iscomplexobj(a) else a for a in flat]
        return jnp.concatenate([a.reshape(len(s), -1) for a in flat], axis=1)

    return real


def _jacobian_by_hand(apply, params):
    real, parts = _by_hand(apply, params), _parts(params)
    flat, back = ravel_pytree(parts)
    return np.asarray(jax.jacobian(lambda v: real(back(v), SPINS).reshape(-1))(flat))


@pytest.mark.slow
@pytest.mark.parametrize("case", MODELS)
def test_matrices_are_those_of_real_and_imaginary_parts_by_hand(case):
    """By jax.jacobian of a real function of real parameters, and NumPy's eigenvalues."""
    apply, params = MODELS[case]
    weights = CHANCE if case == "centred" else None
    share = np.full(9, 1 / 9) if weights is None else weights
    J = _jacobian_by_hand(apply, params)
    rows = np.repeat(share, len(J) // 9)[:, None] * J
    op = gnjax.gauss_newton((apply, params), SPINS, weights=weights)
    np.testing.assert_allclose(op.as_matrix(), J.T @ rows, atol=100 * EPS * np.linalg.norm(J) ** 2)
    values = np.linalg.eigvalsh(J.T @ rows) + 0.01
    assert gnjax.condition_number(op + 0.01).value == pytest.approx(
        values[-1] / values[0], rel=1e-9
    )
    kernel = gnjax.ntk((apply, params), SPINS)
    np.testing.assert_allclose(kernel.as_matrix(), J @ J.T, atol=100 * EPS * np.linalg.norm(J) ** 2)


@pytest.mark.parametrize("apply", [_log_psi, _centred], ids=["not centred", "centred"])
def test_the_matrix_of_a_holomorphic_model_is_the_real_form_of_the_geometric_tensor(apply):
    """S = J^H diag(p) J by a complex Jacobian and NumPy's Hermitian eigenvalues."""
    rows = jax.jacobian(apply, holomorphic=True)(ALL_COMPLEX, SPINS + 0j)
    J = np.concatenate([np.asarray(leaf).reshape(9, -1) for leaf in jax.tree.leaves(rows)], axis=1)
    S = J.conj().T @ (CHANCE[:, None] * J)
    op = gnjax.gauss_newton((apply, ALL_COMPLEX), SPINS, weights=CHANCE)
    G = np.asarray(op)
    np.testing.assert_allclose(G[::2, ::2] + 1j * G[1::2, ::2], S, atol=100 * EPS)
    np.testing.assert_allclose(G[1::2, 1::2] - 1j * G[::2, 1::2], S, atol=100 * EPS)
    values, spectrum = np.linalg.eigvalsh(S)[::-1], gnjax.eigenvalues(op)
    distance = np.abs(spectrum.values - np.repeat(values, 2))
    assert (distance <= spectrum.errors + 100 * EPS * values[0]).all()
    low, high = gnjax.condition_number(op + 0.01).interval
    expected = (values[0] + 0.01) / (max(values[-1], 0) + 0.01)
    assert low * (1 - 1e-12) <= expected <= high * (1 + 1e-12)
    v = {name: _drawn(*leaf.shape) for name, leaf in ALL_COMPLEX.items()}
    flat, flat_image = (np.asarray(ravel_pytree(tree)[0]) for tree in (v, op.mv(v)))
    np.testing.assert_allclose(flat_image, S @ flat, atol=1000 * EPS)


def test_the_hessian_with_complex_targets_is_that_of_the_real_loss_by_hand():
    y = _drawn(9, 2)
    real, parts = _by_hand(_not_holomorphic, PARAMS), _parts(PARAMS)
    flat, back = ravel_pytree(parts)
    wanted = np.stack([y.real, y.imag], -1).reshape(9, -1)

    def loss(v):
        return jnp.square(real(back(v), SPINS) - wanted).sum() / 18

    expected = references.hessian(loss, flat)
    model = (_not_holomorphic, PARAMS)
    own = gnjax.hessian(model, SPINS, y, loss=lambda f, y: jnp.square(f - y).sum() / 2)
    scalar = gnjax.hessian_of(
        lambda p: (abs(_not_holomorphic(p, SPINS) - y) ** 2).sum() / 18, PARAMS
    )
    for op in (gnjax.hessian(model, SPINS, y), own, scalar):
        np.testing.assert_allclose(op.as_matrix(), expected, atol=1e-12)


def test_masks_paths_and_blocks_are_those_of_the_complex_arrays():
    model, whole = (_log_psi, PARAMS), np.asarray(gnjax.gauss_newton((_log_psi, PARAMS), SPINS))
    mask = {"couplings": np.eye(4, 2), "hidden": np.array([0, 1]), "shift": np.array([1, 0])}
    kept = np.concatenate([np.repeat(np.eye(4, 2).ravel(), 2), [0, 0, 1, 1], [1, 0]]) > 0
    masked = gnjax.gauss_newton(model, SPINS, mask=mask)
    np.testing.assert_allclose(masked.as_matrix(), whole[kept][:, kept], atol=100 * EPS)
    one = gnjax.gauss_newton(model, SPINS, only="hidden")
    np.testing.assert_allclose(one.as_matrix(), whole[16:20, 16:20], atol=100 * EPS)
    blocks = gnjax.block_spectra(model, SPINS, by="parameter").blocks
    assert [block.name for block in blocks] == ["couplings", "hidden", "shift"]
    tree = masked.unravel(masked.ravel(PARAMS))
    for name, leaf in PARAMS.items():
        np.testing.assert_array_equal(tree[name], np.where(mask[name], leaf, 0))


class _Rbm(nnx.Module):
    def __init__(self):
        self.dense = nnx.Linear(4, 2, param_dtype=complex, rngs=nnx.Rngs(0))
        self.dense.kernel[...] = ALL_COMPLEX["couplings"]

    def __call__(self, s):
        return jnp.log(jnp.cosh(self.dense(s))).sum(axis=-1)


def _of_frameworks():
    class Linen(flax.linen.Module):
        @flax.linen.compact
        def __call__(self, s):
            return jnp.log(jnp.cosh(flax.linen.Dense(2, param_dtype=complex)(s))).sum(axis=-1)

    kernel, bias = ALL_COMPLEX["couplings"], np.zeros(2, complex)
    yield _Rbm()
    yield Linen(), {"params": {"Dense_0": {"kernel": kernel, "bias": bias}}}
    eqx = pytest.importorskip("equinox")
    linear = eqx.nn.Linear(4, 2, dtype=complex, key=jax.random.key(0))
    linear = eqx.tree_at(lambda m: (m.weight, m.bias), linear, (jnp.array(kernel.T), bias))
    yield eqx.nn.Sequential([linear, eqx.nn.Lambda(lambda f: jnp.log(jnp.cosh(f)).sum())])


def test_modules_with_complex_parameters_go_in_as_they_are():
    answers = []
    for model in _of_frameworks():
        op = gnjax.gauss_newton(model, SPINS)
        _, params = gnjax.functional(model)
        image = op.mv(jax.tree.map(jnp.ones_like, params))
        assert paths(image) == paths(params)
        assert all(leaf.dtype == complex for leaf in jax.tree.leaves(image))
        answers.append(gnjax.condition_number(op + 0.1).value)
    np.testing.assert_allclose(answers, answers[0], rtol=1e-10)


def _distance(params):
    return abs(_log_psi(params, SPINS) - 1).sum()


@pytest.mark.parametrize("optimizer", [optax.adam(1e-2), optax.rmsprop(1e-2)], ids=["Adam", "RMS"])
def test_a_metric_is_one_number_for_both_parts_of_a_complex_parameter(optimizer):
    """P of the optimiser's next update; and as a tree of real and of complex numbers by hand."""
    params = jax.tree.map(jnp.asarray, ALL_COMPLEX)
    gradient = jax.tree.map(jnp.conj, jax.jit(jax.grad(_distance))(params))
    _, state = jax.jit(optimizer.update)(gradient, jax.jit(optimizer.init)(params), params)
    op = gnjax.gauss_newton((_log_psi, params), SPINS)
    of_optimiser = gnjax.metrics.optimizer_metric(op, state, optimizer).as_matrix().diagonal()
    sizes = jax.tree.map(jnp.abs, gradient)  # after the first step, up to a factor and eps
    P = np.repeat(np.asarray(ravel_pytree(sizes)[0]), 2)
    np.testing.assert_allclose(of_optimiser / of_optimiser[0], P / P[0], rtol=1e-4)
    for form in (sizes, jax.tree.map(lambda p: p * (1 + 1j), sizes)):
        scaled = gnjax.preconditioned(op, form).as_matrix()
        expected = np.asarray(op) / np.sqrt(np.outer(P, P))
        np.testing.assert_allclose(scaled, expected, atol=1e-13 * np.abs(expected).max())
    alone = gnjax.metrics.optimizer_metric(op, state).as_matrix().diagonal()
    np.testing.assert_allclose(alone / alone[0], P / P[0], rtol=1e-4)


@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
def test_complex_numbers_in_single_precision():
    single = jax.tree.map(np.complex64, ALL_COMPLEX)
    expected = np.asarray(gnjax.gauss_newton((_log_psi, single), SPINS))
    with jax.enable_x64(False):
        matrix = np.asarray(gnjax.gauss_newton((_log_psi, single), np.float32(SPINS)))
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(matrix, expected, atol=1e-5)


WRONG = {
    "cross-entropy": (
        lambda: gnjax.gauss_newton(
            (lambda p, s: s @ p["couplings"], PARAMS), SPINS, np.zeros(9, int), loss="cross_entropy"
        ),
        "takes real outputs, and the model returns complex ones",
    ),
    "complex targets": (
        lambda: gnjax.hessian((lambda p, s: _log_psi(p, s).real, PARAMS), SPINS, _drawn(9)),
        "real targets, got dtype complex128",
    ),
    "labels": (
        lambda: gnjax.hessian((_not_holomorphic, PARAMS), SPINS, np.zeros((9, 2), int)),
        r"targets \(9, 2, 2\) are needed",
    ),
    "real trees": (
        lambda: gnjax.gauss_newton((_log_psi, PARAMS), SPINS).ravel(jax.tree.map(np.real, PARAMS)),
        "a complex array counts as its two parts",
    ),
    "not finite": (
        lambda: gnjax.ntk((_log_psi, {**PARAMS, "hidden": np.array([1j * np.inf, 0])}), SPINS),
        "the parameter hidden of the model contains NaN or Inf",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_has_no_meaning_with_complex_numbers_is_refused(case):
    call, words = WRONG[case]
    with pytest.raises(ValueError, match=words):
        call()
