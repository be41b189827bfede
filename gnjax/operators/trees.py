"""Parameters of a network as one vector (p,) and as the tree that the model has them in.

The vector holds the chosen entries of the chosen leaves, one leaf after the other. The tree has
all leaves; an entry that was not chosen (by ``only`` or by ``mask``) is zero in the tree of a
vector, and is left out of the vector of a tree.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.arguments.real_form import complex_form, real_form
from gnjax.networks.network import Network, gather, parameter_names, scatter
from gnjax.networks.parameters import Groups, grouped, indices_of, paths
from gnjax.numerics.host import on_device
from gnjax.operators.facts import facts_of
from gnjax.operators.protocol import Operator

_SHOWN = 6  # a message lists at most so many leaves


class ParameterTrees:
    """A base class of operators on a network's parameters: ``ravel``, ``unravel``, ``places``."""

    def ravel(self, tree: Any) -> jax.Array:
        """The chosen entries of a tree like the parameters, as a vector (p,)."""
        net, tree = network_of(self, "trees are"), real_form(tree)
        leaves, params = jax.tree.leaves(tree), jax.tree.unflatten(net.structure, net.leaves)
        names, expected_names = paths(tree), paths(params)
        shapes, expected_shapes = (
            [np.shape(leaf) for leaf in arrays] for arrays in (leaves, net.leaves)
        )
        if names != expected_names or shapes != expected_shapes:
            msg = (
                "the tree does not look like the parameters of the model: it has "
                f"{_listed(names, shapes)}, and they are {_listed(expected_names, expected_shapes)}"
            )
            if jax.tree.structure(complex_form(params)) != net.structure:
                msg += "; a complex array counts as its two parts, along a last axis"
            raise ValueError(msg)
        return gather(net, [on_device(leaf, net.dtype) for leaf in leaves])

    def unravel(self, vector: Any) -> Any:
        """A tree like the parameters from a vector (p,), zero where no entry was chosen."""
        net = network_of(self, "trees are")
        if np.shape(vector) != (net.parameters,):
            msg = (
                f"a vector of the {net.parameters} chosen parameters has the shape "
                f"({net.parameters},), got {np.shape(vector)}"
            )
            raise ValueError(msg)
        tree = jax.tree.unflatten(net.structure, scatter(net, on_device(vector, net.dtype)))
        return complex_form(tree)

    def places(self, by: Groups = "layer") -> dict[str, np.ndarray]:
        """The places in the vector (p,) of the parameters of each group, in the order of names.

        ``by`` is that of :func:`gnjax.block_spectra`: "layer", "module", "parameter", a list of
        patterns, or a function from a parameter's path to the name of its group.
        """
        net = network_of(self, "trees are")
        groups = grouped(parameter_names(net), by)
        return {name: indices_of(net.counts, group) for name, group in groups.items()}


def takes_trees(mv: Callable[[Any, Any], jax.Array]) -> Callable[[Any, Any], Any]:
    """A decorator: ``mv`` also takes a tree like the parameters, and then returns such a tree.

    Complex arrays are refused, as a product would lose their imaginary parts. Complex leaves of a
    tree stand for complex parameters, and count as their two parts.
    """

    @wraps(mv)
    def product(self: Any, v: Any) -> Any:
        """A v as an array for an array v, and as a tree of the same structure for a tree v."""
        if isinstance(v, jax.Array | np.ndarray):
            check_real(v)
            return mv(self, v)
        image = mv(self, self.ravel(v))
        # v may have other containers than the model, under the same paths; the result has those.
        return jax.tree.unflatten(jax.tree.structure(v), jax.tree.leaves(self.unravel(image)))

    return product


def check_real(v: jax.Array | np.ndarray) -> None:
    """Refuse complex vectors, by their dtype alone, so that it is also done in a compiled one."""
    if jnp.issubdtype(v.dtype, jnp.complexfloating):
        msg = "an operator multiplies real vectors; multiply real and imaginary part separately"
        raise ValueError(msg)


def network_of(op: Any, what: str) -> Network:
    """The network on whose parameters an operator acts; refused is one that acts on none.

    ``what`` begins the message of a refusal, such as "a metric is" or "trees are".
    """
    net = facts_of(op).network if isinstance(op, Operator) else None
    if net is None:
        msg = (
            f"{what} of the parameters of a network, and a {type(op).__name__} does not act on "
            "them; make it with gnjax.hessian, or with gnjax.gauss_newton and side='parameters'"
        )
        raise ValueError(msg)
    return net


def _listed(names: list[str], shapes: list[tuple[int, ...]]) -> str:
    """The names of leaves with their shapes for a message, of which some are shown."""
    pairs = [f"{name} {shape}" for name, shape in zip(names, shapes, strict=True)]
    texts = pairs if len(pairs) <= _SHOWN else [*pairs[:_SHOWN], f"{len(pairs) - _SHOWN} more"]
    return ", ".join(texts) or "no leaves"
