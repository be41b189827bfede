"""How an optimiser's next update responds to the gradient: its metric P, by asking it.

Optimisers of a diagonal metric step by u(g) = -P^{-1} g plus what does not depend on the gradient g
(momentum, weight decay). So -P^{-1} is the derivative of u, which one forward derivative of
``optimizer.update`` has for every entry at once, whatever the optimiser's state is made of. P
contains the learning rate, and the share that g has in a mean of gradients.

The second moments that the next update divides by contain g itself. The derivative is taken at a
gradient of nearly zero, so that P is what the state remembers. Where P depends on the means of
gradients, too (AdaBelief, centred RMSprop), it is taken at the mean, where P is stationary in g.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from gnjax.networks.arguments.frameworks import PyTree
from gnjax.networks.arguments.refusals import RAISED, first_line
from gnjax.networks.network import Network, parameter_names
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.operators.metrics.trained_part import trained_part

_MOST_UPDATES = 128  # that may be zero, while gradients accumulate or a rate warms up
_SAME = 1e-4  # ratios of responses that are apart by so much are equal, in float32 too
_OF_MEANS = ("ScaleByBeliefState", "ScaleByRStdDevState", "ScaleByRStdDevWithCountState")
_AS_A_TREE = "pass P as a tree of positive entries like the parameters"


@dataclass(frozen=True)
class Basis:
    """A matrix W of orthonormal columns: ``turned(v)`` is W v (p,), ``turned_back(v)`` is W^T v."""

    turned: Callable[[np.ndarray], np.ndarray]
    turned_back: Callable[[np.ndarray], np.ndarray]


class NoMomentsError(ValueError):
    """The optimiser has seen no gradient yet, so that its state holds no metric."""


@dataclass(frozen=True)
class UpdateResponse:
    """The metric P of an optimiser's next update, whose change is -P^{-1} times the gradient's.

    Attributes:
      entries: the diagonal (p,) of P.
      where: the gradient at which the optimiser was asked, in words.
    """

    entries: np.ndarray
    where: str


def update_response(net: Network, optimizer: Any, state: Any) -> UpdateResponse:
    """The diagonal metric P of the next update that the ``optimizer`` makes from its ``state``.

    Refused is an optimiser whose update of one parameter depends on the gradient of another (Muon,
    Shampoo, LAMB), does not respond (Lion), or divides by what only a gradient tells.
    """
    asked = _Asked(net, optimizer, state)
    where, centre = "a gradient near zero", None
    response = asked.diagonal_response()
    asked.check_seen_gradients()
    if not asked.agree(response, asked.response(without_means=True)):
        where, centre = "a gradient near the mean of gradients", asked.mean_gradient()
        response = asked.diagonal_response(centre)
    # an optimiser without its rate, such as optax.scale_by_adam(), steps along the gradient
    positive = response if response[0] > 0 else -response
    if not (positive > 0).all():
        msg = f"the optimizer steps down in some parameters and up in others; {_AS_A_TREE}"
        raise ValueError(msg)
    return UpdateResponse(1 / positive, where)


def response_in_basis(net: Network, optimizer: Any, state: Any, basis: Basis) -> np.ndarray:
    """The eigenvalues d (p,) of P = W diag(d) W^T, for an optimiser that divides in a basis W.

    The change of the update along W s, for random signs s, is -W (s / d). Refused is an optimiser
    whose update is not of this form, which another s tells.
    """
    asked = _Asked(net, optimizer, state)
    response = asked.response(basis=basis)
    eps = max(float(jnp.finfo(leaf.dtype).eps) for leaf in _floats(state))
    if not (response > 0).all() or not asked.agree(
        response, asked.response(seed=1, basis=basis), eps
    ):
        msg = (
            "the optimizer does not divide by positive numbers in the basis that its state holds; "
            "pass the optimizer of this state"
        )
        raise ValueError(msg)
    return 1 / response


def stability_limit(net: Network, optimizer: Any, state: Any) -> float | None:
    """The lambda_max of P^{-1/2} H P^{-1/2} from which on the optimiser is unstable, P held fixed.

    On a quadratic model each eigenvector w of P^{-1} H, with the eigenvalue lambda, moves by

        w_{t+1} = w_t + d w_t - lambda sum_s h_s w_{t-s},

    where d <= 0 is the decay of weights, and h_s, with h_0 = 1, is how the update s steps later
    responds to a gradient while P stays as it is. Where one mean of gradients with the decay b is
    kept, h_s = h_1 b^{s-1} for s > 0, and the solution that changes its sign at every step grows
    from lambda = (2 + d) (1 + b) / (1 + b - h_1) on: 2 in gradient descent, 2 + 2 b with momentum b
    and for Adam with b1 = b, and 2 (1 + b)^2 / (1 + 2 b) for NAdam.

    None where gradients accumulate over several calls, or are kept in another way than in one mean.
    """
    asked = _Asked(net, optimizer, state)
    return asked.stability_limit()


class _Asked:
    """An optimiser at a state, and the derivatives of its next update that is not zero.

    Gradients may accumulate over several calls, and a rate may begin at zero; the gradient is then
    the same at each call until the update. Numbers of the state and of the parameters are widened
    to the default precision, so that P is the optimiser's formula at these numbers, and not its
    rounding in bfloat16.
    """

    def __init__(self, net: Network, optimizer: Any, state: Any) -> None:
        """Find the parameters that the state is for, and the next update that responds."""
        self._net, self._optimizer = net, optimizer
        self._part = trained_part(net, optimizer, state)
        self._update = Partial(optimizer.update)
        self._params, self._state = _widened(self._part.params), _widened(self._part.state)
        if not self._takes_what_it_is_given():
            # some keep a precision in their state, and take no other
            self._params, self._state = self._part.params, self._part.state
            if not self._takes_what_it_is_given():
                self._refuse()
        self._skipped = self._updates_of_zero()

    def _takes_what_it_is_given(self) -> bool:
        try:
            jax.eval_shape(self._optimizer.update, self._params, self._state, self._params)
        except RAISED:
            return False
        return True

    def _refuse(self) -> None:
        """Say why the optimiser's update fails for gradients, its state and its parameters."""
        try:
            jax.eval_shape(self._optimizer.update, self._params, self._state, self._params)
        except RAISED as error:
            msg = (
                f"the optimizer's update(gradients, state, params) raises {type(error).__name__}: "
                f"{first_line(error)}; where it takes more, pass optax.GradientTransformation("
                "optimizer.init, lambda g, s, p: optimizer.update(g, s, p, value=..)) in its place"
            )
            raise ValueError(msg) from error

    def _updates_of_zero(self) -> int:
        """How many of the next updates do not respond to the gradients until then."""
        gradient, direction = self._signs(0), self._signs(1, 1.0)
        state, moving = self._state, [jnp.zeros_like(leaf) for leaf in _floats(self._state)]
        for number in range(_MOST_UPDATES):
            change, state, moving = derivative(
                self._update, state, moving, gradient, direction, self._params
            )
            if any(bool(leaf.any()) for leaf in jax.tree.leaves(change)):
                return number
        msg = (
            f"the next {_MOST_UPDATES} updates of the optimizer do not respond to the gradient: "
            "its rate is 0, all parameters are frozen, or it takes signs of gradients, as Lion "
            "does, for which there is no metric P"
        )
        raise ValueError(msg)

    def diagonal_response(self, centre: PyTree | None = None) -> np.ndarray:
        """:meth:`response`, along two directions, which differ if the response is not diagonal."""
        response = self.response(centre=centre)
        _check_moves(self._net, response)
        if not self.agree(response, self.response(seed=1, centre=centre)):
            msg = (
                "the optimizer has no diagonal metric: its update of one parameter depends on "
                "gradients of others, as in Muon, LAMB and Shampoo; for some of these there are "
                f"gnjax.metrics.shampoo and gnjax.metrics.soap, else {_AS_A_TREE}"
            )
            raise ValueError(msg)
        return response

    def response(
        self,
        *,
        seed: int = 0,
        centre: PyTree | None = None,
        without_means: bool = False,
        basis: Basis | None = None,
    ) -> np.ndarray:
        """The entries (p,) of the derivative of -u along a direction of signs, over the signs.

        It is taken at a nearly zero gradient, or near ``centre``; ``without_means`` at a state in
        which all that changes with the gradient to first order, such as means, is zero. Entries are
        those in a ``basis``, if there is one.
        """
        gradient, direction = self._signs(2 * seed), self._signs(2 * seed + 1, 1.0)
        signs = self._part.vector(self._net, direction)
        if basis is not None:
            turned = self._part.tree(self._net, basis.turned(signs))
            direction = jax.tree.map(lambda a, like: a.astype(like.dtype), turned, direction)
        if centre is not None:
            gradient = jax.tree.map(jnp.add, gradient, centre)
        state, moving = self._state_of_update(gradient, direction)
        if without_means:
            _, _, moved = derivative(self._update, state, moving, gradient, direction, self._params)
            state = _without(state, moved)
        change, _, _ = derivative(self._update, state, moving, gradient, direction, self._params)
        changed = self._part.vector(self._net, change)
        return -(changed if basis is None else basis.turned_back(changed)) * signs

    def stability_limit(self) -> float | None:
        """See :func:`stability_limit`: from the first four responses, which decide all others."""
        if self._skipped:
            return None
        gradient, direction = self._signs(0), self._signs(1, 1.0)
        decayed = decay_of(self._update, self._state, gradient, direction, self._params)
        signs, decay = (self._part.vector(self._net, tree) for tree in (direction, decayed))
        decay = decay * signs
        nothing = jax.tree.map(jnp.zeros_like, direction)
        moving = [jnp.zeros_like(leaf) for leaf in _floats(self._state)]
        given, responses = direction, []
        for _ in range(4):
            change, _, moving = derivative(
                self._update, self._state, moving, gradient, given, self._params
            )
            responses.append(self._part.vector(self._net, change))
            given = nothing
        ratio: float | None = 0.0
        fade: float | None = 0.0
        next_fade: float | None = 0.0
        if (np.abs(responses[1]) > _SAME * np.abs(responses[0])).any():  # gradients are kept
            if not all(response.all() for response in responses):
                return None
            ratio, fade, next_fade = (_uniform(b / a) for a, b in pairwise(responses))
        if ratio is None or fade is None or next_fade is None:
            return None
        if abs(next_fade - fade) > _SAME or not 0 <= ratio <= fade + _SAME < 1:
            return None
        if decay.max() > _SAME:
            return None
        return float((2 + decay.min()) * (1 + fade) / (1 + fade - ratio))

    def _state_of_update(self, gradient: PyTree, direction: PyTree) -> tuple[Any, list[jax.Array]]:
        """The state before the next update that is not zero, and how its numbers change.

        They change along the ``direction`` of the gradient, which enters at each call until then.
        """
        state, moving = self._state, [jnp.zeros_like(leaf) for leaf in _floats(self._state)]
        for _ in range(self._skipped):
            _, state, moving = derivative(
                self._update, state, moving, gradient, direction, self._params
            )
        return state, moving

    def _signs(self, seed: int, size: float | None = None) -> PyTree:
        """A tree like the parameters with random signs times ``size``, by default nearly zero."""
        random = np.random.default_rng(seed)

        def signs_like(leaf: Any) -> jax.Array:
            # its square, and that to the power -3/2, are numbers of the precision
            tiny = 1e-60 if jnp.finfo(leaf.dtype).bits == 64 else 1e-15
            signs = random.integers(0, 2, (2, *np.shape(leaf))) * 2.0 - 1.0
            is_complex = jnp.issubdtype(leaf.dtype, jnp.complexfloating)
            values = signs[0] + 1j * signs[1] if is_complex else signs[0]
            return jnp.asarray((tiny if size is None else size) * values, leaf.dtype)

        return jax.tree.map(signs_like, self._params)

    def agree(self, response: np.ndarray, other: np.ndarray, eps: float = 0.0) -> bool:
        """Whether two responses are equal, up to rounding in the precision of the optimiser.

        ``eps`` is that of numbers which the optimiser has rounded earlier, where it matters.
        """
        floats = [*jax.tree.leaves(self._params), *_floats(self._state)]
        eps = max(eps, *(float(jnp.finfo(leaf.dtype).eps) for leaf in floats))
        return bool((np.abs(other - response) <= eps**0.6 * np.abs(response)).all())

    def check_seen_gradients(self) -> None:
        """Refuse a state as before the first step, if what it divides by is the next gradient."""
        start = _widened(jax.jit(self._optimizer.init)(self._part.params))
        pairs = zip(_floats(self._state), _floats(start), strict=True)
        if not all(bool((a == b).all()) for a, b in pairs):
            return
        # A gradient of this length is clipped by none, and far above epsilons.
        size = 1e-3 / sum(leaf.size for leaf in jax.tree.leaves(self._params)) ** 0.5
        if not self.agree(self.response(), self.response(centre=self._signs(0, size))):
            msg = (
                "the optimiser has seen no gradient yet, or keeps nothing of them, so that it "
                "divides by what the next gradient alone tells; pass its state from the first "
                "step on"
            )
            raise NoMomentsError(msg)

    def mean_gradient(self) -> PyTree:
        """The mean of gradients in the state of AdaBelief or of a centred RMSprop.

        There P is stationary in the gradient g. AdaBelief's moments are of (g - mu)^2 for the new
        mean mu, which is g where g is the old one. A centred RMSprop whose state counts corrects
        the bias of its means, and so does this.
        """
        gradient, direction = self._signs(0), self._signs(1, 1.0)
        state, moving = self._state_of_update(gradient, direction)
        _, after, _ = derivative(self._update, state, moving, gradient, direction, self._params)
        means = []
        for node, node_after in zip(_nodes(state), _nodes(after), strict=True):
            kind = type(node).__name__
            if kind in _OF_MEANS:
                share = 1.0
                if kind.endswith("WithCountState"):  # mu shrinks by the decay at a gradient of 0
                    before, now = (float(jnp.abs(_largest(n.mu))) for n in (node, node_after))
                    share = 1 - (now / before) ** int(node.count)
                means.append(jax.tree.map(lambda mean, share=share: mean / share, node.mu))
        if len(means) != 1 or _form(means[0]) != _form(self._params):
            msg = (
                "the numbers by which this optimizer divides depend on its means of gradients, "
                f"so that its state alone does not fix a metric P; {_AS_A_TREE}"
            )
            raise ValueError(msg)
        return means[0]


