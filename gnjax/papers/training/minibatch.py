"""Mini-batch training of any network, pruned or not, by pure functions of a state.

The state holds the weights and the random key. To measure kappa during training, take the state
after some epochs. Training runs in the precision asked for, and :func:`trained` returns the network
in the working precision for spectra.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import lax
from jax.tree_util import Partial
from jax.typing import ArrayLike

from gnjax.networks.losses.sample_losses import sample_loss
from gnjax.networks.losses.targets import NOTHING_COUNTS, check_targets
from gnjax.networks.model import Params, functional
from gnjax.numerics.precision import real_dtype
from gnjax.papers.training.recipe import Recipe, optimizer_of

Statistics = Any  # what a forward pass updates: running averages of BatchNorm
_Forward = Callable[[Params, Statistics, jax.Array], tuple[jax.Array, Statistics]]
Augment = Callable[[jax.Array, jax.Array], jax.Array]  # (key, samples) to samples of that shape

Module = TypeVar("Module", bound=nnx.Module)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainingProblem:
    """The network to train, the inputs x (n, ...), the targets y (n, k), and the recipe.

    ``augment`` changes the samples of every step at random, as crops and flips of images do.
    """

    forward: _Forward
    x: jax.Array
    y: jax.Array
    recipe: Recipe = field(metadata={"static": True})
    augment: Augment | None = field(default=None, metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """A network in training, or several side by side, with a leading axis on every leaf.

    Attributes:
      mask: like ``params``, 0 for a pruned weight and 1 for any other; None where all are kept.
      key: the order of samples in epoch e is drawn from fold_in(key, e), and so is what changes
        the samples of its steps; None takes the samples as they stand, in every epoch.
      epoch: how many epochs are done.
    """

    params: Params
    statistics: Statistics
    optimizer: optax.OptState
    mask: Params | None
    key: jax.Array | None
    epoch: jax.Array


def begin(
    model: Any,
    x: ArrayLike,
    y: ArrayLike,
    recipe: Recipe,
    key: jax.Array | None,
    *,
    mask: Params | None = None,
    augment: Augment | None = None,
    dtype: str = "float32",
) -> tuple[TrainingProblem, State]:
    """The training problem of a network, and its state before the first step.

    Args:
      model: see :func:`gnjax.functional`; a Flax NNX module trains in its training mode.
      x, y: inputs (n, ...); integer labels (n,) or targets (n, k).
      recipe: the optimiser, its rates, the batch size and the loss.
      key: draws the mini-batches; with None every epoch takes the samples as they stand.
      mask: of pruned weights (0); they start at zero and stay there.
      augment: a function of (key, samples) that changes the samples of every step at random.
      dtype: of the training.
    """
    if augment is not None and key is None:
        msg = "augment draws its changes from key, which is None; give a key"
        raise ValueError(msg)
    forward, params, statistics = trainable(model)
    params, statistics = cast((params, statistics), dtype)
    if mask is not None:
        mask = jax.tree.map(lambda keep, w: jnp.asarray(keep, w.dtype), mask, params)
        params = _masked(params, mask)
    inputs = cast(jnp.asarray(x), dtype)
    outputs, _ = jax.eval_shape(forward, params, statistics, inputs)
    targets = check_targets(recipe.loss, y, outputs)
    if recipe.loss == "cross_entropy" and not (np.asarray(targets) >= 0).any():
        raise ValueError(NOTHING_COUNTS)
    if recipe.loss == "binary_cross_entropy" and (np.asarray(targets) < 0).any():
        msg = "training on the binary cross-entropy takes labels of 0 and 1; leave out those of -1"
        raise ValueError(msg)
    problem = TrainingProblem(forward, inputs, targets, recipe, augment)
    optimizer = optimizer_of(recipe, _steps(problem)).init(params)
    return problem, State(params, statistics, optimizer, mask, key, jnp.asarray(0))


def trainable(model: Any) -> tuple[_Forward, Params, Statistics]:
    """A model as a pure function, its parameters, and its statistics.

    The function maps (params, statistics, x) to (outputs, new statistics). Statistics are the
    running averages of BatchNorm in a Flax NNX module, and empty for other models.
    """
    if not isinstance(model, nnx.Module):
        apply, params = functional(model)
        return Partial(_stateless, apply), params, ()
    training = nnx.clone(model)
    training.train()
    # ``...`` takes all other variables, such as random keys, which training does not change.
    graph, params, *states = nnx.split(training, nnx.Param, nnx.BatchStat, ...)
    statistics, constants = states
    return Partial(_NnxForward(graph), constants), params, statistics


def _stateless(
    apply: Any, params: Params, statistics: Statistics, x: jax.Array
) -> tuple[jax.Array, Statistics]:
    return apply(params, x), statistics


@dataclass(frozen=True)
class _NnxForward:
    """The forward pass of a module; it compares by structure, so that it is compiled once."""

    graph: Any

    def __call__(
        self, constants: Any, params: Params, statistics: Statistics, x: jax.Array
    ) -> tuple[jax.Array, Statistics]:
        """The outputs on ``x`` and the new statistics; ``constants`` are all other variables."""
        model = nnx.merge(self.graph, params, statistics, constants, copy=True)
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
    problem: TrainingProblem, state: State, epochs: int, *, scan: bool | None = None
) -> tuple[State, np.ndarray]:
    """Train a network by mini-batches: the state ``epochs`` later, and each epoch's mean loss.

    The losses are (epochs,). A mean is over the samples as their steps saw them; for the
    cross-entropy over the labels that count, which those of -1 do not. A step without a label that
    counts has the gradient 0. A stacked state trains under ``vmap``, and its losses are (epochs,
    networks).

    Args:
      scan: True runs an epoch as one ``lax.scan``, False as a Python loop of compiled steps. None
        chooses: the loop for convolutions on a CPU, where XLA runs what is inside of a scan on one
        thread and convolutions ten times slower; the scan for everything else.
    """
    scan = not _convolves_on_cpu(problem, state) if scan is None else scan
    state, losses = (_epochs_by_scan if scan else _epochs_by_loop)(problem, state, epochs)
    host = np.asarray(jax.device_get(losses), float)
    host = host.reshape(epochs, *state.epoch.shape, _steps(problem))  # also for no epoch at all
    return state, host.sum(axis=-1) / float(_labels_that_count(problem.recipe.loss, problem.y))


def _convolves_on_cpu(problem: TrainingProblem, state: State) -> bool:
    """Whether the forward pass has a convolution that would run on a CPU."""
    if jax.default_backend() != "cpu":
        return False
    # 1 for a state of several networks, whose leaves have an axis more than those of one, else 0.
    networks = state.epoch.ndim
    learned, structure = jax.tree.flatten((state.params, state.statistics))
    fixed, forward = jax.tree.flatten(problem.forward)
    shapes = [
        *((leaf.shape, leaf.dtype) for leaf in fixed),
        *((leaf.shape[networks:], leaf.dtype) for leaf in learned),
        ((1, *problem.x.shape[1:]), problem.x.dtype),
    ]
    return _convolves(forward, structure, tuple(shapes))


@lru_cache(maxsize=64)
def _convolves(forward: Any, learned: Any, shapes: tuple[tuple[Any, Any], ...]) -> bool:
    """Whether a forward pass has convolutions, from the shapes of its arrays; traced once for each.

    ``forward`` and ``learned`` are the tree structures of the forward pass, with its constants, and
    of (params, statistics). ``shapes`` has (shape, dtype) of their leaves, and last of the input.
    """

    def of_leaves(*leaves: jax.Array) -> Any:
        fixed = forward.num_leaves
        params, statistics = jax.tree.unflatten(learned, leaves[fixed:-1])
        return jax.tree.unflatten(forward, leaves[:fixed])(params, statistics, leaves[-1])

    described = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    return "conv_general_dilated" in str(jax.make_jaxpr(of_leaves)(*described))


def _epochs_by_scan(
    problem: TrainingProblem, state: State, epochs: int
) -> tuple[State, list[jax.Array]]:
    """The state ``epochs`` later, each epoch one compiled scan, and the losses of the steps.

    The losses are an array (steps,) for each epoch, or (networks, steps), each the sum over the
    samples of a step.
    """
    problem_leaves, problem_structure = jax.tree.flatten(problem)
    leaves, structure = jax.tree.flatten(state)
    one_epoch, losses = _of_leaves(_scanned_epoch, problem_structure, structure), []
    for _ in range(epochs):
        leaves, losses_of_steps = one_epoch(problem_leaves, leaves)
        losses.append(losses_of_steps)
    return jax.tree.unflatten(structure, leaves), losses


def _epochs_by_loop(
    problem: TrainingProblem, state: State, epochs: int
) -> tuple[State, list[jax.Array]]:
    """The same as :func:`_epochs_by_scan`, by a Python loop of compiled steps."""
    problem_leaves, problem_structure = jax.tree.flatten(problem)
    leaves, structure = jax.tree.flatten(state)
    one_step, losses = _of_leaves(_step, problem_structure, structure), []
    n, batch = len(problem.x), problem.recipe.batch
    for epoch in range(epochs):
        losses_of_steps = []
        for indices in _stacked_batches(n, batch, state.key, state.epoch + epoch):
            leaves, loss = one_step(problem_leaves, leaves, indices)
            losses_of_steps.append(loss)
        losses.append(jnp.stack(losses_of_steps, -1))
        after = replace(jax.tree.unflatten(structure, leaves), epoch=state.epoch + epoch + 1)
        leaves = jax.tree.leaves(after)
    return jax.tree.unflatten(structure, leaves), losses


@lru_cache(maxsize=16)
def _of_leaves(function: Callable[..., Any], problem: Any, state: Any) -> Callable[..., Any]:
    """``function`` of (problem, state, ..) to a new state and losses, compiled, on lists of leaves.

    ``problem`` and ``state`` are their tree structures. A state of several networks is mapped over
    them. At every call JAX would take the state of a module apart and compare its structure with
    that of the call before, which takes longer than a step of a small network of many layers.
    """

    @jax.jit
    def of_leaves(
        problem_leaves: Any, leaves: Any, *arguments: Any
    ) -> tuple[list[jax.Array], jax.Array]:
        """The leaves of the new state, and the losses."""
        before = jax.tree.unflatten(state, leaves)
        mapped = function
        if before.epoch.ndim:
            mapped = jax.vmap(function, (None, 0, *(0 for _ in arguments)))
        after, losses = mapped(jax.tree.unflatten(problem, problem_leaves), before, *arguments)
        return jax.tree.leaves(after), losses

    return of_leaves


def _scanned_epoch(problem: TrainingProblem, state: State) -> tuple[State, jax.Array]:
    """One epoch of one network: the new state, and the summed loss of each step (steps,).

    The full batches run in a scan, and the last batch, which may have fewer samples, after it.
    """
    n, batch = len(problem.x), problem.recipe.batch
    full_batches, last_batch = _batches(n, batch, state.key, state.epoch)
    state, losses = lax.scan(partial(_step, problem), state, full_batches)
    if last_batch.size:
        state, loss = _step(problem, state, last_batch)
        losses = jnp.append(losses, loss)
    return replace(state, epoch=state.epoch + 1), losses


@partial(jax.jit, static_argnums=(0, 1))
def _stacked_batches(
    n: int, batch: int, key: jax.Array | None, epoch: jax.Array
) -> list[jax.Array]:
    """The indices of the samples in every step of an epoch: (batch,), or (networks, batch)."""
    batches_of = partial(_batches, n, batch)
    full_batches, last_batch = (jax.vmap(batches_of) if epoch.ndim else batches_of)(key, epoch)
    return [*jnp.moveaxis(full_batches, -2, 0), *([last_batch] if last_batch.size else [])]


def _batches(
    n: int, batch: int, key: jax.Array | None, epoch: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The indices of ``n`` samples in an epoch's full batches (steps, batch), and the rest (rest,).

    Their order is drawn from ``key`` and ``epoch``; with None it is 0 .. n - 1.
    """
    order = jnp.arange(n)
    if key is not None:
        order = jax.random.permutation(jax.random.fold_in(key, epoch), n)
    batch = min(batch, n)
    in_full_batches = n // batch * batch
    return order[:in_full_batches].reshape(-1, batch), order[in_full_batches:]


