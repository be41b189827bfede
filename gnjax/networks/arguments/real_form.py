"""Complex parameters and outputs in real form: a + i b as the two numbers (a, b).

For its derivatives a function of p complex parameters with k complex outputs is a function of 2 p
real parameters with 2 k real outputs. Where it is holomorphic with the Jacobian J = U + i V (k, p),
the Jacobian of its real form has the block [[U, -V], [V, U]] for J. Its Gauss-Newton matrix is then
the real form of the Hermitian matrix J^H J, and has each eigenvalue of J^H J twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RealForm:
    """A complex parameter (...) as its real and imaginary parts, ``value`` (..., 2)."""

    value: Any


def real_parts(tree: Any) -> Any:
    """The tree with complex arrays (...) as real arrays (..., 2)."""
    return jax.tree.map(lambda leaf: _parts(leaf) if is_complex(leaf) else leaf, tree)


def real_form(params: Any) -> Any:
    """The parameters with complex arrays as :class:`RealForm`, under the paths that they have."""
    return jax.tree.map(lambda leaf: RealForm(_parts(leaf)) if is_complex(leaf) else leaf, params)


def complex_form(params: Any) -> Any:
    """The parameters of which ``params`` is the real form: each :class:`RealForm` as a + i b."""

    nodes, structure = jax.tree.flatten(params, is_leaf=lambda node: isinstance(node, RealForm))
    values = [
        jax.lax.complex(node.value[..., 0], node.value[..., 1])
        if isinstance(node, RealForm)
        else node
        for node in nodes
    ]
    return jax.tree.unflatten(structure, values)


def of_real_parameters(function: Any, params: Any) -> tuple[Any, Any]:
    """A function of parameters as a function of real ones, and the real parameters.

    Complex parameters become :class:`RealForm`; without any, both come back as they are.
    """
    if not any(map(is_complex, jax.tree.leaves(params))):
        return function, params
    return Partial(_of_complex_form, function), real_form(params)


def _of_complex_form(function: Any, params: Any, *args: Any) -> Any:
    """``function(params, *args)`` for parameters in real form."""
    return function(complex_form(params), *args)


def for_both_parts(tree: Any, params: Any) -> Any:
    """A mask or a metric of the caller's in the structure of ``params``, which is in real form.

    It has one real number for a complex parameter a + i b, and here a and b both get it. A tree of
    another structure comes back as it is.
    """
    nodes, structure = jax.tree.flatten(params, is_leaf=lambda node: isinstance(node, RealForm))
    leaves, structure_of_tree = jax.tree.leaves(tree), cast(Any, jax.tree.structure(tree))
    if structure_of_tree != structure:
        return tree
    pairs = zip(leaves, nodes, strict=True)
    for_parts = [
        RealForm(np.stack((leaf, leaf), axis=-1))
        if isinstance(node, RealForm) and not is_complex(leaf)
        else leaf
        for leaf, node in pairs
    ]
    return jax.tree.unflatten(structure, for_parts)


def is_complex(leaf: Any) -> bool:
    """Whether this is a complex number, or an array of them."""
    return isinstance(leaf, complex) or (
        hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.complexfloating)
    )


def _parts(array: Any) -> Any:
    """A complex array (...) as its real and imaginary parts (..., 2)."""
    stack = jnp.stack if isinstance(array, jax.Array) else np.stack
    return stack((array.real, array.imag), axis=-1)
