"""The tree of parameters that an optimiser's state is for: all of them, or a part of the model.

An optimiser takes trees in the containers of its state. They may hold fewer parameters than the
model, as with ``nnx.Optimizer(.., wrt=nnx.LoRAParam)``, and other containers, as NNX takes its
variables out before it updates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from gnjax.networks.arguments.real_form import complex_form, real_form
from gnjax.networks.arguments.refusals import RAISED
from gnjax.networks.network import Network, gather, parameter_names, scatter
from gnjax.networks.parameters import paths


@dataclass(frozen=True)
class TrainedPart:
    """The parameters that an optimiser updates, as it takes them, and its state.

    Attributes:
      params: their tree, in the containers of the optimiser's state.
      names: the path of each leaf in the parameters of the model.
      state: that of the optimiser, without the variables of NNX where it takes none.
    """

    params: Any
    names: tuple[str, ...]
    state: Any

    def vector(self, net: Network, tree: Any) -> np.ndarray:
        """The chosen entries (p,) of a tree like ``params``, zero where it has no leaf."""
        by_name = dict(zip(self.names, jax.tree.leaves(tree), strict=True))
        params = whole_params(net)
        pairs = zip(paths(params), jax.tree.leaves(params), strict=True)
        whole = [by_name.get(name, jnp.zeros_like(leaf)) for name, leaf in pairs]
        return np.asarray(gather(net, jax.tree.leaves(real_form(whole))), np.float64)

    def tree(self, net: Network, vector: np.ndarray) -> Any:
        """The entries (p,) of real parameters in a tree like ``params``, zero where none is chosen.

        This is the inverse of :meth:`vector`.
        """
        leaves = scatter(net, jnp.asarray(vector))
        by_name = dict(zip(paths(whole_params(net)), leaves, strict=True))
        structure = jax.tree.structure(self.params)
        return jax.tree.unflatten(structure, [by_name[name] for name in self.names])


def whole_params(net: Network) -> Any:
    """All parameters of the network, as its caller has them."""
    return complex_form(jax.tree.unflatten(net.structure, net.leaves))


def trained_part(net: Network, optimizer: Any, state: Any) -> TrainedPart:
    """The parameters for which the ``optimizer`` makes a state like this one.

    Tried are all parameters of the model, those whose names are in the state, and those that
    ``only=`` chooses; and a state of another form is refused.
    """
    params = whole_params(net)
    for tree, given in ((params, state), (without_variables(params), without_variables(state))):
        form = _form(given)
        for part in _parts(net, tree, given):
            try:
                made = jax.eval_shape(optimizer.init, part.params)
            except RAISED:  # of an optimiser with a mask or with labels for other trees
                continue
            if _form(made) == form:
                return part
    held = dict.fromkeys(_suffix_in(name, parameter_names(net)) or name for name in paths(state))
    msg = (
        "the state is not one that this optimizer makes for the parameters of the operator, which "
        f"are {', '.join(parameter_names(net))}, and it has {', '.join(held) or 'no arrays'}; pass "
        "the optimizer and its own state, and where it trains a part of the model the operator of "
        "the same part, by only="
    )
    raise ValueError(msg)


def without_variables(tree: Any) -> Any:
    """The tree with the value of each variable of NNX in its place, as NNX gives it to optax."""

    def is_variable(node: Any) -> bool:
        return isinstance(node, nnx.Variable)

    def value(node: Any) -> Any:
        if not is_variable(node):
            return node
        (held,) = jax.tree.leaves(node, is_leaf=lambda inside: inside is not node)
        return held

    return jax.tree.map(value, tree, is_leaf=is_variable)


def _form(state: Any) -> tuple[Any, list[tuple[int, ...]]]:
    """What two states for the same parameters have in common: the structure and all shapes."""
    return jax.tree.structure(state), [np.shape(leaf) for leaf in jax.tree.leaves(state)]


def _parts(net: Network, params: Any, state: Any) -> Iterator[TrainedPart]:
    """Yield parts of the ``params`` for which the state may be, the most likely ones first."""
    names = paths(params)
    suffixes = (_suffix_in(name, names) for name in paths(state))
    in_state = {name for name in suffixes if name is not None}
    parts: list[Collection[str]] = [names]
    for some in (in_state, set(parameter_names(net))):
        if some and len(some) < len(names) and some not in parts:
            parts.append(some)
    for part in parts:
        leaves, structure = jax.tree.flatten(params)
        kept = [leaf if name in part else None for name, leaf in zip(names, leaves, strict=True)]
        with_holes = jax.tree.unflatten(structure, kept)  # as equinox.partition makes them
        trees = [with_holes] if part is names else [_without_holes(with_holes), with_holes]
        of_leaves = tuple(name for name in names if name in part)
        for tree in trees:
            yield TrainedPart(tree, of_leaves, state)
            yield TrainedPart({"params": tree}, of_leaves, state)  # the variables of Linen


def _suffix_in(path: str, names: Collection[str]) -> str | None:
    """The longest of the names with which the path of a leaf of a state ends."""
    fitting = (name for name in names if f"/{path}".endswith(f"/{name}") or not name)
    return max(fitting, key=len, default=None)


def _without_holes(node: Any) -> Any:
    """The tree without the entries of mappings that hold no array."""
    if isinstance(node, nnx.State):
        kept = [(path, leaf) for path, leaf in nnx.to_flat_state(node) if jax.tree.leaves(leaf)]
        return nnx.from_flat_state(kept)
    if isinstance(node, Mapping):
        full = {key: _without_holes(child) for key, child in node.items() if jax.tree.leaves(child)}
        return type(node)(full)  # type: ignore[call-arg]
    return node
