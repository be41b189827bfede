"""The warning of 32-bit mode names the line of the caller's, whichever function it came by."""

import warnings

import jax
import numpy as np
import pytest

import gnjax
from gnjax.numerics import precision
from tests.precision import single_precision

X = np.random.default_rng(0).standard_normal((4, 3))
Y = np.zeros((4, 2))


def _model():
    return lambda w, x: x @ w, np.ones((3, 2))


def _traced(v):
    return gnjax.gauss_newton(_model(), X) @ v


CALLS = {  # beside every question about a matrix, in contracts
    "a model": lambda: gnjax.models.MLP((3, 4, 2), key=jax.random.key(0)),
    "gauss_newton": lambda: gnjax.gauss_newton(_model(), X),
    "gauss_newton of batches": lambda: gnjax.gauss_newton(_model(), [(X, Y)]),
    "ntk": lambda: gnjax.ntk(_model(), X),
    "hessian": lambda: gnjax.hessian(_model(), X, Y),
    "hessian_of": lambda: gnjax.hessian_of(lambda w: (w**4).sum(), np.ones(3)),
    "empirical_fisher": lambda: gnjax.empirical_fisher(_model(), X, Y),
    "diagnose": lambda: gnjax.diagnose(_model(), X),
    "block_spectra": lambda: gnjax.block_spectra(_model(), X, by="parameter"),
    "Monitor": lambda: gnjax.Monitor(X, Y)(0, _model()),
    "a compiled step": lambda: jax.jit(_traced)(np.ones(6)),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_warning_of_32_bits_names_the_callers_line(name):
    call = CALLS[name]
    precision._warn_single.cache_clear()
    with single_precision(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    said = [w for w in caught if "JAX is in 32-bit mode" in str(w.message)]
    in_step = name == "a compiled step"  # the first line of its body, inside of JAX's frames
    line = _traced.__code__.co_firstlineno + 1 if in_step else call.__code__.co_firstlineno
    assert [(w.filename, w.lineno) for w in said] == [(__file__, line)]
