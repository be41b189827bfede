"""Which entries of a model's parameters are differentiated: names, filters and masks."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx
from flax.nnx import filterlib

from gnjax.networks.arguments.real_form import for_both_parts
from gnjax.networks.arguments.refusals import RAISED, first_line
from gnjax.numerics.host import on_device
from gnjax.numerics.validation import check_known

Only = str | Sequence[str] | type | Callable[[str], bool]
"""A pattern of paths, several of them, an NNX filter, or a function of the path."""

Groups = str | Sequence[str] | Callable[[str], str]
"""What makes blocks: "layer", "module", "parameter", patterns, or a function of the path."""

_FILTERS = filterlib.__name__


def choose(
    params: Any, mask: Any, only: Only | None
) -> tuple[tuple[int, ...], tuple[jax.Array | None, ...]]:
    """The parameters to differentiate: those that ``only`` chooses and the mask keeps.

    ``mask`` is a pytree like ``params``, zero at the entries that are not differentiated, or None;
    ``only`` chooses whole leaves of ``params`` by their paths, or is None.

    Returns:
      The indices, among all leaves, of the chosen ones with an entry that the mask keeps; and for
      each of these the flat indices of the kept entries, None where all are kept.
    """
    names = paths(params)
    leaves = jax.tree.leaves(params)
    masks = [None] * len(leaves) if mask is None else _masks(params, mask)
    chosen_leaves = range(len(leaves)) if only is None else _chosen_by(params, names, only)
    leaf_indices, entry_indices = [], []
    for index in chosen_leaves:
        entries = None if masks[index] is None else np.flatnonzero(np.asarray(masks[index]))
        if entries is not None and len(entries) == leaves[index].size:
            entries = None
        if entries is None or len(entries):
            leaf_indices.append(index)
            entry_indices.append(None if entries is None else on_device(entries))
    if not leaf_indices:
        choice = "the function only=" if type(only).__name__ == "function" else f"only={only!r}"
        msg = (
            f"{choice} and the mask leave no parameter of {', '.join(names)}; choose by these "
            "paths, such as '*kernel'"
        )
        if only is None:
            msg = "the mask is zero everywhere and leaves no parameter; set what it keeps to one"
        elif names == [""]:
            msg = (
                f"{choice} chooses by paths, and the one array of parameters has none; leave it out"
            )
        raise ValueError(msg)
    return tuple(leaf_indices), tuple(entry_indices)


def paths(params: Any) -> list[str]:
    """The path of every leaf, such as layers/0/kernel, for dictionaries, lists and NNX states.

    The paths of NNX end with "value" or "raw_value", which is left out.
    """
    names = []
    for path, _ in jax.tree_util.tree_leaves_with_path(params):
        keys = [str(getattr(p, "key", getattr(p, "idx", getattr(p, "name", p)))) for p in path]
        while keys and keys[-1] in ("value", "raw_value"):
            keys.pop()
        names.append("/".join(keys))
    return names


def _masks(params: Any, mask: Any) -> list[Any]:
    """The mask of every leaf of ``params`` in order.

    A mask that is traced, or of another structure or other shapes than the parameters, is refused.
    """
    check_known("a mask, on which the number of parameters depends,", mask)
    mask = for_both_parts(mask, params)
    trees = mask, params
    masks, leaves = map(jax.tree.leaves, trees)
    structures: list[Any] = list(map(jax.tree.structure, trees))
    shapes_of_mask, shapes_of_leaves = (
        [np.shape(leaf) for leaf in tree] for tree in (masks, leaves)
    )
    if structures[0] == structures[1] and shapes_of_mask == shapes_of_leaves:
        return masks
    mask_shapes = dict(zip(paths(mask), shapes_of_mask, strict=True))
    shapes = dict(zip(paths(params), shapes_of_leaves, strict=True))
    path = next((path for path in shapes if mask_shapes.get(path) != shapes[path]), None)
    difference = f"it has entries {', '.join(mask_shapes)} and the parameters {', '.join(shapes)}"
    if path is not None:
        shape = f"shape {mask_shapes[path]}" if path in mask_shapes else "no entry"
        where = f"at {path} " if path else ""  # a single array has the path ""
        difference = f"{where}it has {shape}, and {shapes[path]} is needed"
    msg = (
        f"mask must have the structure and the shapes of the parameters: {difference}; make it by "
        "jax.tree.map from the params that gnjax.functional(model) returns"
    )
    raise ValueError(msg)


def _chosen_by(params: Any, names: list[str], only: Only) -> list[int]:
    """The indices of the leaves of ``params`` that ``only`` chooses.

    ``names`` are the paths of the leaves, such as "layers/0/kernel". ``only`` is a filter of NNX (a
    type of variables, or an object of its module of filters), a function from a path to True or
    False, a pattern as of file names, or a list of patterns.
    """
    if isinstance(only, type) or type(only).__module__ == _FILTERS:
        return _filtered(params, only)
    if callable(only):
        return [index for index, name in enumerate(names) if _is_chosen(only, name)]
    patterns = [only] if isinstance(only, str) else only
    if not isinstance(patterns, list | tuple) or not all(isinstance(p, str) for p in patterns):
        msg = (
            f"only={only!r} is no pattern like 'layers/0/*', list of patterns, NNX filter like "
            "nnx.LoRAParam, or function of the path"
        )
        raise ValueError(msg)
    unmatched = [pattern for pattern in patterns if not fnmatch.filter(names, pattern)]
    if unmatched and len(unmatched) < len(patterns):  # where none matches, the caller says so
        paths_of_all = ", ".join(names)
        msg = (
            f"only={only!r}: {unmatched[0]!r} chooses no parameter of {paths_of_all}; leave it out"
        )
        raise ValueError(msg)
    return [
        index
        for index, name in enumerate(names)
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    ]


def _is_chosen(only: Callable[[str], bool], name: str) -> bool:
    """Whether the function ``only`` chooses the parameter with the path ``name``."""
    try:
        return bool(only(name))
    except RAISED as error:
        msg = (
            f"only= is a function that fails at the path {name!r}: {first_line(error)}; it is "
            "given the path of a parameter, one string, and says whether that is chosen"
        )
        raise ValueError(msg) from error


def _filtered(params: Any, only: Any) -> list[int]:
    """The indices of the leaves of ``params``, NNX variables, that a filter of NNX accepts."""
    if isinstance(only, type) and not issubclass(only, nnx.Variable):
        msg = f"only={only!r} is a type, but no type of NNX variables such as nnx.LoRAParam"
        raise ValueError(msg)
    variables = jax.tree_util.tree_leaves_with_path(
        params, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable)
    )
    if not all(isinstance(variable, nnx.Variable) for _, variable in variables):
        msg = (
            f"only={only!r} chooses NNX variables, and the parameters of this model are none; "
            "give the NNX module itself, or choose by a pattern of the path"
        )
        raise ValueError(msg)
    predicate = filterlib.to_predicate(only)
    indices: list[int] = []
    index = 0
    for path, variable in variables:
        leaves = len(jax.tree.leaves(variable))  # a variable may hold several arrays
        # NNX's filters take the keys of a path, JAX gives objects that hold them
        keys = tuple(getattr(p, "key", getattr(p, "idx", p)) for p in path)
        if predicate(keys, variable):
            indices += range(index, index + leaves)
        index += leaves
    return indices


def layer_name(parameter: str) -> str:
    """The name of a parameter's layer: its path without the last part, as for kernel and bias."""
    return parameter.rpartition("/")[0] or parameter


