"""Parts of G and of the gradient noise by class and by token, against loops of jax.grad, jacrev."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from jax.flatten_util import ravel_pytree

import gnjax
from tests.references import jacobian

RNG = np.random.default_rng(5)
N, T, V = 6, 3, 4
TOKENS = RNG.integers(0, V, (N, T))
NEXT = np.array([[1, 0, 0], [0, 2, -1], [0, 0, 0], [3, 1, 0], [0, 2, 0], [1, 0, -1]])
HEAD = {"bias": RNG.standard_normal(V), "kernel": RNG.standard_normal((3, V))}
PARAMS = jax.device_put({"embed": RNG.standard_normal((V, 3)), "head": HEAD})
FLAT, UNRAVEL = ravel_pytree(PARAMS)
P = len(FLAT)


def language(params, x):
    h = jnp.cumsum(jnp.tanh(params["embed"][x]), axis=1)
    return h @ params["head"]["kernel"] + params["head"]["bias"][None, None]


def classifier(params, x):
    return language(params, x)[:, -1]


CLASSES = np.array([2, 0, 0, 1, 0, 2])
LANGUAGE = gnjax.gauss_newton((language, PARAMS), TOKENS, y=NEXT, loss="cross_entropy")
CLASSIFIER = gnjax.gauss_newton((classifier, PARAMS), TOKENS, y=CLASSES, loss="cross_entropy")


@jax.jit
def _logits(v, i, t):
    return language(UNRAVEL(v), jnp.asarray(TOKENS)[i][None])[0, t]


_jacobian = jax.jit(jax.jacrev(_logits))


@jax.jit
@jax.grad
def _token_gradient(v, i, t):
    label = jnp.asarray(NEXT)[i, t]
    return -jax.nn.log_softmax(_logits(v, i, t))[label] * (label >= 0)


def _part_of(i, t):
    """J^T (diag(p) - p p^T) J of one token."""
    jacobian = np.asarray(_jacobian(FLAT, i, t))
    p = scipy.special.softmax(_logits(FLAT, i, t))
    return jacobian.T @ (np.diag(p) - np.outer(p, p)) @ jacobian


def _token_parts(labels):
    """sum over the tokens of each label of J^T (diag(p) - p p^T) J / total."""
    total, parts = (NEXT >= 0).sum(), {}
    for i in range(N):
        for t in range(T):
            if NEXT[i, t] < 0:
                continue
            parts[labels[i, t]] = parts.get(labels[i, t], 0) + _part_of(i, t) / total
    return parts


def _token_gradients():
    """The gradients of all tokens that count, (N, T, p); zero for the others."""
    return np.array([[_token_gradient(FLAT, i, t) for t in range(T)] for i in range(N)])


def _agree(found, parts, terms):
    assert [block.name for block in found.blocks] == [str(label) for label in sorted(parts)]
    whole = sum(parts.values())
    norm = np.linalg.norm(whole, 2)
    for label, part in parts.items():
        block = found[str(label)]
        exact = np.linalg.eigvalsh(part)[::-1]
        off = np.abs(block.spectrum.values - exact)
        assert off.max() < 1e-10 * norm
        assert (off <= block.spectrum.errors + 1e-14 * norm).all()
        assert block.spectrum.errors.max() < 1e-9 * norm
        assert block.terms == terms[label]
        assert block.parameters == len(exact)
        assert abs(block.trace - np.trace(part)) < 1e-10 * norm
    share = 1 - sum(np.sum(part**2) for part in parts.values()) / np.sum(whole**2)
    assert abs(found.off_block_share - share) < 1e-10
    assert abs(found.off_block_share - share) <= found.off_block_error.value + 1e-14


def test_tokens_of_each_class():
    found = gnjax.block_spectra(LANGUAGE, labels=NEXT)
    terms = {label: int((label == NEXT).sum()) for label in range(V)}
    _agree(found, _token_parts(NEXT), terms)


def test_the_kernel_of_wide_networks():
    """With more parameters than twice the rows the kernel is the smaller one."""
    model = gnjax.models.MLP((4, 30, 2), activation="tanh", key=jax.random.key(0))
    x, y = RNG.standard_normal((8, 4)), np.array(["b", "a", "b", "b", "a", "a", "a", "b"])
    op = gnjax.gauss_newton(model, x)
    limits = gnjax.Limits(factor_bytes=16.0 * 16**2)
    found = gnjax.block_spectra(op, labels=y, limits=limits)
    assert found.method == "kernels"
    again = gnjax.block_spectra(op, labels=y)
    assert again.method == "jacobian"
    apply, params = gnjax.functional(model)
    parts = {}
    for i, label in enumerate(y):
        j = np.asarray(jacobian(apply, params, x[i : i + 1]))
        parts[str(label)] = parts.get(str(label), 0) + j.T @ j / 8
    _agree(found, parts, {"a": 4, "b": 4})
    _agree(again, parts, {"a": 4, "b": 4})
    targets = RNG.standard_normal((8, 2))
    noise = gnjax.empirical_fisher(model, x, targets)
    loss = lambda p, x, y: jnp.square(apply(p, x) - y).sum() / 2  # noqa: E731
    gradient = jax.jit(lambda *given: ravel_pytree(jax.grad(loss)(*given))[0])
    g = np.array([gradient(params, x[[i]], targets[[i]]) for i in range(8)])
    g -= g.mean(axis=0)
    parts = {label: g[y == label].T @ g[y == label] / 8 for label in "ab"}
    limits = gnjax.Limits(factor_bytes=16.0 * 8**2)
    found = gnjax.block_spectra(noise, labels=y, centred=True, limits=limits)
    assert found.method == "kernels"
    _agree(found, parts, {"a": 4, "b": 4})


def test_samples_of_each_class_and_a_label_that_is_left_out():
    labels = np.where(CLASSES == 1, -1, CLASSES)
    parts = {}
    for i, label in enumerate(labels):
        if label >= 0:
            parts[label] = parts.get(label, 0) + _part_of(i, T - 1) / N
    found = gnjax.block_spectra(CLASSIFIER, labels=labels)
    _agree(found, parts, {0: 3, 2: 2})
    outputs = gnjax.block_spectra(CLASSIFIER.twin, labels=labels)
    _agree(outputs, parts, {0: 3, 2: 2})


def test_weights_by_class_give_the_same_part():
    """G = sum_c G_c, and G_c is the matrix of the class alone times its share of the weight."""
    found = gnjax.block_spectra(CLASSIFIER, labels=CLASSES)
    options = {"y": CLASSES, "loss": "cross_entropy", "weights": (CLASSES == 2).astype(float)}
    alone = gnjax.gauss_newton((classifier, PARAMS), TOKENS, **options)
    values = gnjax.eigenvalues(alone).values * 2 / N
    assert np.abs(found["2"].spectrum.values[: len(values)] - values[:P]).max() < 1e-12


def test_the_second_moments_of_the_tokens_gradients():
    g = _token_gradients().reshape(N * T, P)
    op = gnjax.empirical_fisher((language, PARAMS), TOKENS, NEXT, loss="cross_entropy", terms=True)
    assert np.abs(op.as_matrix() - g.T @ g / (NEXT >= 0).sum()).max() < 1e-12
    whole = gnjax.empirical_fisher((language, PARAMS), TOKENS, NEXT, loss="cross_entropy")
    sums = g.reshape(N, T, P).sum(axis=1) * N / (NEXT >= 0).sum()
    assert np.abs(whole.as_matrix() - sums.T @ sums / N).max() < 1e-12


def test_terms_of_a_squared_error_are_its_outputs():
    y = RNG.standard_normal((N, T, V))
    op = gnjax.empirical_fisher((language, PARAMS), TOKENS, y, terms=True)
    rows = jax.jit(jax.jacrev(lambda v: jnp.square(language(UNRAVEL(v), TOKENS) - y) / 2))(FLAT)
    g = np.asarray(rows).reshape(-1, P) * T * V  # their mean is the gradient of the mean loss
    assert np.abs(op.as_matrix() - g.T @ g / len(g)).max() < 1e-9


def test_the_noise_of_the_gradients_by_frequency():
    """The parts of the covariance of the gradients of the tokens that count."""
    bands = gnjax.frequency_bands(NEXT, 2)
    counted = NEXT >= 0
    g = _token_gradients()
    centred = g - g[counted].mean(axis=0)
    parts = {
        band: sum(np.outer(v, v) for v in centred[bands == band]) / counted.sum() for band in (0, 1)
    }
    assert np.abs(sum(parts.values()) - np.cov(g[counted].T, bias=True)).max() < 1e-12
    op = gnjax.empirical_fisher((language, PARAMS), TOKENS, NEXT, loss="cross_entropy", terms=True)
    found = gnjax.block_spectra(op, labels=bands, centred=True)
    _agree(found, parts, {band: int((bands == band).sum()) for band in (0, 1)})


@pytest.mark.parametrize("samples", [1000, 4000])
@pytest.mark.parametrize("entry", [0.1, 0.7, 1 / 3])
def test_equal_rows_less_their_mean_are_zero_within_the_error(entry, samples):
    """The exact parts are zero. What is left of them is the rounding of the mean."""
    x = np.tile([entry, 0.0], (samples, 1))
    op = gnjax.gauss_newton((lambda p, x: x @ p, jnp.ones((2, 1))), x)
    found = gnjax.block_spectra(op, labels=np.arange(samples) % 2, centred=True)
    for block in found.blocks:
        assert (block.spectrum.values <= block.spectrum.errors).all()
        assert block.condition.rank == 0


@pytest.mark.parametrize("hessian", [False, True])
def test_the_last_layers_weights_of_each_class(hessian):
    """Diagonal blocks of the entries of the kernel and of the bias, class by class."""
    if hessian:
        op = gnjax.hessian((language, PARAMS), TOKENS, NEXT, loss="cross_entropy")

        def loss(v):
            logs = jax.nn.log_softmax(language(UNRAVEL(v), TOKENS))
            found = jnp.take_along_axis(logs, np.maximum(NEXT, 0)[..., None], -1)[..., 0]
            return -jnp.where(NEXT >= 0, found, 0).sum() / (NEXT >= 0).sum()

        matrix = np.asarray(jax.jit(jax.hessian(loss))(FLAT))
    else:
        op, matrix = LANGUAGE, sum(_token_parts(NEXT).values())
    labels = {"head/kernel": np.arange(V), "head/bias": np.arange(V)}
    found = gnjax.block_spectra(op, by=labels)
    assert [block.name for block in found.blocks] == ["0", "1", "2", "3", "others"]
    owners = np.concatenate([np.full(3 * V, -1), np.arange(V), np.tile(np.arange(V), 3)])
    inside = 0.0
    for block in found.blocks:
        own = np.flatnonzero(owners == (-1 if block.name == "others" else int(block.name)))
        part = matrix[np.ix_(own, own)]
        inside += np.sum(part**2)
        exact = np.linalg.eigvalsh(part)[::-1]
        off = np.abs(block.spectrum.values - exact)
        assert off.max() < 1e-10 * np.linalg.norm(matrix, 2)
        assert (off <= block.spectrum.errors + 1e-14).all()
    assert abs(found.off_block_share - 1 + inside / np.sum(matrix**2)) < 1e-10


def test_bands_have_equal_shares_of_the_labels():
    y = np.repeat(np.arange(7), [64, 32, 16, 8, 4, 2, 2])
    bands = gnjax.frequency_bands(y, 4)
    assert [set(y[bands == band].tolist()) for band in range(4)] == [
        set(),
        {0},
        {1},
        {2, 3, 4, 5, 6},
    ]
    even = gnjax.frequency_bands(np.arange(20) % 10, 5)
    assert np.bincount(even).tolist() == [4] * 5
    assert gnjax.frequency_bands(np.array([-1, 3, -1]), 3).tolist() == [-1, 1, -1]


def test_answers_with_terms_are_saved():
    found = gnjax.block_spectra(CLASSIFIER, labels=CLASSES)
    again = gnjax.answers.BlockSpectra.from_json(found.to_json())
    assert [block.terms for block in again.blocks] == [3, 1, 2]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gnjax.block_spectra(CLASSIFIER, labels=CLASSES[:-1]), "each of the 6 samples"),
        (lambda: gnjax.block_spectra(CLASSIFIER, labels=CLASSES + 0.5), "integers or strings"),
        (lambda: gnjax.block_spectra(CLASSIFIER, labels=-1 - CLASSES), "every label is below"),
        (lambda: gnjax.block_spectra(CLASSIFIER, labels=CLASSES, by="parameter"), "give one"),
        (lambda: gnjax.block_spectra(CLASSIFIER, centred=True), "give labels"),
        (lambda: gnjax.block_spectra(CLASSIFIER, by={"tail": 1}), "labels for tail"),
        (lambda: gnjax.block_spectra(CLASSIFIER, by={"embed": np.ones(7)}), "labels of embed"),
        (
            lambda: gnjax.block_spectra(
                CLASSIFIER, labels=CLASSES, limits=gnjax.Limits(factor_bytes=10.0)
            ),
            "one label at a time",
        ),
        (
            lambda: gnjax.block_spectra(
                gnjax.hessian((classifier, PARAMS), TOKENS, CLASSES, loss="cross_entropy"),
                labels=CLASSES,
            ),
            "a sum over samples",
        ),
        (lambda: gnjax.frequency_bands(np.ones(3)), "integer labels"),
        (lambda: gnjax.frequency_bands(-np.ones(3, int)), "at least one is not negative"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
