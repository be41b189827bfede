"""Models of every framework as a pair (apply, params) with apply(params, x) -> outputs.

``apply`` is a pytree whose leaves are held fixed (batch statistics, random keys). Equinox, Haiku
and Keras are recognised where a caller has imported them, and never imported here.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.tree_util import Partial

from gnjax.networks.arguments.same_function import compared

# What callers give. No type says more, as each framework has trees and modules of its own.
PyTree = Any  # arrays in tuples, lists, dicts or other nodes that jax.tree knows
Params = PyTree
Model = Any  # a module of a framework, or a pair (apply, params): see gnjax.functional
InputTree = Any  # a pytree of arrays with the samples first; or batches (x, y), a list or a loader
Apply = Callable[[Params, Any], Any]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Keywords:
    """The keywords of a model's call, a pytree with their arrays and random keys as its leaves.

    So JAX traces the arrays, and a compiled program serves other numbers of the same shape.
    """

    arrays: dict[str, Any]
    fixed: tuple[tuple[str, Any], ...] = field(metadata={"static": True})  # that hold no array
    graphs: tuple[tuple[str, Any], ...] = field(metadata={"static": True})  # of nnx.Rngs

    def all(self) -> dict[str, Any]:
        """All keywords; each nnx.Rngs is a new copy, so that every call draws the same numbers."""
        rngs = {name: nnx.merge(graph, self.arrays[name], copy=True) for name, graph in self.graphs}
        return {**dict(self.fixed), **self.arrays, **rngs}


def keywords(call: dict[str, Any]) -> Keywords:
    """The keyword arguments of a model's call, split into arrays and all else.

    An nnx.Rngs is split into its graph, and its keys and counts, which are arrays.
    """
    arrays, fixed, graphs = {}, {}, {}
    for name, value in call.items():
        if isinstance(value, nnx.Rngs):
            graphs[name], arrays[name] = nnx.split(value)
        elif any(isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves(value)):
            arrays[name] = value
        else:
            fixed[name] = value
    return Keywords(arrays, tuple(fixed.items()), tuple(graphs.items()))


def positional(x: Any) -> tuple[Any, ...]:
    """The arguments of a module: a tuple is several of them, everything else is one."""
    return x if type(x) is tuple else (x,)


def like(params: Params, constants: Any) -> Any:
    """The floating-point leaves of ``constants``, held fixed, in the precision of ``params``.

    With the variances of a BatchNorm in float32, for one, 1 / sqrt(variance) would be computed in
    float32. Integers, random keys and leaves that are no arrays stay as they are.
    """
    # the dtype of the real parts: finfo of complex64 is that of float32
    dtype = jnp.finfo(jnp.result_type(*jax.tree.leaves(params))).dtype

    def cast(leaf: Any) -> Any:
        floating = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(dtype) if floating else leaf

    return jax.tree.map(cast, constants)


def of_nnx(model: nnx.Module, call: dict[str, Any]) -> tuple[Apply, Params]:
    """(apply, params) of an NNX module, where ``call`` are further keywords of its call.

    Dropout that is switched on is refused: its one frozen mask would be part of the network.
    """
    rates = {nnx.Dropout: "rate", nnx.MultiHeadAttention: "dropout_rate"}
    active = [
        "/".join(map(str, path))
        for path, node in nnx.iter_graph(model)
        for kind, rate in rates.items()
        if isinstance(node, kind) and getattr(node, rate) > 0 and not node.deterministic
    ]
    if active and not call:  # a keyword such as deterministic=True may switch dropout off
        msg = (
            f"dropout is switched on ({', '.join(active)}): a new NNX module is in training mode; "
            "call model.eval() first, or pass gnjax.functional(model, deterministic=True) with the "
            "keyword that its call has, or, to see the network under one dropout mask, pass "
            "(apply, params) with an apply that makes its nnx.Rngs from a fixed key"
        )
        raise ValueError(msg)
    rebuild, params = nnx_parts(model)
    return Partial(_call_module, rebuild, keywords(call)), params


def _call_module(rebuild: Any, call: Keywords, params: Params, x: Any) -> Any:
    """The outputs of the module ``rebuild(params)`` at x."""
    return rebuild(params)(*positional(x), **call.all())


def nnx_parts(model: nnx.Module) -> tuple[Callable[[Params], Any], Params]:
    """A function that makes the module from its parameters, and the parameters."""
    graph, params, *constants = nnx.split(model, nnx.Param, ...)
    return Partial(_rebuilt, graph, constants), params


def _rebuilt(graph: Any, constants: Any, params: Params) -> Any:
    """A copy of the NNX module of a graph; constants that float get the parameters' precision."""
    return nnx.merge(graph, params, *like(params, constants), copy=True)