@bounded_jit
def derivative(
    update: Partial,
    state: Any,
    moving: list[jax.Array],
    gradient: PyTree,
    direction: PyTree,
    params: PyTree,
) -> tuple[PyTree, Any, list[jax.Array]]:
    """The derivative of an optimiser's next update along a ``direction`` of the gradient.

    ``moving`` is how the numbers of the state change in that direction already.

    Returns:
      The change of the update; the state after it; and the change of the numbers in that state.
    """
    leaves, structure = jax.tree.flatten(state)
    places = [place for place, leaf in enumerate(leaves) if _is_float(leaf)]

    def step(numbers: list[jax.Array], gradient: PyTree) -> Any:
        """The update and the numbers of the state after it; and that state."""
        filled = list(leaves)
        for place, number in zip(places, numbers, strict=True):
            filled[place] = number
        update_of_params, after = update(gradient, jax.tree.unflatten(structure, filled), params)
        after_leaves = [
            after_leaf.astype(leaf.dtype) if _is_float(leaf) else after_leaf
            for leaf, after_leaf in zip(leaves, jax.tree.leaves(after), strict=True)
        ]
        state_after = jax.tree.unflatten(structure, after_leaves)
        return (update_of_params, [after_leaves[place] for place in places]), state_after

    primals = [leaves[place] for place in places], gradient
    _, (change, moved), after = jax.jvp(step, primals, (moving, direction), has_aux=True)
    return change, after, moved


