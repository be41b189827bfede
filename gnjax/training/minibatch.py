"""Mini-batch training of any network, pruned or not: pure functions of a state that holds its key.

A state goes from epoch to epoch; whoever measures kappa takes the state at chosen epochs. Training
runs in the precision asked for, and :func:`trained` hands the network out in float64 for spectra.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import lax
from jax.tree_util import Partial
from jax.typing import ArrayLike

from gnjax.networks.losses import check_loss, sample_loss
from gnjax.networks.model import Params, functional
from gnjax.networks.outputs.targets import check_targets
from gnjax.numerics.precision import real_dtype

Statistics = Any  # what a forward pass updates: running averages of BatchNorm
Forward = Callable[[Params, Statistics, jax.Array], tuple[jax.Array, Statistics]]

Module = TypeVar("Module", bound=nnx.Module)

OPTIMIZERS = ("sgd", "adamw")


@dataclass(frozen=True)
class Recipe:
    """How to train, in plain values so that it can be a part of a config and of a cell.

    Attributes:
      optimizer: "sgd", where v <- momentum v + (gradient + decay w) and w <- w - rate v, or
        "adamw", where w <- w - rate (m / (sqrt(v) + 1e-8) + decay w) and ``momentum`` is not read.
      rate: the learning rate; ``drop`` times it after ``drop_after`` epochs (0: it is constant).
      batch: the samples in each step; those left over at the end of an epoch make a smaller step.
      loss: averaged over the batch; "cross_entropy" or "mse" (|f - y|^2 / 2), each times ``scale``:
        2 / k makes "mse" the mean over outputs too, as PyTorch's MSELoss is.
    """

    optimizer: str
    rate: float
    batch: int
    loss: str
    momentum: float = 0.0
    decay: float = 0.0
    drop_after: int = 0
    drop: float = 0.1
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_loss(self.loss)
        if self.optimizer not in OPTIMIZERS:
            msg = f"optimizer={self.optimizer!r} is not one of {', '.join(OPTIMIZERS)}"
            raise ValueError(msg)
        if self.batch < 1 or min(self.rate, self.drop, self.scale) <= 0:
            msg = f"batch, rate, drop and scale must be positive, got {self}"
            raise ValueError(msg)
        if not 0 <= self.momentum < 1 or self.decay < 0 or self.drop_after < 0:
            msg = f"momentum must be in [0, 1), decay and drop_after not negative, got {self}"
            raise ValueError(msg)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Problem:
    """The network to train, the inputs x (n, ...), the targets y (n, k), and the recipe."""

    forward: Forward
    x: jax.Array
    y: jax.Array
    recipe: Recipe = field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """A network in training; with a leading axis on every leaf, several that train side by side.

    Attributes:
      mask: like ``params``, 0 for a pruned weight and 1 for any other; None where all are kept.
      key: the order of samples in epoch e is drawn from fold_in(key, e).
      epoch: how many are done.
    """

    params: Params
    statistics: Statistics
    optimizer: optax.OptState
    mask: Params | None
    key: jax.Array
    epoch: jax.Array


def begin(
    model: Any,
    x: ArrayLike,
    y: ArrayLike,
    recipe: Recipe,
    key: jax.Array,
    *,
    mask: Params | None = None,
    dtype: str = "float32",
) -> tuple[Problem, State]:
    """The problem, and its state before the first step.

    Args:
      model: see :func:`gnjax.functional`; a Flax NNX module trains in its training mode.
      x, y: inputs (n, ...); integer labels (n,) or targets (n, k).
      key: draws the mini-batches.
      mask: of pruned weights (0); they start at zero and stay there.
      dtype: of the training.
    """
    forward, params, statistics = trainable(model)
    params, statistics = cast((params, statistics), dtype)
    if mask is not None:
        mask = jax.tree.map(lambda keep, w: jnp.asarray(keep, w.dtype), mask, params)
        params = _masked(params, mask)
    inputs = cast(jnp.asarray(x), dtype)
    outputs, _ = jax.eval_shape(forward, params, statistics, inputs)
    targets = check_targets(recipe.loss, y, outputs)
    problem = Problem(forward, inputs, targets, recipe)
    optimizer = _optimizer(recipe, len(_sizes(problem))).init(params)
    return problem, State(params, statistics, optimizer, mask, key, jnp.asarray(0))


def trainable(model: Any) -> tuple[Forward, Params, Statistics]:
    """(forward, params, statistics) with forward(params, statistics, x) -> (outputs, statistics).

    Statistics are those of BatchNorm in a Flax NNX module; there are none in other models.
    """
    if not isinstance(model, nnx.Module):
        apply, params = functional(model)
        return Partial(_stateless, apply), params, ()
    training = nnx.clone(model)
    training.train()
    graph, params, *others = nnx.split(training, nnx.Param, nnx.BatchStat, ...)
    statistics, rest = others
    return Partial(_NnxForward(graph), rest), params, statistics


def _stateless(
    apply: Any, params: Params, statistics: Statistics, x: jax.Array
) -> tuple[jax.Array, Statistics]:
    return apply(params, x), statistics


@dataclass(frozen=True)
class _NnxForward:
    """Compares by the structure of the module, so that one compilation serves all its weights."""

    graph: Any

    def __call__(
        self, rest: Any, params: Params, statistics: Statistics, x: jax.Array
    ) -> tuple[jax.Array, Statistics]:
        model = nnx.merge(self.graph, params, statistics, rest, copy=True)
        outputs = model(x)
        return outputs, nnx.state(model, nnx.BatchStat)


def trained(model: Module, state: State) -> Module:
    """A copy of the module with the state's weights and statistics, in the working precision."""
    copied = nnx.clone(model)
    nnx.update(copied, *cast((state.params, state.statistics), real_dtype()))
    return copied