def of_linen(
    module: flax.linen.Module, variables: Any, call: dict[str, Any]
) -> tuple[Apply, Params]:
    """(apply, params) of a Linen module, whose ``variables`` are what module.init returns.

    All variables but variables["params"] are held fixed. ``call`` are further keywords of its call.
    """
    if not hasattr(variables, "keys") or "params" not in variables:
        msg = (
            "a Linen model is (module, variables) with variables['params'], as module.init "
            f"returns it; got {type(variables).__name__}"
        )
        raise ValueError(msg)
    constants = {name: value for name, value in variables.items() if name != "params"}
    return Partial(_LinenCall(module), constants, keywords(call)), variables["params"]


@dataclass(frozen=True)
class _LinenCall:
    """The call of a Linen module with its parameters, and other variables that are held fixed."""

    module: flax.linen.Module

    def __call__(self, constants: Any, call: Keywords, params: Params, x: Any) -> Any:
        variables = {"params": params, **like(params, constants)}
        return self.module.apply(variables, *positional(x), **call.all())


def is_train_state(model: Any) -> bool:
    """Whether this is a ``flax.training.train_state.TrainState`` or written like one."""
    return all(hasattr(model, name) for name in ("apply_fn", "params", "opt_state"))


def of_train_state(state: Any, call: dict[str, Any]) -> tuple[Apply, Params]:
    """(apply, params) of Flax's TrainState, where ``call`` are further keywords of ``apply_fn``.

    The method ``apply`` of a Linen module is called with ``state.batch_stats``, too, which are held
    fixed. Nothing says how another ``apply_fn`` takes them, and it does not get them.
    """
    module = getattr(state.apply_fn, "__self__", None)  # of a method the object to which it belongs
    if not isinstance(module, flax.linen.Module):
        return of_function(state.apply_fn, state.params, call)
    # Some states keep all variables {"params": .., ..} in ``params``, others the parameters alone.
    holds_collections = hasattr(state.params, "keys") and "params" in state.params
    variables = dict(state.params) if holds_collections else {"params": state.params}
    statistics = getattr(state, "batch_stats", None)
    if statistics:
        variables["batch_stats"] = statistics
    return of_linen(module, variables, call)


def of_function(apply: Any, params: Params, call: dict[str, Any]) -> tuple[Apply, Params]:
    """A caller's own (apply, params), with ``call`` as further keywords of every call.

    A dict or tuple x reaches ``apply`` as one argument.
    """
    function = apply if isinstance(apply, Partial) else Partial(compared(apply))
    return (Partial(_call_function, function, keywords(call)) if call else function), params


def _call_function(apply: Apply, call: Keywords, params: Params, x: Any) -> Any:
    """The caller's apply(params, x) with further keywords."""
    return apply(params, x, **call.all())


def is_equinox(model: Any) -> bool:
    """Whether this is a module of Equinox, if that is imported at all."""
    equinox = sys.modules.get("equinox")
    return equinox is not None and isinstance(model, equinox.Module)


def is_equinox_state(value: Any) -> bool:
    """Whether this is the state of a module of Equinox."""
    equinox = sys.modules.get("equinox")
    return equinox is not None and isinstance(value, equinox.nn.State)