@bounded_jit
def decay_of(
    update: Partial, state: Any, gradient: PyTree, direction: PyTree, params: PyTree
) -> PyTree:
    """The derivative of an optimiser's next update along a ``direction`` of the parameters."""

    def step(params: PyTree) -> PyTree:
        return update(gradient, state, params)[0]

    return jax.jvp(step, (params,), (direction,))[1]


def _uniform(ratios: np.ndarray) -> float | None:
    """The ratio, where it is the same for all parameters."""
    middle = float(np.median(ratios))
    return middle if (np.abs(ratios - middle) <= _SAME).all() else None


def _check_moves(net: Network, response: np.ndarray) -> None:
    """Refuse chosen parameters that the optimiser does not move, or moves by no finite number."""
    moves = np.isfinite(response) & (response != 0)
    if moves.all():
        return
    ends = np.cumsum(net.counts)
    names = [
        name
        for name, end, count in zip(parameter_names(net), ends, net.counts, strict=True)
        if not moves[end - count : end].any()
    ]
    part = f"all of {', '.join(names)}" if names else "single entries"
    msg = (
        "the next update of the optimizer does not respond to the gradient of "
        f"{int((~moves).sum())} of the {len(moves)} parameters ({part}), or by no finite number: "
        "they are frozen, or their moments are zero; make the operator of those that are trained, "
        "by only= or mask="
    )
    raise ValueError(msg)


