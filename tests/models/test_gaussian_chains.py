"""A reduced chain has the law of the wide one: spectra, bounds and traces of the Gauss-Newton."""

from itertools import accumulate

import jax
import numpy as np
import pytest
import scipy.stats

import gnjax
from gnjax import papers

DRAWS = 400


def _statistics(weights):
    """Logs of kappa, lambda_max, the trace, and of ends and entries of the partial products."""
    mats = [np.asarray(w) for w in weights]
    size = mats[0].shape[1]
    right = list(accumulate(mats[:-1], lambda product, w: w @ product))
    left = list(accumulate(mats[:0:-1], lambda product, w: product @ w))[::-1]
    rights = [np.eye(size), *[p.T @ p for p in right]]
    lefts = [*[s @ s.T for s in left], np.eye(mats[-1].shape[0])]
    values = np.linalg.eigvalsh(sum(np.kron(s, p) for s, p in zip(lefts, rights, strict=True)))
    middle = len(mats) // 2
    extra = [np.linalg.eigvalsh(rights[middle])[0], np.linalg.eigvalsh(lefts[middle - 1])[-1]]
    ends = np.diag(lefts[0])[[0, -1]]  # no output is before another
    return np.log([values[-1] / values[0], values[-1], values.sum(), *extra, *ends])


@pytest.mark.slow
@pytest.mark.parametrize(
    "widths",
    [
        (3, 5, 2),
        (3, 6, 5, 2),
        (3, 7, 5, 9, 2),
        (1, 3, 3, 3, 3, 2),
        (4, 6, 6, 6, 1),
        (1, 5, 5, 5, 4),
    ],
)
def test_the_reduced_chain_has_the_law_of_the_wide_one(widths):
    """Kolmogorov and Smirnov's test of seven statistics, each at 1e-4: 42 tests, seeds fixed."""
    wide, reduced = (
        np.array([_statistics(draw(jax.random.key(seed))) for seed in range(DRAWS)])
        for draw in (
            lambda key: gnjax.initializers.chain(key, widths, "kaiming_normal"),
            lambda key: gnjax.initializers.reduced_chain(key, widths),
        )
    )
    for a, b in zip(wide.T, reduced.T, strict=True):
        assert scipy.stats.ks_2samp(a, b).pvalue > 1e-4


def test_the_operator_takes_it_and_the_bound_applies():
    weights = gnjax.initializers.reduced_chain(jax.random.key(0), (5, 500, 700, 3), gain=1.0)
    assert [w.shape for w in weights] == [(8, 5), (8, 8), (3, 8)]
    op = papers.linear_gauss_newton(weights)
    bound = papers.bounds.of_operator(op)
    assert bound.applicable
    assert gnjax.condition_number(op).value <= bound.convex


def test_narrow_layers_are_refused_and_no_hidden_layer_is_the_chain():
    with pytest.raises(ValueError, match="at least d \\+ k = 8 units, got 7"):
        gnjax.initializers.reduced_chain(jax.random.key(0), (5, 7, 3))
    (weight,) = gnjax.initializers.reduced_chain(jax.random.key(0), (5, 3))
    assert weight.shape == (3, 5)