def of_equinox(model: Any, call: dict[str, Any], *state: Any) -> tuple[Apply, Params]:
    """(apply, params) of an Equinox module, which takes one sample and is mapped over all.

    ``call`` are further keywords of its call, and ``state``, which is held fixed, is that of a
    module that has one, such as the averages of a BatchNorm.
    """
    equinox = sys.modules["equinox"]
    nodes = jax.tree.leaves(model, is_leaf=lambda node: isinstance(node, equinox.nn.StateIndex))
    has_state = any(isinstance(node, equinox.nn.StateIndex) for node in nodes)
    if len(state) != has_state and "state" not in call:  # a state belongs to a module with state
        form = "(module, state), as eqx.nn.make_with_state returns them" if has_state else "module"
        msg = f"this Equinox module has {'a' if has_state else 'no'} state; pass {form}"
        raise ValueError(msg)
    rebuild, params = equinox_parts(model)
    return Partial(_EquinoxCall(_axis_name(model)), rebuild, keywords(call), state), params


@dataclass(frozen=True)
class _EquinoxCall:
    """The call of an Equinox module for each sample, with its state held fixed."""

    axis_name: Any  # over which a BatchNorm in training mode takes means

    def __call__(self, rebuild: Any, call: Keywords, state: Any, params: Params, x: Any) -> Any:
        """The outputs at the samples x; ``state`` is a tuple of one state, or of none."""
        module, fixed_state, arguments = rebuild(params), like(params, state), call.all()

        def of_sample(sample: Any) -> Any:
            returned = module(*positional(sample), *fixed_state, **arguments)
            return returned[0] if state else returned  # with a state it is (outputs, state)

        return jax.vmap(of_sample, axis_name=self.axis_name)(x)


def _axis_name(model: Any) -> Any:
    """The name that layers of an Equinox module give to the axis of the samples, None if none does.

    BatchNorm in training mode takes means over the axis of this name.
    """

    def is_named(node: Any) -> bool:
        return is_equinox(node) and getattr(node, "axis_name", None) is not None

    layers = filter(is_named, jax.tree.leaves(model, is_leaf=is_named))
    axes = list(dict.fromkeys(layer.axis_name for layer in layers))
    if len(axes) > 1:
        msg = (
            f"layers of the Equinox module take means over axes of the names {axes}, and samples "
            "have one axis; pass eqx.nn.inference_mode(module), or give all layers one axis_name"
        )
        raise ValueError(msg)
    return axes[0] if axes else None


def equinox_parts(model: Any) -> tuple[Callable[[Params], Any], Params]:
    """A function that makes an Equinox module from its parameters, and the parameters.

    The parameters are all arrays of floating or complex numbers, as a tree like the module with
    None in place of every other leaf. Other arrays are leaves of the function as a pytree, so that
    they may be traced, and all else is a part of its structure.
    """
    leaves, structure = jax.tree.flatten(model)
    kinds = []
    for leaf in leaves:
        kind = "fixed" if isinstance(leaf, jax.Array | np.ndarray) else "other"
        if kind == "fixed" and jnp.issubdtype(leaf.dtype, jnp.inexact):
            kind = "parameter"
        kinds.append(kind)
    leaves_and_kinds = list(zip(leaves, kinds, strict=True))
    parameters = [leaf if kind == "parameter" else None for leaf, kind in leaves_and_kinds]
    fixed = [leaf for leaf, kind in leaves_and_kinds if kind == "fixed"]
    constants = tuple(leaf for leaf, kind in leaves_and_kinds if kind == "other")
    rebuild = Partial(_EquinoxRebuilt(structure, tuple(kinds), constants), fixed)
    return rebuild, jax.tree.unflatten(structure, parameters)


@dataclass(frozen=True)
class _EquinoxRebuilt:
    """(fixed arrays, params) to the Equinox module with these leaves."""

    structure: Any
    kinds: tuple[str, ...]  # of the leaves: "parameter", "fixed" or "other"
    others: tuple[Any, ...]  # the leaves that are no arrays

    def __call__(self, fixed: Any, params: Params) -> Any:
        """The module, each of whose leaves is the next one of its kind."""
        sources = {"parameter": jax.tree.leaves(params), "fixed": fixed, "other": self.others}
        remaining = {kind: iter(leaves) for kind, leaves in sources.items()}
        return jax.tree.unflatten(self.structure, [next(remaining[kind]) for kind in self.kinds])


