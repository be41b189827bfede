"""The diagonal metric P by which an optimiser of optax divides its updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from gnjax.networks.arguments.frameworks import PyTree
from gnjax.networks.arguments.real_form import for_both_parts
from gnjax.numerics.certificate import MEASURED, Error, unknown
from gnjax.operators.metrics.exact import on_parameters
from gnjax.operators.metrics.metric import Metric, diagonal_block
from gnjax.operators.metrics.trained_part import without_variables
from gnjax.operators.metrics.update_response import (
    NoMomentsError,
    stability_limit,
    update_response,
)
from gnjax.operators.protocol import Operator
from gnjax.operators.trees import network_of

if TYPE_CHECKING:
    import optax

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
_CORRECTED = ("ScaleByAdamState", "ScaleByBeliefState")  # divide nu by 1 - b2^t
_GUESSED = (
    "P is a guess from the type of the optimiser's state, with optax's default constants: other "
    "optimisers keep such a state and divide by other numbers; pass the optimiser beside its "
    "state, gnjax.preconditioned(op, state, optimizer=optimizer)"
)


def optimizer_metric(
    op: Operator, state: PyTree, optimizer: optax.GradientTransformation | None = None
) -> Metric:
    """The diagonal metric P of an optimiser: how its next update responds to the gradient.

    The optimiser is asked: a change dg of the gradient changes its next update by -P^{-1} dg, for
    the derivative of ``optimizer.update`` at this state and at a gradient of zero. So P has the
    rate and the share of the gradient in its mean, as in optax.adam(rate) after t steps

        P = ((b2 nu / (1 - b2^{t+1}))^{1/2} + eps) (1 - b1^{t+1}) / (rate (1 - b1)),

    and P = 1 / rate in gradient descent. Weight decay and momentum do not depend on the gradient,
    and have no part in P. Rates may differ among parameters. AdaBelief and a centred RMSprop divide
    by numbers that depend on the gradient to first order; they are asked at the mean of their
    gradients. The optimiser takes the parameters of ``op``, which are to be those of the state.

    An optimiser whose update is not diagonal in the gradient, or does not respond, is refused.
    Where gradients accumulate (``MultiSteps``) or a rate begins at zero, the next update is the one
    that is not zero. A part of the parameters that is trained alone goes with ``only=`` the same
    part in ``op``.

    Args:
      op: an operator on the parameters, of the model at this state.
      state: that of optax after a step; or an ``nnx.Optimizer`` or ``TrainState``, which have both.
      optimizer: the optimiser itself. Without it P is guessed from the type of the state, up to a
        factor, and every answer on it is uncertified.

    >>> import optax
    >>> optimizer, params = optax.adam(1e-3), np.ones((2, 1))
    >>> _, state = optimizer.update(np.array([[2.0], [-3.0]]), optimizer.init(params))
    >>> op = gnjax.gauss_newton((lambda w, x: x @ w, params), np.eye(2))
    >>> P = gnjax.metrics.optimizer_metric(op, state, optimizer).as_matrix().diagonal()
    >>> (P / P[0]).round(6).tolist()  # |g| after the first step, times a factor
    [1.0, 1.5]
    """
    inner = on_parameters(op)
    state, optimizer = _with_optimizer(state, optimizer)
    entries, evidence = optimizer_entries(inner, state, optimizer)
    block = diagonal_block("", np.arange(len(entries)), entries)
    return Metric("optimiser", (block,), evidence=evidence)


def optimizer_entries(op: Any, state: Any, optimizer: Any) -> tuple[np.ndarray, Error]:
    """The diagonal (p,) of an optimiser's P, and what it rests on; see :func:`optimizer_metric`."""
    state, optimizer = _with_optimizer(state, optimizer)
    _check_no_optimizer(state)
    net = network_of(op, "a metric is")
    if optimizer is not None:
        found = update_response(net, optimizer, state)
        reason = f"P is how the next update of the optimiser responds to {found.where}"
        return found.entries, Error(0.0, MEASURED, reason=reason)
    params = jax.tree.unflatten(net.structure, net.leaves)
    tree = _guessed(without_variables(state))
    try:
        entries = op.ravel(for_both_parts(tree, params))
    except ValueError as error:
        raise ValueError(_not_alone("those of other parameters than the operator")) from error
    return np.asarray(entries, np.float64), unknown(_GUESSED)


def limit_of_optimizer(op: Any, state: Any, optimizer: Any) -> float | None:
    """The lambda_max of P^{-1/2} H P^{-1/2} from which on the optimiser is unstable.

    See :func:`.update_response.stability_limit`. None without the optimiser itself.
    """
    state, optimizer = _with_optimizer(state, optimizer)
    if optimizer is None:
        return None
    return stability_limit(network_of(op, "a metric is"), optimizer, state)


def _not_alone(has: str) -> str:
    """That a state which ``has`` something else tells no metric without its optimiser."""
    return (
        "the state alone tells a metric only where it has Adam's, RMSprop's or Adagrad's second "
        f"moments in one place, and this one has {has}; pass the optimiser beside its state, "
        "gnjax.preconditioned(op, state, optimizer=optimizer), or make the metric of a SOAP by "
        "gnjax.metrics.soap(op, state, optimizer)"
    )