def stack(states: Sequence[State]) -> State:
    """One state for networks of one shape, which then train side by side."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def member(state: State, index: int) -> State:
    """One of the networks of a stacked state."""
    return jax.tree.map(lambda leaf: leaf[index], state)


def train(
    problem: Problem, state: State, epochs: int, *, scan: bool | None = None
) -> tuple[State, np.ndarray]:
    """The state ``epochs`` later, and the mean loss of the steps of each epoch, (epochs,).

    A stacked state trains under ``vmap``, and its losses are (epochs, networks).

    Args:
      scan: True runs an epoch as one ``lax.scan``, False as a Python loop of compiled steps. None
        chooses: the loop for convolutions on a CPU, where XLA runs what is inside of a scan on one
        thread and convolutions ten times slower; the scan for everything else.
    """
    scan = not _convolves_on_cpu(problem, state) if scan is None else scan
    losses = []
    for _ in range(epochs):
        state, of_steps = (_scanned_epoch if scan else _looped_epoch)(problem, state)
        losses.append(of_steps)
    sizes = np.array(_sizes(problem), float)
    host = np.asarray(jax.device_get(losses), float)
    host = host.reshape(epochs, *state.epoch.shape, len(sizes))  # also for no epoch at all
    return state, host @ sizes / sizes.sum()


def _convolves_on_cpu(problem: Problem, state: State) -> bool:
    if jax.default_backend() != "cpu":
        return False
    one = member(state, 0) if state.epoch.ndim else state
    jaxpr = jax.make_jaxpr(problem.forward)(one.params, one.statistics, problem.x[:1])
    return "conv_general_dilated" in str(jaxpr)


@jax.jit
def _scanned_epoch(problem: Problem, state: State) -> tuple[State, jax.Array]:
    if state.epoch.ndim:
        return jax.vmap(_scanned_one, (None, 0))(problem, state)
    return _scanned_one(problem, state)


def _scanned_one(problem: Problem, state: State) -> tuple[State, jax.Array]:
    whole, rest = _batches(problem, state)
    state, losses = lax.scan(partial(_step, problem), state, whole)
    if rest.size:
        state, loss = _step(problem, state, rest)
        losses = jnp.append(losses, loss)
    return _next_epoch(state), losses


def _looped_epoch(problem: Problem, state: State) -> tuple[State, jax.Array]:
    whole, rest = _stacked_batches(problem, state)
    losses = []
    for indices in [*jnp.moveaxis(whole, -2, 0), *([rest] if rest.size else [])]:
        state, loss = _stacked_step(problem, state, indices)
        losses.append(loss)
    return _next_epoch(state), jnp.stack(losses, -1)


@jax.jit
def _stacked_batches(problem: Problem, state: State) -> tuple[jax.Array, jax.Array]:
    if state.epoch.ndim:
        return jax.vmap(_batches, (None, 0))(problem, state)
    return _batches(problem, state)


@jax.jit
def _stacked_step(problem: Problem, state: State, indices: jax.Array) -> tuple[State, jax.Array]:
    if state.epoch.ndim:
        return jax.vmap(_step, (None, 0, 0))(problem, state, indices)
    return _step(problem, state, indices)


def _batches(problem: Problem, state: State) -> tuple[jax.Array, jax.Array]:
    """The samples of this epoch's whole steps (steps, batch) and those left over (rest,)."""
    n = len(problem.x)
    order = jax.random.permutation(jax.random.fold_in(state.key, state.epoch), n)
    batch = min(problem.recipe.batch, n)
    whole = n // batch * batch
    return order[:whole].reshape(-1, batch), order[whole:]


def _step(problem: Problem, state: State, indices: jax.Array) -> tuple[State, jax.Array]:
    """One step of the optimiser on the samples of these indices."""
    x, y = problem.x[indices], problem.y[indices]

    def objective(params: Params) -> tuple[jax.Array, Statistics]:
        outputs, statistics = problem.forward(params, state.statistics, x)
        losses = jax.vmap(sample_loss(problem.recipe.loss))(outputs, y)
        return problem.recipe.scale * losses.mean(), statistics

    (loss, statistics), slope = jax.value_and_grad(objective, has_aux=True)(state.params)
    slope = _masked(slope, state.mask)
    optimizer = _optimizer(problem.recipe, len(_sizes(problem)))
    updates, memory = optimizer.update(slope, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    return replace(state, params=params, statistics=statistics, optimizer=memory), loss


def _optimizer(recipe: Recipe, steps: int) -> optax.GradientTransformation:
    """Decay before momentum for SGD, as in PyTorch. A weight of 0 with slope 0 stays at 0."""
    drops = {recipe.drop_after * steps: recipe.drop} if recipe.drop_after else {}
    rate = optax.piecewise_constant_schedule(recipe.rate, drops)
    if recipe.optimizer == "adamw":
        return optax.adamw(rate, weight_decay=recipe.decay)
    return optax.chain(
        optax.add_decayed_weights(recipe.decay), optax.sgd(rate, recipe.momentum or None)
    )


def _sizes(problem: Problem) -> list[int]:
    """The number of samples in each step of an epoch."""
    n, batch = len(problem.x), min(problem.recipe.batch, len(problem.x))
    return [batch] * (n // batch) + [n % batch] * (n % batch > 0)


def _next_epoch(state: State) -> State:
    return replace(state, epoch=state.epoch + 1)


def _masked(tree: Params, mask: Params | None) -> Params:
    return tree if mask is None else jax.tree.map(jnp.multiply, tree, mask)


def cast(tree: Any, dtype: Any) -> Any:
    """Floating point leaves in this precision."""

    def one(leaf: Any) -> Any:
        floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(dtype) if floating else leaf

    return jax.tree.map(one, tree)
