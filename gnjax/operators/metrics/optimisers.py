"""The diagonal metric P by which an optimiser of optax divides its updates, from its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from gnjax.networks.forms.frameworks import PyTree
from gnjax.networks.forms.real_form import real_parts

if TYPE_CHECKING:
    import optax

_SOAP = "SOAP's P is diagonal in the basis of its factors alone, see gnjax.metrics.soap(op, state)"
_NO_METRIC = {
    "SoapState": _SOAP,
    "SOAPState": _SOAP,
    "MuonState": "Muon's update is an orthogonal factor, which no fixed metric P gives",
    "FactoredState": "Adafactor keeps sums over rows and columns in place of second moments",
}
_MOMENTS = {  # by the type of a state the field of its second moments, and optax's default of eps
    "ScaleByAdamState": ("nu", 1e-8),
    "ScaleByAmsgradState": ("nu_max", 1e-8),
    "ScaleByBeliefState": ("nu", 1e-16),
    "ScaleByRmsState": ("nu", 1e-8),
    "ScaleByRmsWithCountState": ("nu", 1e-8),
    "ScaleByRStdDevState": ("nu", 1e-8),
    "ScaleByRStdDevWithCountState": ("nu", 1e-8),
    "ScaleByRssState": ("sum_of_squares", 1e-7),
}
_ROUNDINGS = 100.0  # roundings of an update that are no difference
_CORRECTED = ("ScaleByAdamState", "ScaleByBeliefState")  # divide nu by 1 - b2^t


class NoMomentsError(ValueError):
    """The optimiser has seen no gradient yet, so that its second moments are all zero."""


def optimizer_metric(
    state: PyTree,
    *,
    b2: float | None = None,
    eps: float | None = None,
    eps_root: float | None = None,
    eps_in_sqrt: bool = True,
    optimizer: optax.GradientTransformation | None = None,
) -> PyTree:
    """The diagonal entries P of an optax state, as a tree: the last update was a rate times m / P.

    m is the optimiser's mean of gradients, or the gradient where it keeps no mean.

    Adam and its kin: P = (nu / (1 - b2^t) + eps_root)^{1/2} + eps after t steps. RMSprop:
    (nu + eps)^{1/2}, or nu^{1/2} + eps without ``eps_in_sqrt``; ``b2`` is its decay, where the bias
    of its means is corrected. Adagrad: (sum g^2 + eps)^{1/2}.
    The state is found inside chains, ``inject_hyperparams`` and other wrappers. A state does not
    hold its constants, unless ``inject_hyperparams`` put them there: pass those that are not
    optax's defaults. P of a complex parameter is one number for both of its parts. An entry whose
    gradients were all 0 has Adagrad's P = eps^{1/2}; optax does not divide there, its update is 0.

    Adamax, Yogi, RAdam and ADOPT keep states that look like Adam's: Adamax has another P, Yogi
    other constants, RAdam divides by nothing in its first steps, and ADOPT's mean m is of gradients
    that are divided already. ACProp keeps a state that looks like AdaBelief's, and divides the
    gradient in place of m. If the ``optimizer`` itself is passed too, its next update of this state
    is compared with m / P, and a P that is not its own, as with other constants or rates that
    differ among parameters, is refused.

    >>> import optax
    >>> optimiser, params = optax.adam(1e-3), {"w": jax.numpy.ones(2)}
    >>> _, state = optimiser.update({"w": jax.numpy.array([2.0, -3.0])}, optimiser.init(params))
    >>> gnjax.metrics.optimizer_metric(state)["w"].round(6).tolist()  # |g| after the first step
    [2.0, 3.0]
    """
    _check_no_optimizer(state)
    states = list(_recognised_states(state))
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
    given = {name: value for name, value in arguments.items() if value is not None}
    constants = {**injected, **given}
    metric = _metric(inner, constants, eps_in_sqrt)
    if optimizer is not None:
        _check_update(optimizer, state, lambda after: _metric(after, constants, eps_in_sqrt))
    return jax.tree.map(jnp.real, metric)


def _check_update(optimizer: Any, state: Any, metric_of: Callable[[Any], Any]) -> None:
    """Refuse a rule for P if the optimiser's next update is no multiple of m / P.

    ``metric_of`` returns P for a state. With the gradient 0 the update is a multiple of m / P for
    the optimiser's mean m of gradients. An optimiser without a mean is given a gradient g and its
    negative, and the difference of both updates is a multiple of g / P: what does not depend on the
    sign of g cancels. The parameters are 0, so that weight decay has no part in the update.
    """
    (inner, _), *_ = _recognised_states(state)
    kind = type(inner).__name__
    if kind.startswith("ScaleByRStdDev"):
        msg = "a centred RMSprop is not compared with its optimizer; leave optimizer out"
        raise ValueError(msg)
    second_moments = getattr(inner, _MOMENTS[kind][0])
    zeros = jax.tree.map(jnp.zeros_like, second_moments)
    has_mean = hasattr(inner, "mu")
    gradient = zeros if has_mean else jax.tree.map(lambda s: jnp.sqrt(s) + 1, second_moments)
    update, after = optimizer.update(gradient, state, zeros)
    (inner_after, _), *_ = _recognised_states(after)
    if not has_mean:
        opposite = jax.tree.map(jnp.negative, gradient)
        opposite_update, _ = optimizer.update(opposite, state, zeros)
        update = jax.tree.map(jnp.subtract, update, opposite_update)
    mean = inner_after.mu if has_mean else gradient
    expected = jax.tree.map(lambda m, p: _wide(m) / p, mean, metric_of(inner_after))
    update_vector, expected_vector = (
        np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])
        for tree in (real_parts(update), real_parts(expected))
    )
    # The rate is the multiple that fits best, by least squares.
    squared_length = max(float(expected_vector @ expected_vector), np.finfo(float).tiny)
    rate = float(update_vector @ expected_vector) / squared_length
    difference = np.linalg.norm(update_vector - rate * expected_vector)
    eps = max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves((update, mean)))
    if not rate or difference > _ROUNDINGS * eps * np.linalg.norm(update_vector):
        msg = (
            "the next update of the optimizer is no multiple of m / P for the P that its state "
            "gives by Adam's, RMSprop's or Adagrad's rule: pass its constants b2, eps and eps_root "
            "if they are not optax's defaults of adam; Adamax, RAdam in its first steps, a rate of "
            "0 and rates that differ among parameters have no such P"
        )
        raise ValueError(msg)


def soap_state(state: Any) -> Any:
    """The state of SOAP inside of an optimiser's state."""
    _check_no_optimizer(state)
    states = [
        node for node, _ in _nodes(state, {}) if type(node).__name__ in ("SoapState", "SOAPState")
    ]
    if len(states) != 1:
        msg = f"a state of SOAP is needed, in one place, got {len(states)} of them in this state"
        raise ValueError(msg)
    return states[0]


