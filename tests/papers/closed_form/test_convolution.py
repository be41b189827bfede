"""Appendix B: Toeplitz matrices are convolutions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import gnjax
from gnjax import papers
from gnjax.papers import toeplitz
from tests import references


@settings(max_examples=25)
@given(
    channels=st.sampled_from([1, 2]),
    sizes=st.sampled_from(  # kernel, length, stride, padding
        [(1, 1, 1, 0), (3, 6, 1, 0), (3, 11, 2, 1), (6, 6, 1, 0), (6, 1, 3, 4), (2, 6, 3, 1)]
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_toeplitz_is_the_convolution(channels, sizes, seed):
    """Against XLA's convolution, and numpy's correlation for each pair of channels."""
    filters = 3
    kernel, length, stride, padding = sizes
    rng = np.random.default_rng(seed)
    kernels = rng.standard_normal((filters, channels, kernel))
    x = rng.standard_normal((channels, length))
    image = np.asarray(toeplitz(kernels, length, stride, padding)) @ x.ravel()
    expected = np.asarray(
        lax.conv_general_dilated(x[None], kernels, (stride,), [(padding, padding)])
    )[0]
    np.testing.assert_allclose(image, expected.ravel(), rtol=1e-12, atol=1e-12)
    padded = np.pad(x, ((0, 0), (padding, padding)))
    by_hand = [
        sum(np.correlate(padded[j], kernels[i, j], "valid")[::stride] for j in range(channels))
        for i in range(filters)
    ]
    np.testing.assert_allclose(image, np.ravel(by_hand), rtol=1e-12, atol=1e-12)


def test_toeplitz_as_printed_in_appendix_b():
    np.testing.assert_array_equal(
        toeplitz([[1.0, 2.0], [3.0, 4.0]], 3),
        [[1, 2, 0], [0, 1, 2], [3, 4, 0], [0, 3, 4]],
    )


def test_lemma_2_with_toeplitz_matrices_is_no_bound_for_shared_weights():
    """It bounds kappa where every entry of T is a parameter, and not where kernels are."""
    rng = np.random.default_rng(20)
    kernels = rng.standard_normal((3, 5))
    matrix = np.asarray(toeplitz(kernels, 6))
    head = rng.standard_normal((2, len(matrix)))
    bound = papers.bounds.linear([matrix, head])
    entries = gnjax.condition_number(papers.linear_gauss_newton([matrix, head]))
    assert entries.rank == 2 * 6
    assert entries.interval[0] <= bound.convex

    def apply(params, rows):
        hidden = lax.conv_general_dilated(rows[:, None], params["kernels"][:, None], (1,), "VALID")
        return hidden.reshape(len(rows), -1) @ params["head"].T

    jacobian = references.jacobian(apply, {"kernels": kernels, "head": head}, np.eye(6))
    sigma = np.linalg.svd(np.asarray(jacobian), compute_uv=False)  # 12 outputs
    assert (sigma[0] / sigma[-1]) ** 2 > 5 * bound.convex


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: toeplitz(np.ones((2, 3)), 2), "does not fit into 2 inputs"),
        (lambda: toeplitz(np.ones((2, 3)), 5, stride=0), "stride must be at least 1"),
        (lambda: toeplitz(np.ones((2, 3)), 5, padding=-1), "padding at least 0"),
        (lambda: toeplitz(np.ones(3), 5), r"\(filters, kernel\)"),
        (lambda: toeplitz(np.ones((0, 3)), 5), r"\(filters, kernel\)"),
        (lambda: toeplitz(np.full((2, 3), np.nan), 5), "NaN"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