def is_keras(model: Any) -> bool:
    """Whether this is a model or a layer of Keras 3, if that is imported at all."""
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(model, getattr(keras, "Layer", ()))


def of_keras(model: Any, call: dict[str, Any]) -> tuple[Apply, Params]:
    """(apply, params) of a Keras model, where params are its trainable variables by their paths.

    All other variables are held fixed. ``call`` are further keywords of its call.
    """
    backend = sys.modules["keras"].backend.backend()
    if backend != "jax":
        msg = (
            f"this Keras computes with {backend}; set the environment variable KERAS_BACKEND=jax "
            "before keras is imported"
        )
        raise ValueError(msg)
    if not model.built:
        msg = "the Keras model has no variables yet; call it once on samples, or add keras.Input"
        raise ValueError(msg)
    paths = [variable.path for variable in model.trainable_variables]
    if len(set(paths)) < len(paths):  # two variables have the same path
        paths = [f"{path}_{index}" for index, path in enumerate(paths)]
    values = [variable.value for variable in model.trainable_variables]
    constants = [variable.value for variable in model.non_trainable_variables]
    params = dict(zip(paths, values, strict=True))
    return Partial(_KerasCall(model, tuple(paths)), constants, keywords(call)), params


@dataclass(frozen=True)
class _KerasCall:
    """The call of a Keras model with its parameters by their paths."""

    model: Any
    paths: tuple[str, ...]

    def __call__(self, constants: Any, call: Keywords, params: Params, x: Any) -> Any:
        """The outputs at x; ``constants`` are the variables that are not trained."""
        values = [params[path] for path in self.paths]
        return self.model.stateless_call(values, like(params, constants), x, **call.all())[0]


TORCH = (
    "a torch.nn.Module goes in as gnjax.from_torch(module), the pair (apply, params) of JAX that "
    "computes what the module computes in evaluation mode"
)


def is_torch(model: Any) -> bool:
    """Whether this is a module of PyTorch, by the name of the package that a base class is from."""
    return any(
        base.__module__.split(".")[0] == "torch" and base.__name__ == "Module"
        for base in type(model).__mro__
    )


def is_haiku(transformed: Any) -> bool:
    """Whether this comes from ``hk.transform`` or ``hk.transform_with_state``."""
    haiku = sys.modules.get("haiku")
    kinds = () if haiku is None else (haiku.Transformed, haiku.TransformedWithState)
    return isinstance(transformed, kinds)


def of_haiku(
    transformed: Any, variables: tuple[Any, ...], call: dict[str, Any]
) -> tuple[Apply, Params]:
    """(apply, params) of a Haiku model with the ``variables`` (params,) or (params, state).

    The state is held fixed. ``call`` are further keywords of its call; rng is the random key.
    """
    haiku = sys.modules["haiku"]
    stateful = isinstance(transformed, haiku.TransformedWithState)
    if stateful and len(variables) == 1 and isinstance(variables[0], tuple):
        variables = variables[0]  # what init returns
    if len(variables) != 1 + stateful:
        form = "(transformed, params, state)" if stateful else "(transformed, params)"
        msg = (
            f"a Haiku model is {form}; got {len(variables)} values behind the transformed function"
        )
        raise ValueError(msg)
    params, *state = variables
    takes_key = "rng" in list(inspect.signature(transformed.apply).parameters)
    others = keywords({name: value for name, value in call.items() if name != "rng"})
    function = _HaikuCall(transformed.apply, takes_key)
    return Partial(function, state, call.get("rng"), others), params


@dataclass(frozen=True)
class _HaikuCall:
    """The call of a Haiku model with its state and random key held fixed, if it has them."""

    apply: Any
    takes_key: bool

    def __call__(self, state: Any, key: Any, call: Keywords, params: Params, x: Any) -> Any:
        """The outputs at x; ``state`` is a list of one state, or of none."""
        # Haiku's order of arguments is parameters, state, key, inputs
        state_and_key = [*like(params, state), *([key] if self.takes_key else [])]
        returned = self.apply(params, *state_and_key, *positional(x), **call.all())
        return returned[0] if state else returned  # with a state Haiku returns (outputs, state)