def _step(problem: TrainingProblem, state: State, indices: jax.Array) -> tuple[State, jax.Array]:
    """The state after one step on the mean loss of the samples ``indices``, and their summed loss.

    The mean is over the labels that count. Pruned weights have no gradient.
    """
    x, y = _drawn(problem, state, indices)
    count = jnp.maximum(_labels_that_count(problem.recipe.loss, y), 1)

    def objective(params: Params) -> tuple[jax.Array, tuple[jax.Array, Statistics]]:
        outputs, statistics = problem.forward(params, state.statistics, x)
        losses = jax.vmap(sample_loss(problem.recipe.loss))(outputs, y)
        total = problem.recipe.scale * losses.sum()
        return total / count, (total, statistics)

    gradient, (total, statistics) = jax.grad(objective, has_aux=True)(state.params)
    gradient = _masked(gradient, state.mask)
    optimizer = optimizer_of(problem.recipe, _steps(problem))
    updates, memory = optimizer.update(gradient, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    return replace(state, params=params, statistics=statistics, optimizer=memory), total


def _drawn(
    problem: TrainingProblem, state: State, indices: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The samples of these indices as a step of this epoch sees them, and their targets.

    The first index tells the steps of an epoch apart, as every sample is in one of them.
    """
    x, y = problem.x[indices], problem.y[indices]
    if problem.augment is not None and state.key is not None:  # begin refuses one without a key
        # fold_in(key, 1) is the second half of split(key), from which the permutation of the epoch
        # is drawn as well. The published table of pruning_arms was computed so.
        of_epoch = jax.random.fold_in(jax.random.fold_in(state.key, state.epoch), 1)
        x = problem.augment(jax.random.fold_in(of_epoch, indices[0]), x)
    return x, y


def evaluated(problem: TrainingProblem, state: State) -> tuple[float, float]:
    """The mean loss and the share of right answers, over all samples, as the network is now.

    Both are means over the samples; for the cross-entropy over the labels that count, which those
    of -1 do not. The answer is the class of the largest output. For the binary cross-entropy every
    output f is an answer, class 1 for f > 0 and else class 0, and the class of a label is 1 above
    1/2. With any other loss one output chooses no class, and the share is nan.

    The samples go through the network in training mode, in the batches of the next epoch and
    changed as its steps would see them.
    """
    leaves, structure = jax.tree.flatten(state)
    problem_leaves, problem_structure = jax.tree.flatten(problem)
    _, sums = _of_leaves(_summed, problem_structure, structure)(problem_leaves, leaves)
    count = float(_labels_that_count(problem.recipe.loss, problem.y))
    loss, right = np.asarray(sums, float) / count
    return float(loss), float(right)


def _labels_that_count(loss: Any, y: jax.Array) -> Any:
    """How many numbers a mean loss averages: the samples of ``y``, or the labels that count."""
    if loss != "cross_entropy":
        return len(y)
    if jnp.issubdtype(y.dtype, jnp.floating):  # probabilities (n, .., classes)
        return y.size // y.shape[-1]
    return jnp.count_nonzero(y >= 0)


def _right_answers(loss: Any, outputs: jax.Array, y: jax.Array) -> jax.Array:
    """Which answers of a batch are right; nan where one output has no class to choose."""
    if loss == "binary_cross_entropy":
        return (outputs > 0) == (y > 0.5)
    if outputs.ndim == 1 or outputs.shape[-1] == 1:
        return jnp.full(len(outputs), jnp.nan, outputs.dtype)
    classes = y if y.ndim < outputs.ndim else y.argmax(-1)
    return outputs.argmax(-1) == classes


def _summed(problem: TrainingProblem, state: State) -> tuple[State, jax.Array]:
    """The unchanged state, and the sums over samples of the loss and of right answers (2,).

    A sample with several answers counts by the share of them that is right; for the cross-entropy
    all answers are added up.
    """

    def of_batch(sums: jax.Array, indices: jax.Array) -> tuple[jax.Array, None]:
        """The ``sums`` (2,) with the loss and the right answers of a batch of samples added."""
        x, y = _drawn(problem, state, indices)
        outputs, _ = problem.forward(state.params, state.statistics, x)
        losses = problem.recipe.scale * jax.vmap(sample_loss(problem.recipe.loss))(outputs, y)
        right = _right_answers(problem.recipe.loss, outputs, y)
        if right.ndim > 1 and problem.recipe.loss != "cross_entropy":
            right = right.mean(axis=tuple(range(1, right.ndim)))
        return sums + jnp.stack([losses.sum(), right.sum().astype(losses.dtype)]), None

    n, batch = len(problem.x), problem.recipe.batch
    full_batches, last_batch = _batches(n, batch, state.key, state.epoch)
    # The sums have the dtype of the loss, which is not that of the samples if these are integers.
    described = jax.eval_shape(lambda: of_batch(jnp.zeros(2, bool), full_batches[0])[0])
    sums, _ = lax.scan(of_batch, jnp.zeros(2, described.dtype), full_batches)
    if last_batch.size:
        sums, _ = of_batch(sums, last_batch)
    return state, sums


def _steps(problem: TrainingProblem) -> int:
    """The number of steps in an epoch, the last of which may have fewer samples."""
    return -(-len(problem.x) // problem.recipe.batch)


def _masked(tree: Params, mask: Params | None) -> Params:
    return tree if mask is None else jax.tree.map(jnp.multiply, tree, mask)


def cast(tree: Any, dtype: Any) -> Any:
    """Convert the floating point leaves of a tree to ``dtype``."""

    def cast_leaf(leaf: Any) -> Any:
        floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(dtype) if floating else leaf

    return jax.tree.map(cast_leaf, tree)