def _check_no_optimizer(given: Any) -> None:
    """Refuse an optimiser, such as optax.adam(1e-3) or optax.adam, in place of its state."""
    if isinstance(given, nnx.Optimizer):
        msg = "this is an optimiser of Flax, and its metric is in its state: pass its opt_state"
        raise ValueError(msg)
    transforms = callable(getattr(given, "init", None)) and callable(getattr(given, "update", None))
    is_of_optax = callable(given) and getattr(given, "__module__", "").startswith("optax")
    if transforms or is_of_optax:
        msg = (
            "this is an optimiser, and its metric is in its state: pass opt_state after a step, "
            "from updates, opt_state = optimiser.update(gradients, opt_state, params)"
        )
        raise ValueError(msg)


def has_optimizer_state(tree: Any) -> bool:
    """Whether a tree contains the state of an optimiser; the optimiser itself is refused."""
    _check_no_optimizer(tree)
    names = (type(node).__name__ for node, _ in _nodes(tree, {}))
    return any(name.endswith("State") and name != "State" for name in names)


def _metric(state: Any, constants: Mapping[str, Any], eps_in_sqrt: bool) -> Any:
    """The diagonal P of one state with second moments, by the rule of its optimiser.

    The type of a state in optax names its optimiser. With the running mean nu of |g|^2 for the
    gradients g, their running mean mu, and the number t of steps (``state.count``), P is

        ScaleByRssState          Adagrad             (s + eps)^{1/2}, s the sum of |g|^2
        ScaleByAdamState         Adam, AdamW, NAdam  (nu / (1 - b2^t) + eps_root)^{1/2} + eps
        ScaleByBeliefState       AdaBelief           (nu / (1 - b2^t))^{1/2} + eps, where nu is of
                                                     |g - mu|^2 and optax adds eps_root to it itself
        ScaleByAmsgradState      AMSGrad             (nu_max + eps_root)^{1/2} + eps
        ScaleByRmsState          RMSprop             (nu + eps)^{1/2}
        ScaleByRStdDevState      centred RMSprop     (nu - |mu|^2 + eps)^{1/2}

    ``nu_max`` is the largest nu of all steps, entry by entry; optax corrects its bias before it
    takes the maximum. The last two have eps outside of the root without ``eps_in_sqrt``. Made with
    ``bias_correction=True``, their states are ScaleByRmsWithCountState and
    ScaleByRStdDevWithCountState, and 1 - decay^t divides nu and mu.

    ``constants`` are b2, decay, eps and eps_root, each optax's default where it is missing.
    """
    kind = type(state).__name__
    eps_root, b2 = float(constants.get("eps_root", 0.0)), float(constants.get("b2", 0.999))
    field, default_eps = _MOMENTS[kind]
    eps = float(constants.get("eps", default_eps))
    moments = jax.tree.map(_wide, getattr(state, field))
    is_corrected = kind in _CORRECTED or kind.endswith("WithCountState")
    steps = int(np.asarray(jax.tree.leaves(state.count)[0])) if is_corrected else None
    # Moments that are zero, or that the optimiser began with, say nothing about the loss.
    if steps == 0 or not any(bool(leaf.any()) for leaf in jax.tree.leaves(moments)):
        msg = (
            "the optimiser has seen no gradient yet, so that it has no second moments; pass its "
            "state from the first step on"
        )
        raise NoMomentsError(msg)
    if kind == "ScaleByRssState":
        return jax.tree.map(lambda s: jnp.sqrt(s + eps), moments)
    # A running mean that began at 0 is too small by the factor ``share`` = 1 - decay^t, the sum of
    # the weights that the gradients have had in it so far. 1.0: the optimiser does not correct it.
    share = 1.0
    if steps is not None:
        decay = b2 if kind in _CORRECTED else _decay_of_rmsprop(constants)
        share = 1 - decay**steps
    moments = jax.tree.map(lambda nu: nu / share, moments)
    if kind.startswith("ScaleByRStdDev"):
        means = jax.tree.map(lambda mu: _wide(mu) / share, state.mu)
        moments = jax.tree.map(lambda nu, mu: nu - jnp.abs(mu) ** 2, moments, means)
    if "Rms" in kind or "RStdDev" in kind:
        eps_inside, eps_outside = (eps, 0.0) if eps_in_sqrt else (0.0, eps)
        return jax.tree.map(lambda nu: jnp.sqrt(nu + eps_inside) + eps_outside, moments)
    added = 0.0 if kind == "ScaleByBeliefState" else eps_root  # whose nu in the state has it
    return jax.tree.map(lambda nu: jnp.sqrt(nu + added) + eps, moments)