def _without(state: Any, moved: list[jax.Array]) -> Any:
    """The state with zero in place of every number that the gradient has ``moved``."""
    leaves, structure = jax.tree.flatten(state)
    changes, kept = iter(moved), []
    for leaf in leaves:
        if _is_float(leaf):
            # what changes with the square of a nearly zero gradient is far below this
            small = 1e-30 if jnp.finfo(leaf.dtype).bits == 64 else 1e-8
            leaf = jnp.where(jnp.abs(next(changes)) > small, jnp.zeros_like(leaf), leaf)
        kept.append(leaf)
    return jax.tree.unflatten(structure, kept)


def _largest(tree: Any) -> Any:
    """The entry of largest absolute value."""
    entries = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])
    return entries[jnp.argmax(jnp.abs(entries))]


def _nodes(node: Any) -> Iterator[Any]:
    """Yield the node and all nodes of a state inside it."""
    yield node
    children = node.values() if hasattr(node, "values") else node
    for child in children if isinstance(node, tuple | list | dict) else ():
        yield from _nodes(child)


def _form(tree: Any) -> tuple[Any, list[tuple[int, ...]]]:
    """The structure of a tree, and the shapes of its leaves."""
    return jax.tree.structure(tree), [np.shape(leaf) for leaf in jax.tree.leaves(tree)]


def _is_float(leaf: Any) -> bool:
    """Whether this is an array of floating or complex numbers."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _floats(tree: Any) -> list[Any]:
    """The leaves that are floating or complex numbers."""
    return [leaf for leaf in jax.tree.leaves(tree) if _is_float(leaf)]


def _widened(tree: Any) -> Any:
    """The tree with its floating numbers in at least the default precision.

    ``promote_types(float, dtype)`` would keep float16 and bfloat16, as a Python float has none.
    """

    def wide(leaf: Any) -> Any:
        if not _is_float(leaf):
            return leaf
        array = jnp.asarray(leaf)
        return array.astype(jnp.promote_types(jnp.result_type(float), array.dtype))

    return jax.tree.map(wide, tree)