def natural_order(name: str) -> list[str | int]:
    """A key that sorts dense2 before dense10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def grouped(names: Sequence[str], by: Groups) -> dict[str, list[int]]:
    """The indices of the parameters, of these paths, in each group, by the name of the group.

    ``by`` is "layer", "module" or "parameter", a list of patterns (each is a group), or a function
    from a path to the name of its group. Groups are sorted by name, with dense2 before dense10.
    """
    names_by_kind = {
        "layer": layer_name,
        "module": lambda name: layer_name(layer_name(name)),  # the layer, if no module holds it
        "parameter": str,
    }
    name_of = names_by_kind.get(by) if isinstance(by, str) else by
    if isinstance(by, list | tuple) and all(isinstance(pattern, str) for pattern in by):
        name_of = partial(_first_match, by)
    if not callable(name_of):
        msg = (
            f"by={by!r} is none of 'layer', 'module' and 'parameter', no list of patterns, and no "
            "function from the path of a parameter to the name of its block"
        )
        raise ValueError(msg)
    indices: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        group = name_of(name)
        if not isinstance(group, str):
            msg = (
                f"by gives {name} the block {group!r}, which is no name; every parameter needs a "
                "block, and only= leaves parameters out of an operator"
            )
            raise ValueError(msg)
        indices.setdefault(group, []).append(index)
    return {group: indices[group] for group in sorted(indices, key=natural_order)}


def _first_match(patterns: Sequence[str], path: str) -> str | None:
    """The first of the patterns that fits a path, None where none does."""
    return next((p for p in patterns if fnmatch.fnmatch(path, p)), None)


def indices_of(counts: Sequence[int], group: Sequence[int]) -> np.ndarray:
    """The positions, in the vector of all parameters, of the entries of the arrays in ``group``.

    ``counts`` are the numbers of entries of all arrays, which follow each other in that vector.
    """
    ends = np.cumsum(counts)
    return np.concatenate([np.arange(ends[i] - counts[i], ends[i]) for i in group])
