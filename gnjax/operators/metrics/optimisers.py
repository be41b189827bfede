"""The diagonal metric P by which an optimiser of optax divides its updates, from its state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_SOAP = "SOAP's P is diagonal in the basis of its factors alone, see gnjax.metrics.soap(op, state)"
_NO_METRIC = {
    "SoapState": _SOAP,
    "SOAPState": _SOAP,
    "MuonState": "Muon's update is an orthogonal factor, which no fixed metric P gives",
    "FactoredState": "Adafactor keeps sums over rows and columns in place of second moments",
}
_KNOWN = (
    "ScaleByAdamState",
    "ScaleByAmsgradState",
    "ScaleByBeliefState",
    "ScaleByRmsState",
    "ScaleByRmsWithCountState",
    "ScaleByRStdDevState",
    "ScaleByRStdDevWithCountState",
    "ScaleByRssState",
)
_CORRECTED = ("ScaleByAdamState", "ScaleByBeliefState")


def optimizer_metric(
    state: Any,
    *,
    b2: float | None = None,
    eps: float | None = None,
    eps_root: float | None = None,
    eps_in_sqrt: bool = True,
) -> Any:
    """The diagonal entries P of an optax state, as a tree: the last update was a rate times m / P.

    Adam and its kin: P = (nu / (1 - b2^t) + eps_root)^{1/2} + eps after t steps. RMSprop:
    (nu + eps)^{1/2}, or nu^{1/2} + eps without ``eps_in_sqrt``. Adagrad: (sum g^2 + eps)^{1/2}.
    The state is found inside chains, ``inject_hyperparams`` and other wrappers. A state does not
    hold its constants, unless ``inject_hyperparams`` put them there: pass those that are not
    optax's defaults. ``adamax`` and ``yogi`` keep states that look like Adam's, and must not be
    passed.

    >>> import optax
    >>> optimiser, params = optax.adam(1e-3), {"w": jax.numpy.ones(2)}
    >>> _, state = optimiser.update({"w": jax.numpy.array([2.0, -3.0])}, optimiser.init(params))
    >>> gnjax.metrics.optimizer_metric(state)["w"].round(6).tolist()  # |g| after the first step
    [2.0, 3.0]
    """
    states = list(_states_with_moments(state, {}))
    for inner, _ in states:
        reason = _NO_METRIC.get(type(inner).__name__)
        if reason:
            msg = f"{reason}, so that there is no diagonal P to take from this state"
            raise ValueError(msg)
    if len(states) != 1:
        number = "none" if not states else f"{len(states)} of them"
        msg = (
            "an optimiser's state has second moments (Adam's, RMSprop's, Adagrad's) in one place, "
            f"and this one has {number}; pass the inner state, or a tree of positive entries"
        )
        raise ValueError(msg)
    inner, injected = states[0]
    arguments = {"b2": b2, "eps": eps, "eps_root": eps_root}
    constants = {
        **injected,
        **{name: value for name, value in arguments.items() if value is not None},
    }
    return _metric(inner, constants, eps_in_sqrt)


def soap_state(state: Any) -> Any:
    """The state of SOAP inside of an optimiser's state."""
    states = [
        node for node, _ in _nodes(state, {}) if type(node).__name__ in ("SoapState", "SOAPState")
    ]
    if len(states) != 1:
        msg = f"a state of SOAP is needed, in one place, got {len(states)} of them in this state"
        raise ValueError(msg)
    return states[0]


def has_optimizer_state(tree: Any) -> bool:
    """Whether a tree contains the state of an optimiser, and is not just a tree of arrays."""
    names = (type(node).__name__ for node, _ in _nodes(tree, {}))
    return any(name.endswith("State") and name != "State" for name in names)


def _metric(state: Any, constants: Mapping[str, Any], eps_in_sqrt: bool) -> Any:
    """The diagonal P of one state with second moments, by the rule of its optimiser."""
    kind = type(state).__name__
    root, b2 = float(constants.get("eps_root", 0.0)), float(constants.get("b2", 0.999))
    if kind == "ScaleByRssState":
        eps = float(constants.get("eps", 1e-7))
        return jax.tree.map(lambda s: jnp.sqrt(_wide(s) + eps), state.sum_of_squares)
    eps = float(constants.get("eps", 1e-16 if kind == "ScaleByBeliefState" else 1e-8))
    moments = state.nu_max if kind == "ScaleByAmsgradState" else state.nu
    moments = jax.tree.map(_wide, moments)
    if kind.startswith("ScaleByRStdDev"):
        moments = jax.tree.map(lambda nu, mu: nu - _wide(mu) ** 2, moments, state.mu)
    if kind in _CORRECTED or kind.endswith("WithCountState"):
        steps = int(np.asarray(jax.tree.leaves(state.count)[0]))
        if steps == 0:
            msg = (
                "the optimiser has made no step yet, so that it has no second moments; pass its "
                "state from the first step on"
            )
            raise ValueError(msg)
        decay = b2 if kind in _CORRECTED else float(constants.get("decay", 0.9))
        moments = jax.tree.map(lambda nu: nu / (1 - decay**steps), moments)
    if "Rms" in kind or "RStdDev" in kind:
        inside, outside = (eps, 0.0) if eps_in_sqrt else (0.0, eps)
        return jax.tree.map(lambda nu: jnp.sqrt(nu + inside) + outside, moments)
    return jax.tree.map(lambda nu: jnp.sqrt(nu + root) + eps, moments)


def _wide(leaf: Any) -> jax.Array:
    return jnp.asarray(leaf, jnp.promote_types(float, jnp.asarray(leaf).dtype))


def _states_with_moments(
    state: Any, constants: Mapping[str, Any]
) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield each state that has second moments, or is known to have none, with its constants."""
    kinds = (*_KNOWN, *_NO_METRIC)
    return (pair for pair in _nodes(state, constants) if type(pair[0]).__name__ in kinds)


def _nodes(node: Any, constants: Mapping[str, Any]) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield the node and all nodes inside it, each with the hyperparameters injected around it."""
    yield node, constants
    injected = getattr(node, "hyperparams", None)
    inside = constants if injected is None else {**constants, **injected}
    if isinstance(node, Mapping):
        children: Any = node.values()
    elif isinstance(node, tuple | list):
        children = node
    else:
        children = ()
    for child in children:
        yield from _nodes(child, inside)
