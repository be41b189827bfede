"""Matrices of other libraries go in as they are, and what is not known of them is not claimed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.experimental.sparse import BCOO
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import gnjax
from gnjax.numerics.certificate import MEASURED, PROVED, UNKNOWN
from gnjax.operators.facts import error_of

_N = 30


def _matrix():
    factor = np.random.default_rng(0).standard_normal((_N, _N))
    return factor @ factor.T / _N + np.eye(_N)


class OfStructures:
    """What operators of lineax have: products of one tree, with its shapes stated."""

    def __init__(self, matrix):
        self.matrix = jnp.asarray(matrix)

    def in_structure(self):
        part = jax.ShapeDtypeStruct((_N // 2,), self.matrix.dtype)
        return {"first": part, "second": part}

    out_structure = in_structure

    def mv(self, tree):
        image = self.matrix @ jnp.concatenate([tree["first"], tree["second"]])
        return {"first": image[: _N // 2], "second": image[_N // 2 :]}


class OfTensors:
    """What operators of curvlinops have: products of tensors, and a conversion to SciPy."""

    shape, dtype = (_N, _N), "torch.float64"

    def __init__(self, matrix):
        self.matrix = matrix

    def __matmul__(self, tensor):
        raise AssertionError("this needs a tensor of PyTorch")

    def to_scipy(self, dtype=None):
        return aslinearoperator(self.matrix)


class OfColumns:
    """Any object with shape, dtype and @."""

    shape, dtype = (_N, _N), np.float64

    def __init__(self, matrix):
        self.matrix = matrix

    def __matmul__(self, block):
        return self.matrix @ block


class OfVectors(OfColumns):
    """Any object whose products take one vector."""

    def matvec(self, v):
        assert v.ndim == 1
        return self.matrix @ v


_BOXES = (aslinearoperator, OfStructures, OfTensors, OfColumns, OfVectors)
_STORED = (
    scipy.sparse.csr_array,
    scipy.sparse.coo_matrix,
    scipy.sparse.dia_array,
    lambda matrix: BCOO.fromdense(matrix, nse=_N * _N + 3),
)


@pytest.mark.parametrize("kind", _BOXES)
def test_a_black_box_of_any_library_goes_in_as_it_is_and_its_error_is_unknown(kind):
    matrix = _matrix()
    box, truth = kind(matrix), np.linalg.eigvalsh(matrix)[::-1]
    found = gnjax.eigenvalues(box)
    np.testing.assert_allclose(found.values, truth, rtol=1e-12)
    few = gnjax.eigenvalues(box, k=2, limits=gnjax.Limits(whole_rows=1), vectors=True)
    np.testing.assert_allclose(few.values, truth[:2], rtol=1e-10)
    kappa = gnjax.condition_number(box)
    assert kappa.value == pytest.approx(truth[0] / truth[-1], rel=1e-11)
    trace = gnjax.trace(box, method="exact")
    assert trace.value == pytest.approx(np.trace(matrix), rel=1e-13)
    density = gnjax.spectral_density(box, probes=2, steps=_N)
    assert float(density.cdf(truth[0] + 1).value) == pytest.approx(1.0)
    for answer in (found, few, kappa, trace, density):
        assert answer.certificate.kind == UNKNOWN
    assert (found.errors == np.inf).all()
    assert "linear to" in str(trace.certificate)
    assert "symmetric" in str(trace.certificate)


@pytest.mark.parametrize("kind", _STORED)
def test_a_sparse_matrix_is_taken_as_exact_as_an_array_is(kind):
    matrix = _matrix()
    kappa, expected = gnjax.condition_number(kind(matrix)), gnjax.condition_number(matrix)
    assert kappa.interval == pytest.approx(expected.interval, rel=1e-13)
    assert kappa.certificate.kind == expected.certificate.kind == MEASURED
    assert gnjax.condition_number(kind(matrix), certify="inertia").certificate.kind == PROVED
    assert gnjax.trace(kind(matrix), method="exact").certificate.kind == PROVED


@pytest.mark.parametrize("kind", [*_BOXES, *_STORED, np.asarray])
def test_a_stated_error_of_any_form_widens_every_interval_by_it(kind):
    matrix = _matrix()
    stated = gnjax.Error(1e-3, MEASURED, reason="a thermometer")
    found = gnjax.eigenvalues(gnjax.as_operator(kind(matrix), error=stated))
    assert (found.errors >= 1e-3).all()
    assert (found.errors < 1.001e-3).all()
    assert "a thermometer" in str(found.certificate)
    number = gnjax.eigenvalues(gnjax.as_operator(kind(matrix), error=1e-3))
    np.testing.assert_array_equal(number.errors, found.errors)


@pytest.mark.parametrize("spoilt", ["asymmetric", "nonlinear", "unrepeatable"])
def test_an_error_that_the_products_refute_is_unknown(spoilt):
    """The statement is smaller than what two products alone show; nothing may rest on it."""
    matrix, rng = _matrix(), np.random.default_rng(1)
    skew = np.triu(matrix, 1) - np.tril(matrix, -1)

    def multiply(v):
        image = matrix @ v
        if spoilt == "asymmetric":
            return image + 1e-6 * (skew @ v)
        if spoilt == "nonlinear":
            return image + 1e-6 * np.abs(v)
        return image + 1e-6 * rng.standard_normal(image.shape)

    box = LinearOperator((_N, _N), matvec=multiply, matmat=multiply, dtype=float)
    refuted = gnjax.trace(gnjax.as_operator(box, error=1e-9), method="exact")
    assert refuted.certificate.kind == UNKNOWN
    assert "was stated" in str(refuted.certificate)
    large_enough = gnjax.trace(gnjax.as_operator(box, error=1e-4), method="exact")
    assert large_enough.certificate.kind == PROVED


def test_what_is_measured_of_a_black_box_is_that_of_its_own_precision():
    """Products in float32 that are called float64 are linear to rounding in float32 alone."""
    single = _matrix().astype(np.float32)
    box = LinearOperator(
        (_N, _N), matvec=lambda v: (single @ v.astype(np.float32)).astype(float), dtype=float
    )
    assert gnjax.as_operator(box).dtype == np.float32
    few = gnjax.eigenvalues(box, k=3, limits=gnjax.Limits(whole_rows=1), rtol=1e-6)
    truth = np.linalg.eigvalsh(single.astype(float))[::-1][:3]
    np.testing.assert_allclose(few.values, truth, rtol=1e-5)
    assert few.converged
    seen = gnjax.as_operator(box).by_random_vectors
    eps = np.finfo(np.float32).eps
    assert eps / 100 < seen.nonlinear / seen.norm < 10 * eps
    exact = gnjax.as_operator(aslinearoperator(_matrix())).by_random_vectors
    assert exact.least_error <= 10 * np.finfo(float).eps * exact.norm


_REFUSED = {
    "linear": LinearOperator((3, 3), matvec=lambda v: v + 1, dtype=float),
    "columns": LinearOperator((3, 3), matvec=lambda v: v, matmat=lambda b: b.T, dtype=float),
    "real": aslinearoperator(np.eye(3) * 1j),
    "square": aslinearoperator(np.ones((2, 3))),
    "numpy": type("Tensors", (OfColumns,), {"dtype": "torch.float64"})(np.eye(_N)),
    "symmetric": scipy.sparse.csr_array(np.triu(np.ones((3, 3)))),
    "real numbers": scipy.sparse.csr_array(np.eye(3) * 1j),
    "NaN": scipy.sparse.csr_array(np.diag([1.0, np.nan])),
    "got object": object(),
    "got dict": {"shape": (3, 3)},
}


@pytest.mark.parametrize("word", _REFUSED)
def test_what_is_no_symmetric_matrix_is_refused_by_one_sentence(word):
    with pytest.raises(ValueError, match=word):
        gnjax.as_operator(_REFUSED[word])


def test_an_error_is_stated_once_and_not_for_an_operator_that_states_its_own():
    with pytest.raises(ValueError, match=r"states its error in its facts\(\)"):
        gnjax.as_operator(gnjax.dense(np.eye(2)), error=1.0)
    with pytest.raises(ValueError, match="negative"):
        gnjax.as_operator(np.eye(2), error=-1.0)


def test_integers_that_float64_cannot_hold_leave_an_error():
    large = scipy.sparse.csr_array(np.diag([2**53 + 1, 1]))
    found = gnjax.eigenvalues(large)
    assert abs(found.values[0] - (2**53 + 1)) <= found.errors[0]
    assert error_of(gnjax.as_operator(large), 1.0).value >= 1.0


def test_operators_of_other_libraries_have_the_algebra_of_ours():
    matrix = _matrix()
    whole = 2 * gnjax.as_operator(aslinearoperator(matrix)) + gnjax.dense(matrix) + 1.0
    expected = 3 * matrix + np.eye(_N)
    v = np.arange(float(_N))
    np.testing.assert_allclose(whole @ v, expected @ v, rtol=1e-12)
    values = gnjax.eigenvalues(whole).values
    np.testing.assert_allclose(values, np.linalg.eigvalsh(expected)[::-1], rtol=1e-12)


@pytest.mark.parametrize("kind", [aslinearoperator, scipy.sparse.csr_array])
def test_a_sum_with_a_matrix_of_another_library_says_how_it_is_written(kind):
    op, other = gnjax.dense(np.eye(3)), kind(np.eye(3))
    for add in (lambda: op + other, lambda: other + op, lambda: op - other):
        with pytest.raises(ValueError, match=r"gnjax.as_operator\(matrix\)"):
            add()
