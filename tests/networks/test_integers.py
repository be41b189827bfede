"""The class: an integer that a computation cannot hold is refused or its rounding is in the error.

Integers of every type and size go through a model that turns them into floating point numbers. The
reference is the matrix of the same integers in exact arithmetic.
"""

from __future__ import annotations

from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.sparse.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

import gnjax
import gnjax.papers
from tests.precision import single_precision

pytestmark = pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def exact_eigenvalues(rows: list[list[Fraction]]) -> np.ndarray:
    """Those of A^T A / n for a rational A (n, d), largest first, from 100 digits."""
    with mpmath.workdps(100):
        a = mpmath.matrix([[mpmath.mpf(v.numerator) / v.denominator for v in row] for row in rows])
        values = mpmath.eigsy(a.T * a / len(rows), eigvals_only=True)
        return np.array(sorted(map(float, values), reverse=True))


@st.composite
def batches(draw):
    """Integers of one type around a common start, near the ends of the type too."""
    name = draw(st.sampled_from(INTEGERS))
    info = np.iinfo(name)
    bits = draw(st.integers(1, info.bits - (info.kind == "i")))
    start = draw(st.sampled_from((1, -1) if info.kind == "i" else (1,))) * (2**bits - 1)
    spread = 2 ** draw(st.integers(0, bits - 1))
    numbers = draw(st.lists(st.integers(0, spread), min_size=12, max_size=12))
    x = np.array([start - n if start > 0 else start + n for n in numbers], dtype=name)
    return x.reshape(4, 3), start, spread


def difference(p, x):
    """J = (x - start) / size for every sample, where the integers x become floats first."""
    return ((x["x"].astype(p.dtype) - x["start"][:, None]) / x["size"][:, None]) @ p


def check(batch, dtype) -> None:
    """Each eigenvalue lies within its error of the exact one, or the integers are refused."""
    x, start, spread = batch
    subtracted = float(np.asarray(start, dtype))
    inputs = {"x": x, "start": np.full(4, subtracted), "size": np.full(4, float(spread))}
    model = (difference, np.ones((3, 1), dtype))
    limits = jnp.iinfo(jax.dtypes.canonicalize_dtype(x.dtype))
    if not limits.min <= int(x.min()) <= int(x.max()) <= limits.max:
        with pytest.raises(ValueError, match="integers"):
            gnjax.gauss_newton(model, inputs)
        return
    op = gnjax.gauss_newton(model, inputs, side="parameters")
    rows = [[(Fraction(int(v)) - Fraction(subtracted)) / spread for v in row] for row in x]
    spectrum, exact = gnjax.eigenvalues(op), exact_eigenvalues(rows)
    of_reference = 1e-90 * exact[0]  # its 100 digits
    assert (np.abs(spectrum.values - exact) <= spectrum.errors + of_reference).all()


@settings(max_examples=30)
@given(batch=batches())
def test_integers_in_64_bits(batch):
    check(batch, np.float64)


@settings(max_examples=30)
@given(batch=batches())
def test_integers_single_precision(batch):
    with single_precision():
        check(batch, np.float32)


BIG, W = np.array([[2**32, 2**33 + 5, 7], [2**31, 3, 4]]), np.ones((3, 1))


def _scaled(p, x):
    return (x / 2.0**30) @ p


TAKES = {
    "x": lambda numbers: gnjax.gauss_newton((_scaled, W), numbers),
    "x as a list": lambda numbers: gnjax.gauss_newton((_scaled, W), numbers.tolist()),
    "x in batches": lambda numbers: gnjax.gauss_newton((_scaled, W), [(numbers, None)]),
    "x of a kernel": lambda numbers: gnjax.ntk((_scaled, W), numbers),
    "y": lambda numbers: gnjax.hessian((_scaled, W), np.ones((2, 3)), numbers[:, :1]),
    "weights": lambda numbers: gnjax.hessian(
        (_scaled, W), np.ones((2, 3)), np.ones((2, 1)), weights=numbers[:, 0]
    ),
    "args": lambda numbers: gnjax.hessian_of(lambda p, x: (_scaled(p, x) ** 2).sum(), W, numbers),
}