def _decay_of_rmsprop(constants: Mapping[str, Any]) -> float:
    """The decay of RMSprop's means: ``b2``, or what was injected into optax's own function of it.

    That function is recognised by its ``initial_scale``. In a function of the caller's own,
    ``decay`` may be that of the weights, and is refused.
    """
    if "b2" in constants:
        return float(constants["b2"])
    if "decay" in constants and "initial_scale" not in constants:
        msg = (
            "an optimiser of your own has a hyperparameter decay injected, which may be that of "
            "the weights; pass b2, the decay of RMSprop's means"
        )
        raise ValueError(msg)
    return float(constants.get("decay", 0.9))


def _wide(leaf: Any) -> jax.Array:
    """The array in at least the default float precision, to which float16 and bfloat16 widen.

    ``promote_types(float, dtype)`` would keep these two, as a Python float has no precision.
    """
    array = jnp.asarray(leaf)
    return array.astype(jnp.promote_types(jnp.result_type(float), array.dtype))


def _recognised_states(state: Any) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield the parts of an optimiser's state that have second moments, or are known to have no P.

    With each come the constants that ``inject_hyperparams`` has put around it.
    """
    kinds = (*_MOMENTS, *_NO_METRIC)
    return (pair for pair in _nodes(state, {}) if type(pair[0]).__name__ in kinds)


def _nodes(node: Any, constants: Mapping[str, Any]) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield the node and all nodes inside it, each with the ``constants`` injected around it."""
    yield node, constants
    injected = getattr(node, "hyperparams", None)
    constants_inside = constants if injected is None else {**constants, **injected}
    if isinstance(node, Mapping):
        children: Any = node.values()
    elif isinstance(node, tuple | list):
        children = node
    else:
        children = ()
    for child in children:
        yield from _nodes(child, constants_inside)
