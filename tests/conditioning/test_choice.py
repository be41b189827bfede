"""The method "auto" for an operator of which nothing but products is known."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import gnjax

_ROWS = 1600  # above 1500, where Lanczos is tried before the matrix is formed


class _Differences:
    """The second differences on a line, as products alone: kappa is cot(pi / (2 n + 2))^2."""

    shape = (_ROWS, _ROWS)
    dtype = np.dtype(np.float64)

    def mv(self, v):
        after = jnp.concatenate([v[1:], jnp.zeros_like(v[:1])])
        before = jnp.concatenate([jnp.zeros_like(v[:1]), v[:-1]])
        return 2 * v - after - before


class _Easy(_Differences):
    """The same plus 2 I: Lanczos needs few products."""

    def mv(self, v):
        return super().mv(v) + 2 * v


def test_a_matrix_is_formed_where_lanczos_takes_long():
    """A full basis of Lanczos takes many times as long as the matrix and its eigenvalues."""
    kappa = gnjax.condition_number(_Differences())
    assert kappa.method == "dense"
    np.testing.assert_allclose(kappa.value, 1 / np.tan(np.pi / (2 * _ROWS + 2)) ** 2, rtol=1e-6)


def test_lanczos_answers_where_it_is_fast():
    kappa = gnjax.condition_number(_Easy())
    assert kappa.method == "krylov"
    assert kappa.products < _ROWS // 2
    np.testing.assert_allclose(kappa.value, 3.0, rtol=1e-2)
