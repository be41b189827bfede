"""Outputs of any shape, losses with weights and labels that do not count, output Hessians."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import gnjax
from gnjax.networks.losses.output_hessian import (
    _extreme_eigenvalues,
    check_convex,
    output_hessian,
    root_rows,
)
from gnjax.networks.losses.targets import Target
from gnjax.networks.output_shapes import Outputs
from gnjax.operators.facts import rank_of
from tests.references import jacobian

RNG = np.random.default_rng(9)
N, T, V = 3, 2, 4
X = RNG.standard_normal((N, 3))
WEIGHTS = {"a": RNG.standard_normal((3, 4)), "b": RNG.standard_normal((4, T * V))}
LABELS = np.array([[0, 3], [-1, 2], [1, -1]])
PER_LABEL = np.array([[1.0, 2.0], [5.0, 0.5], [1.5, 7.0]])


def _tokens(p, x):
    return (jnp.tanh(x @ p["a"]) @ p["b"]).reshape(len(x), T, V)


def _images(p, x):
    return _tokens(p, x).reshape(len(x), 2, 2, 2)


def _scalars(p, x):
    return _tokens(p, x)[:, 0, 0]


def _entropies(f, labels):
    logs = jax.nn.log_softmax(f)
    return -jnp.take_along_axis(logs, jnp.maximum(labels, 0)[..., None], -1)[..., 0]


def _mean_of_tokens(weights):
    """sum w (.) / sum w over the labels that count."""

    def loss(f, y):
        kept = (y >= 0) * weights
        return (kept * _entropies(f, y)).sum() / kept.sum()

    return loss


def _binary(f, y):
    return jnp.logaddexp(0, f) - y * f


Y = RNG.standard_normal((N, 2, 2, 2))
BITS = RNG.integers(0, 2, (N, 2, 2, 2))
SAMPLES = np.array([1.0, 0.25, 4.0])[:, None]
COUNTED = np.where(np.arange(8).reshape(2, 2, 2) == 3, -1, BITS)
TARGETS = jax.nn.softmax(RNG.standard_normal((N, T, V)))
CASES = {
    "labels of tokens": (_tokens, LABELS, {"loss": "cross_entropy"}, _mean_of_tokens(1.0)),
    "weights of tokens": (
        _tokens,
        LABELS,
        {"loss": "cross_entropy", "weights": PER_LABEL},
        _mean_of_tokens(PER_LABEL),
    ),
    "weights of samples": (
        _tokens,
        LABELS,
        {"loss": "cross_entropy", "weights": SAMPLES[:, 0]},
        _mean_of_tokens(SAMPLES),
    ),
    "probabilities": (
        _tokens,
        TARGETS,
        {"loss": "cross_entropy"},
        lambda f, y: -(y * jax.nn.log_softmax(f)).sum() / (N * T),
    ),
    "optax, tokens": (
        _tokens,
        np.abs(LABELS),
        {"loss": optax.softmax_cross_entropy_with_integer_labels},
        lambda f, y: _entropies(f, y).sum() / N,
    ),
    "optax, tokens with weights": (
        _tokens,
        np.abs(LABELS),
        {"loss": optax.softmax_cross_entropy_with_integer_labels, "weights": PER_LABEL},
        lambda f, y: (PER_LABEL * _entropies(f, y)).sum() / PER_LABEL.sum(),
    ),
    "images": (_images, Y, {}, lambda f, y: ((f - y) ** 2).sum() / 2 / N),
    "images with weights": (
        _images,
        Y,
        {"weights": SAMPLES[:, 0]},
        lambda f, y: (SAMPLES[..., None, None] * (f - y) ** 2).sum() / 2 / SAMPLES.sum(),
    ),
    "pixels with weights": (
        _images,
        Y,
        {"weights": Y**2},
        lambda f, y: (Y**2 * (f - y) ** 2).sum() / 2 / (Y**2).sum(),
    ),
    "bits": (
        _images,
        BITS,
        {"loss": "binary_cross_entropy"},
        lambda f, y: _binary(f, y).sum() / N,
    ),
    "bits that do not count": (
        _images,
        COUNTED,
        {"loss": "binary_cross_entropy"},
        lambda f, y: ((y >= 0) * _binary(f, y)).sum() / N,
    ),
    "optax, bits": (
        _images,
        BITS,
        {"loss": optax.sigmoid_binary_cross_entropy},
        lambda f, y: _binary(f, y).sum() / N,
    ),
    "one number": (_scalars, Y[:, 0, 0, 0], {}, lambda f, y: ((f - y) ** 2).sum() / 2 / N),
    "one number, optax": (
        _scalars,
        Y[:, 0, 0, 0],
        {"loss": optax.huber_loss, "weights": SAMPLES[:, 0]},
        lambda f, y: (SAMPLES[:, 0] * optax.huber_loss(f, y)).sum() / SAMPLES.sum(),
    ),
}


def _references(apply, y, loss):
    @jax.jit
    def derivatives(params):
        theta, unravel = ravel_pytree(params)
        shape = jax.eval_shape(apply, params, X).shape

        def flat(v):
            return apply(unravel(v), X).reshape(-1)

        b = jax.hessian(lambda f: loss(f.reshape(shape), y))(flat(theta))
        return b, jax.hessian(lambda v: loss(flat(v).reshape(shape), y))(theta)

    j = np.asarray(jacobian(apply, WEIGHTS, X))
    b, h = map(np.asarray, derivatives(WEIGHTS))
    return j, j.T @ b @ j, h


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_loss_equals_its_mean_written_out(case):
    """G by both sides, by products, as a matrix and linearised; H; the error is above the gap."""
    apply, y, options, loss = CASES[case]
    _, g, h = _references(apply, y, loss)
    op = gnjax.gauss_newton((apply, WEIGHTS), X, y=y, **options)
    twin = gnjax.gauss_newton((apply, WEIGHTS), X, y=y, side="outputs", **options)
    v = RNG.standard_normal((len(g), 2))
    u = RNG.standard_normal((twin.shape[0], 2))
    size = np.linalg.norm(g, 2)
    atol = 1e-12 * size * np.linalg.norm(v)
    np.testing.assert_allclose(op.mv(jax.device_put(v)), g @ v, rtol=0, atol=atol)
    np.testing.assert_allclose(gnjax.linearised(op).mv(jax.device_put(v)), g @ v, rtol=0, atol=atol)
    np.testing.assert_allclose(op.as_matrix(), g, rtol=0, atol=1e-12 * size)
    gram = np.asarray(twin.as_matrix())
    # A root of a singular B that is computed twice can differ by the root of an eps, as stated.
    apart = 2 * twin.error(size).value if callable(options.get("loss")) else 1e-12 * size
    assert apart < 1e-6 * size
    for same in (twin, gnjax.linearised(twin)):
        product = same.mv(jax.device_put(u))
        np.testing.assert_allclose(product, gram @ u, rtol=0, atol=apart * np.linalg.norm(u))
    few = min(len(g), len(gram))
    values = [np.linalg.eigvalsh(m)[::-1][:few] for m in (g, gram)]
    np.testing.assert_allclose(*values, rtol=0, atol=1e-12 * size)
    error = op.error(float(size))
    assert np.linalg.norm(op.as_matrix() - g, 2) < error.value < 1e-11 * size
    found = gnjax.hessian((apply, WEIGHTS), X, y, **options)
    np.testing.assert_allclose(
        found.mv(jax.device_put(v)),
        h @ v,
        rtol=0,
        atol=1e-12 * np.linalg.norm(h, 2) * np.linalg.norm(v),
    )


def test_zero_weights_and_equal_samples():
    """A sample with weight zero may as well be left out, and two equal ones count twice."""
    twice = np.concatenate([X, X[:1]])
    labels = np.concatenate([LABELS, LABELS[:1]])
    weights = np.array([1.0, 0.0, 2.0, 1.0])
    op = gnjax.gauss_newton(
        (_tokens, WEIGHTS), twice, y=labels, loss="cross_entropy", weights=weights
    )
    kept = [0, 2]
    fewer = gnjax.gauss_newton(
        (_tokens, WEIGHTS), X[kept], y=LABELS[kept], loss="cross_entropy", weights=[2.0, 2.0]
    )
    size = float(jnp.abs(fewer.as_matrix()).max())
    np.testing.assert_allclose(op.as_matrix(), fewer.as_matrix(), rtol=0, atol=1e-12 * size)
    assert op.twin.net.samples == 4
    values = [np.linalg.eigvalsh(np.asarray(m.as_matrix()))[::-1][:12] for m in (op, op.twin)]
    np.testing.assert_allclose(values[0], values[1], rtol=0, atol=1e-12 * size * 10)


def _softmax_at(margin):
    logits = RNG.standard_normal((2, T, V))
    logits[0, 0, 1] += margin
    outputs = Outputs(jax.tree.structure(0), ((T, V),))
    target = Target(None, np.array([[1.0, 0.5], [2.0, 1.0]]), "cross_entropy", outputs)
    return target, logits.reshape(2, -1)


@jax.jit
def _root_and_products(target, f, u, w):
    """R as root_rows has it, B u, R w and R^T u."""
    hessian = output_hessian(target, f, rooted=True)
    products = hessian.apply(u), hessian.apply_root(w), hessian.apply_root_transposed(u)
    return jax.vmap(root_rows)(target, f), *products


@pytest.mark.parametrize("margin", [0.0, 3.0, 40.0, 300.0])
def test_output_hessian_of_tokens_keeps_its_digits(margin):
    """B u = R (R^T u) with entries that are not lost where the network is sure of its class."""
    target, f = _softmax_at(margin)
    u, w = RNG.standard_normal((2, T * V)), RNG.standard_normal((2, T * (V - 1)))
    rows, *products = map(np.asarray, _root_and_products(target, f, u, w))
    root = rows.swapaxes(1, 2)  # (n, k, r), tested elsewhere
    assert root.shape == (2, T * V, T * (V - 1))
    exact = root.astype(np.longdouble) @ root.astype(np.longdouble).swapaxes(1, 2)
    expected = np.einsum("nij,nj->ni", exact, u)
    scale = np.einsum("nij,nj->ni", np.abs(exact), np.abs(u))
    eps = np.finfo(float).eps
    slack = 2 * eps * (10 + 2 * np.ptp(f) + 3 * V)  # see the tests of losses
    assert (np.abs(products[0] - expected) <= slack * scale).all()
    pushed = np.einsum("nij,nj->ni", root, w)
    np.testing.assert_allclose(products[1], pushed, rtol=0, atol=1e-13)
    pulled = np.einsum("nij,ni->nj", root, u)
    np.testing.assert_allclose(products[2], pulled, rtol=0, atol=1e-13)


def test_products_hold_no_more_than_a_few_buffers_of_the_logits():
    """The temporaries of a product of a model that is little but its logits, in bytes."""
    tokens, width, classes = 32, 2, 4096
    model = (lambda p, x: x @ p, RNG.standard_normal((width, classes)))
    x = RNG.standard_normal((1, tokens, width))
    op = gnjax.gauss_newton(model, x, loss="cross_entropy")
    product = jax.jit(lambda op, v: op.mv(v)).lower(op, np.ones(op.shape[0]))
    memory = product.compile({"xla_backend_optimization_level": 2}).memory_analysis()
    assert memory.temp_size_in_bytes < 3.5 * 8 * tokens * classes  # F, its tangent, and B u
    for eqn in jax.make_jaxpr(lambda op, v: op.mv(v))(op, np.ones(op.shape[0])).jaxpr.eqns:
        assert all(v.aval.size <= tokens * classes for v in eqn.outvars)


def test_losses_of_many_outputs_are_applied_and_not_formed():
    """A function of the caller's of 600 outputs: products, their error, and no output side."""
    model = (lambda p, x: x @ p, RNG.standard_normal((2, 600)))
    x = RNG.standard_normal((2, 2))
    op = gnjax.gauss_newton(model, x, loss=lambda f: jnp.cosh(f).sum())
    f = x @ model[1]
    v = RNG.standard_normal(1200)
    image = x.T @ (np.cosh(f) * (x @ v.reshape(2, 600))) / 2
    np.testing.assert_allclose(op.mv(jax.device_put(v)), image.ravel(), rtol=0, atol=1e-12 * 100)
    assert op.factorisation() is None
    assert op.twin is op
    error = op.error(1.0)
    assert error.kind == "measured"
    size = np.cosh(f).max() * np.square(x).sum()
    assert 0 < error.value < 1e-12 * size
    with pytest.raises(ValueError, match="use side='parameters'"):
        gnjax.gauss_newton(model, x, loss=lambda f: jnp.cosh(f).sum(), side="outputs")
    with pytest.raises(ValueError, match=r"not convex .* gnjax.hessian, which needs none"):
        gnjax.gauss_newton(model, x, loss=lambda f: jnp.cos(f).sum())