def _with_optimizer(state: Any, optimizer: Any) -> tuple[Any, Any]:
    """The state and the optimiser, also where one object holds both."""
    if hasattr(state, "opt_state"):  # an nnx.Optimizer, or a TrainState
        return state.opt_state, getattr(state, "tx", None) if optimizer is None else optimizer
    if isinstance(optimizer, nnx.Optimizer):
        return state, optimizer.tx
    if optimizer is not None and not _transforms(optimizer):
        msg = (
            f"optimizer={optimizer!r} has no init and update; pass an optimiser of optax, such as "
            "optax.adam(1e-3), beside its state"
        )
        raise ValueError(msg)
    return state, optimizer


def _guessed(state: Any) -> PyTree:
    """P from the type of a state alone, up to a factor, with optax's default constants."""
    states = [pair for pair in _nodes(state, {}) if type(pair[0]).__name__ in _MOMENTS]
    if len(states) != 1:
        raise ValueError(_not_alone(f"{len(states)} of them" if states else "none"))
    return jax.tree.map(jnp.real, _metric(*states[0]))


def soap_state(state: Any) -> Any:
    """The state of SOAP inside of an optimiser's state, known by its fields."""
    _check_no_optimizer(state)
    states = [
        node
        for node, _ in _nodes(state, {})
        if hasattr(node, "exp_avg_sq") and (hasattr(node, "q") or hasattr(node, "Q"))
    ]
    if len(states) != 1:
        msg = (
            "a state of SOAP is needed, with the fields exp_avg_sq and q or Q, in one place, got "
            f"{len(states)} of them in this state"
        )
        raise ValueError(msg)
    return states[0]


def _check_no_optimizer(given: Any) -> None:
    """Refuse an optimiser, such as optax.adam(1e-3) or optax.adam, in place of its state."""
    is_of_optax = callable(given) and getattr(given, "__module__", "").startswith("optax")
    if _transforms(given) or is_of_optax:
        msg = (
            "this is an optimiser, and its metric is in its state: pass opt_state after a step, "
            "from updates, opt_state = optimizer.update(gradients, opt_state, params), and the "
            "optimiser as optimizer="
        )
        raise ValueError(msg)


def _transforms(given: Any) -> bool:
    """Whether this has the functions ``init`` and ``update`` of an optimiser of optax."""
    return all(callable(getattr(given, name, None)) for name in ("init", "update"))


def has_optimizer_state(tree: Any) -> bool:
    """Whether this is or holds the state of an optimiser; an optimiser alone is refused."""
    if hasattr(tree, "opt_state"):
        return True
    _check_no_optimizer(tree)
    names = (type(node).__name__ for node, _ in _nodes(tree, {}))
    return any(name.endswith("State") and name != "State" for name in names)


def _metric(state: Any, constants: Mapping[str, Any]) -> Any:
    """The diagonal P that a state of this type usually belongs to.

    With the running mean nu of |g|^2 for the gradients g, their running mean mu, and the number t
    of steps (``state.count``), P is

        ScaleByRssState          Adagrad             (s + eps)^{1/2}, s the sum of |g|^2
        ScaleByAdamState         Adam, AdamW, NAdam  (nu / (1 - b2^t))^{1/2} + eps
        ScaleByBeliefState       AdaBelief           the same, where nu is of |g - mu|^2
        ScaleByAmsgradState      AMSGrad             nu_max^{1/2} + eps
        ScaleByRmsState          RMSprop             (nu + eps)^{1/2}
        ScaleByRStdDevState      centred RMSprop     (nu - |mu|^2 + eps)^{1/2}

    with 1 - decay^t under nu and mu where a state of the last two counts. ``constants`` are those
    that ``inject_hyperparams`` has put around the state; the others are optax's defaults.
    """
    kind = type(state).__name__
    field, default_eps = _MOMENTS[kind]
    eps, b2 = float(constants.get("eps", default_eps)), float(constants.get("b2", 0.999))
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
    decay = b2 if kind in _CORRECTED else 0.9
    # A running mean that began at 0 is too small by this factor, the sum of its weights so far.
    share = 1.0 if steps is None else 1 - decay**steps
    moments = jax.tree.map(lambda nu: nu / share, moments)
    if kind.startswith("ScaleByRStdDev"):
        means = jax.tree.map(lambda mu: _wide(mu) / share, state.mu)
        moments = jax.tree.map(lambda nu, mu: nu - jnp.abs(mu) ** 2, moments, means)
    if kind.startswith("ScaleByR"):  # RMSprop and Adagrad
        return jax.tree.map(lambda nu: jnp.sqrt(nu + eps), moments)
    return jax.tree.map(lambda nu: jnp.sqrt(nu) + eps, moments)


def _wide(leaf: Any) -> jax.Array:
    """The array in at least the default float precision, to which float16 and bfloat16 widen.

    ``promote_types(float, dtype)`` would keep these two, as a Python float has no precision.
    """
    array = jnp.asarray(leaf)
    return array.astype(jnp.promote_types(jnp.result_type(float), array.dtype))


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