@pytest.mark.parametrize("what", TAKES)
@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_integers_that_jax_would_wrap_are_refused_with_what_to_do(what, kind):
    with single_precision():
        with pytest.raises(ValueError, match=r"integers from .* does not hold; .*enable_x64"):
            TAKES[what](BIG.astype(kind))
        TAKES[what](BIG.astype(kind) % 2**20 + 1)  # other integers of the type are taken


@pytest.mark.parametrize("what", TAKES)
def test_what_overflows_in_32_bits_is_not_called_nan(what):
    words = r"numbers beyond the largest float32.*enable_x64"
    with single_precision(), pytest.raises(ValueError, match=words):
        TAKES[what](BIG * 1e38)
    if what != "args":
        with pytest.raises(ValueError, match="NaN or Inf"):
            TAKES[what](BIG * np.inf)


_OF_MATRICES = {
    "dense": gnjax.dense,
    "factored": gnjax.factored,
    "parameters": lambda matrix: gnjax.gauss_newton((_scaled, matrix), matrix),
    "sparse": lambda matrix: gnjax.as_operator(scipy.sparse.csr_array(matrix)),
    "products": lambda matrix: gnjax.eigenvalues(
        gnjax.as_operator(scipy.sparse.linalg.aslinearoperator(matrix))
    ),
    "sum of Kronecker products": lambda matrix: gnjax.papers.sum_of_kroneckers([matrix], [matrix]),
}


@pytest.mark.parametrize("make", _OF_MATRICES.values(), ids=_OF_MATRICES)
def test_parameters_and_matrices_that_overflow_in_32_bits_are_not_called_nan(make):
    with single_precision():
        with pytest.raises(ValueError, match="beyond the largest float32"):
            make(np.full((3, 3), 1e39))
        # SciPy warns of what NumPy multiplies by infinity.
        with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="NaN or Inf"):
            make(np.full((3, 3), np.inf))


@pytest.mark.parametrize("loss", ["cross_entropy", "binary_cross_entropy", "squared_error"])
@pytest.mark.parametrize("kind", [np.uint32, np.uint64])
def test_an_unsigned_label_is_not_taken_for_minus_one(loss, kind):
    """The largest uint32 is -1 as an int32, and a label of -1 does not count."""
    labels = np.array([np.iinfo(kind).max, 1], kind)
    k = 1 if loss == "binary_cross_entropy" else 2
    for context in (single_precision(), gnjax.x64()):
        with context, pytest.raises(ValueError, match=r"labels|integers"):
            gnjax.hessian((_scaled, np.ones((3, k))), np.ones((2, 3)), labels, loss=loss)


def test_an_integer_target_that_float64_does_not_hold_is_refused():
    with pytest.raises(ValueError, match=r"integers .* float64 does not hold; subtract a start"):
        gnjax.hessian((_scaled, W), np.ones((2, 3)), np.array([[2**53 + 1], [0]]))


@pytest.mark.parametrize("number", [2**53 + 1, -(2**60) - 3, 10**400, 1 + 2j, np.complex64(3)])
def test_a_number_that_float64_does_not_hold_multiplies_no_operator(number):
    with pytest.raises(ValueError, match="number"):
        gnjax.dense(np.eye(2)) * number
    assert (gnjax.dense(np.eye(2)) * 2**60).mv(np.ones(2))[0] == 2.0**60


@pytest.mark.parametrize("make", [gnjax.dense, gnjax.factored, np.asarray])
def test_booleans_are_the_integers_0_and_1(make):
    """An adjacency matrix with its diagonal, as it often comes."""
    adjacency = np.abs(np.subtract.outer(np.arange(4), np.arange(4))) <= 1
    values, same = (gnjax.eigenvalues(make(m)).values for m in (adjacency, adjacency.astype(int)))
    np.testing.assert_array_equal(values, same)