@pytest.mark.parametrize(
    ("apply", "options", "words"),
    [
        (_tokens, {"loss": "cross_entropy", "y": LABELS - 1}, "-1 says that"),
        (_tokens, {"loss": "cross_entropy", "y": np.full((N, T), -1)}, "no sample counts"),
        (_tokens, {"loss": "cross_entropy", "y": LABELS[:, :1]}, r"integer labels \(3, 2\)"),
        (_tokens, {"loss": "cross_entropy", "weights": np.ones((N, V))}, r"\(3,\) or \(3, 2\)"),
        (_tokens, {"loss": "cross_entropy", "weights": -np.ones(N)}, "negative"),
        (_images, {"weights": np.zeros(N)}, "no sample counts"),
        (_images, {"y": Y[:2]}, "one target a sample"),
        (_images, {"loss": "binary_cross_entropy", "y": BITS + 1}, "between 0 and 1"),
        (_images, {"loss": "binary_cross_entropy", "y": BITS[:, :1]}, "for each output"),
        (
            _images,
            {"loss": "binary_cross_entropy", "y": np.zeros((N, 4, 2))},
            "one label between 0 and 1 for each output",
        ),
        (_images, {"loss": "binary_cross_entropy", "y": np.zeros((N, 8))}, "for each output"),
        (_scalars, {"loss": "cross_entropy"}, 'loss="binary_cross_entropy"'),
        (lambda p, x: {"f": _tokens(p, x)} | {"g": x}, {"loss": "cross_entropy"}, "function loss"),
        (lambda p, x: (_tokens(p, x), 3), {}, "has_aux=True"),
        (lambda p, x: _tokens(p, x), {"has_aux": True}, r"\(outputs, extras\)"),
        (_tokens, {"loss": lambda f, y: f[0, 0]}, "pass the targets as y"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(apply, options, words):
    with pytest.raises(ValueError, match=words):
        gnjax.gauss_newton((apply, WEIGHTS), X, **options)


@pytest.mark.parametrize("kind", [int, bool, float])
@pytest.mark.parametrize("outputs", [1, 2])
def test_targets_of_one_output_are_no_labels(kind, outputs):
    """Zeros (n,) are no class 0 of one class, whose one-hot target would be 1."""

    def apply(w, x):
        return jnp.repeat((x @ w)[:, None, None] ** 2, outputs, axis=1)

    model = (apply, np.ones(1))
    x = np.ones((1, 1))
    y = np.zeros((1, outputs, 1), kind)
    hessian = gnjax.hessian(model, x, y).as_matrix()
    np.testing.assert_allclose(hessian, [[6.0 * outputs]], rtol=1e-12)  # of w^4 / 2 each
    with pytest.raises(ValueError, match=rf"; targets \(1, {outputs}, 1\) are needed"):
        gnjax.hessian(model, x, y[..., 0])


def test_binary_labels_may_lack_axes_of_length_one():
    """Labels (n,) are those of outputs (n, 1); labels (1, 3, 2) are not those of (1, 2, 3)."""
    y = np.array([0, 1, 1])
    hessians = []
    for labels, shape in [(y, (N, 1)), (y[:, None], (N,)), (y[:, None, None], (N, 1))]:
        model = (lambda p, x, shape=shape: _scalars(p, x).reshape(shape), WEIGHTS)
        op = gnjax.hessian(model, X, labels, loss="binary_cross_entropy")
        hessians.append(op.as_matrix())
    np.testing.assert_allclose(hessians[1:], [hessians[0]] * 2, rtol=0, atol=1e-14)
    x = np.ones((1, 1))
    model = (lambda w, x: (x @ w).reshape(1, 2, 3), np.ones((1, 6)))
    with pytest.raises(ValueError, match="for each output"):
        gnjax.hessian(model, x, np.zeros((1, 3, 2), int), loss="binary_cross_entropy")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_convex_loss_is_convex_in_both_precisions(dtype):
    """B = diag(p) - p p^T has the eigenvalue 0, which rounding makes negative."""
    eps = np.finfo(dtype).eps
    f = np.random.default_rng(3).standard_normal((200, 10)).astype(dtype)
    target = Target(
        jnp.zeros(200, int),
        None,
        lambda f, y: jax.nn.logsumexp(f) - f[y],
        Outputs(jax.tree.structure(0), ((10,),)),
    )
    assert float(_extreme_eigenvalues(target, f)[0]) < -eps / 100  # the case is one
    check_convex(target, f)

    def bent_loss(f, y):
        return jnp.square(f[1:]).sum() - 1e-5 * f[0] ** 2

    bent = Target(target.y, None, bent_loss, target.outputs)
    with pytest.raises(ValueError, match="not convex"):
        check_convex(bent, f)


@pytest.mark.parametrize("share", [1e-9, 1e-13])
def test_a_loss_that_is_not_quite_convex_is_refused(share):
    """Its Gauss-Newton matrix has the eigenvalue -share / 2, which a damping 0 < s < share sees."""
    model = (lambda w, x: x @ w, np.ones((2, 2)))

    def loss(f):
        return 0.5 * f[0] ** 2 - 0.5 * share * f[1] ** 2

    with pytest.raises(ValueError, match="not convex"):
        gnjax.gauss_newton(model, np.eye(2), loss=loss)


@pytest.mark.parametrize("parameters", [2, 5])
def test_products_with_and_without_the_root_of_a_singular_hessian_are_within_the_error(parameters):
    """B = 1e8 and 0 of two samples: products have B as a derivative, and the matrix has R R^T."""
    model = (lambda w, x: (x @ w)[:, None], np.ones(parameters))
    curvatures = np.array([1e8, 0.0])
    x = np.eye(2, parameters)

    def loss(f, y):
        return 0.5 * y * f[0] ** 2

    exact = np.zeros(parameters)
    exact[:2] = curvatures / 2
    op = gnjax.gauss_newton(model, x, curvatures, loss=loss)
    error = op.error(5e7).value
    assert np.linalg.norm(op.as_matrix() - np.diag(exact), 2) <= error
    assert np.abs(op.mv(jnp.eye(parameters)[1])[1] - exact[1]) <= error
    assert error < 1e-4
    found = gnjax.eigenvalues(gnjax.gauss_newton(model, x, curvatures, loss=loss))
    distances = np.abs(np.sort(found.values) - np.sort(exact))
    assert (distances <= found.errors[np.argsort(found.values)]).all()
    assert found.errors.max() < 1e-11 * 5e7


def test_extras_beside_the_outputs_are_left_out():
    def apply(p, x):
        return _tokens(p, x), {"hidden": jnp.ones(7, int)}

    found, plain = (
        gnjax.ntk(model, X, has_aux=aux).as_matrix()
        for model, aux in (((apply, WEIGHTS), True), ((_tokens, WEIGHTS), False))
    )
    np.testing.assert_array_equal(found, plain)


@pytest.mark.parametrize(
    ("labels", "weights", "rows"),
    [
        ([[1, 2, -1], [0, -1, -1]], None, 3 * 4),  # three labels count, k - 1 directions each
        ([[1, 2, 0], [0, 1, 3]], [1.0, 0.0], 3 * 4),  # one sample counts
        ([[1, 2, -1], [0, 1, 3]], [[1.0, 0.0, 1.0], [0.0, 2.0, 0.0]], 2 * 4),
        ([[1, 2, 0], [0, 1, 3]], None, 5 * 4),  # all count, and one token comes twice
    ],
)
def test_terms_that_do_not_count_are_no_rows(labels, weights, rows):
    """A label of -1 or a weight of zero leaves a zero row in J; the rank is known without them."""
    rng = np.random.default_rng(0)
    params = {"e": rng.standard_normal((5, 6)), "o": rng.standard_normal((6, 5))}
    tokens = np.array([[0, 1, 2], [3, 4, 0]])
    op = gnjax.gauss_newton(
        (lambda p, x: jnp.tanh(p["e"][x]) @ p["o"], params),
        tokens,
        y=np.array(labels),
        loss="cross_entropy",
        weights=None if weights is None else np.array(weights),
    )
    assert rank_of(op).value == rows
    found = gnjax.condition_number(op)
    assert found.resolved
    assert found.rank == rows == np.linalg.matrix_rank(np.asarray(op.as_matrix()))


def test_each_term_of_a_callers_loss_may_use_all_outputs():
    """A first term with all the weight has the rank of the same loss without a second term."""

    def one(f, y):
        return (f[0] - y[0]) ** 2 + 1e-18 * (f[1] - y[1]) ** 2

    def two(f, y):
        return jnp.stack([one(f, y), (f[1] - y[1]) ** 2])

    model, x, y = (lambda p, x: x @ p, jnp.ones((3, 2))), np.diag([1, 0.5, 0.3]), np.zeros((3, 2))
    weights = np.tile([1.0, 0.0], (3, 1))
    alone = gnjax.ntk(model, x, y=y, loss=one)
    weighted = gnjax.ntk(model, x, y=y, loss=two, weights=weights)
    assert rank_of(weighted).value == rank_of(alone).value == 6
    for op in (alone, weighted):
        assert not gnjax.condition_number(op, method="dense").resolved
    half = gnjax.ntk(model, x, y=y, loss=two, weights=weights * np.array([[1.0], [0.0], [1.0]]))
    assert rank_of(half).value == 4
