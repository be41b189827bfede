"""Whether what a diagnosis promises happens in training: six small networks, advice by advice.

    python -m benchmarks.advice [--save] [--steps=200]

Each network trains a little by Adam and is diagnosed. Then it trains on, with all samples in every
step, once with and once without each piece of advice, and both are compared. What a promise means
is fixed here, before any of it is tried:

- a limit of the learning rate: below it, at 0.9 times, the loss never rises above its start; above
  it, at 1.5 times, it does in some step. The row also says which rate of the grid ends lowest;
- a remedy that "helps": after the steps the loss is at most 1 / 1.1 times that without it, at the
  best rate of a grid around 2 / lambda_max for each; that "makes it worse": at least 1.1 times;
- float64 where float32 leaves kappa open: it is resolved there.

Advice is taken from ``gnjax.diagnose`` and nothing else. A remedy that "changes little", or of
which nothing can be told, promises nothing and is not tried.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import gnjax
from benchmarks import record
from gnjax.answers import ConditionNumber, Suggestion

_BEFORE = 20  # steps of Adam before the diagnosis
_RATE = 3e-3  # of Adam
_GRID = (0.01, 0.03, 0.1, 0.3, 0.9, 1.5, 3.0, 6.0)  # rates, in times of 2 / lambda_max
_BELOW, _ABOVE = _GRID.index(0.9), _GRID.index(1.5)
_CLEAR = 1.1  # times by which a loss is smaller or larger, to count as such
_HELPS, _HURTS = "helps", "makes it worse"  # verdicts of a suggestion
_DAMPING = 1e-4  # of lambda_max, as in the metrics of a diagnosis

Tree = Any
Step = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True)
class Problem:
    """A model (apply, params) on data, with the name of its loss."""

    name: str
    apply: Callable[[Tree, Any], jax.Array]
    params: Tree
    x: Any
    y: np.ndarray
    loss: str = "cross_entropy"

    def value(self, params: Tree) -> jax.Array:
        """The mean loss of the samples, whose tokens add up."""
        outputs = self.apply(params, self.x)
        if self.loss == "squared_error":
            return jnp.square(outputs - self.y).sum() / (2 * len(self.y))
        each = optax.softmax_cross_entropy_with_integer_labels(outputs, self.y)
        return each.sum() / len(self.y)

    def gram(self) -> Any:
        """The Gauss-Newton matrix on the side of the parameters."""
        return gnjax.gauss_newton((self.apply, self.params), self.x, self.y, loss=self.loss)


@dataclass(frozen=True)
class Tried:
    """One piece of advice, and what came of it."""

    network: str
    kind: str  # of advice, for a count
    advice: str
    promise: str
    happened: bool
    found: str


def networks() -> Iterator[Problem]:
    """Six networks of some thousand parameters, with data that ships with the package."""
    digits = gnjax.data.load("digits", samples=100, seed=0)
    x, y = digits.inputs, digits.labels
    key = jax.random.key(0)
    mlp = gnjax.models.MLP((64, 32, 32, 10), activation="tanh", key=key)
    yield Problem("MLP, tanh", *gnjax.functional(mlp), x, y)
    scales = np.geomspace(1.0, 1e-3, 64)
    yield Problem("MLP, inputs of scales 1 to 1e-3", *gnjax.functional(mlp), x * scales, y)
    yield Problem("residual MLP, ReLU", *_residual(key), x, y)
    cnn = gnjax.models.CNN(
        (8, 8, 1), 10, filters=(8, 16), stride=2, padding=1, norm="batch", key=key
    )
    yield Problem("CNN with BatchNorm", *gnjax.functional(cnn), x.reshape(-1, 8, 8, 1), y)
    yield Problem("LSTM, rows of a digit", *_lstm(key), x.reshape(-1, 8, 8), y)
    text = gnjax.data.load_text("python_topics", vocabulary=16)
    tokens, following = gnjax.data.sequences(text, samples=12, length=8)
    gpt = gnjax.models.GPT(16, length=8, width=16, depth=1, key=key)
    yield Problem("transformer, characters", *gnjax.functional(gpt), tokens, following)


def _residual(key: jax.Array) -> tuple[Callable[..., jax.Array], Tree]:
    """x <- x + W_2 relu(W_1 x), three times, and a head."""
    keys = jax.random.split(key, 7)
    params = {
        f"block{i}": {
            "in": jax.random.normal(keys[2 * i], (64, 32)) / 8,
            "out": jax.random.normal(keys[2 * i + 1], (32, 64)) / 32**0.5,
        }
        for i in range(3)
    } | {"head": jax.random.normal(keys[6], (64, 10)) / 8}

    def apply(params: Tree, x: jax.Array) -> jax.Array:
        for i in range(3):
            block = params[f"block{i}"]
            x = x + jax.nn.relu(x @ block["in"]) @ block["out"]
        return x @ params["head"]

    return apply, params


def _lstm(key: jax.Array) -> tuple[Callable[..., jax.Array], Tree]:
    """An LSTM of 16 units over the rows of an image, with a head on its last state."""

    class Reader(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            kind: Any = {"param_dtype": jnp.float64, "rngs": rngs}
            self.rnn = nnx.RNN(nnx.LSTMCell(8, 16, **kind), rngs=rngs)
            self.head = nnx.Linear(16, 10, **kind)

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.head(self.rnn(x)[:, -1])

    return gnjax.functional(Reader(nnx.Rngs(key)))


def measure(steps: int = 200) -> list[Tried]:
    gnjax.enable_x64()
    found: list[Tried] = []
    for problem in networks():
        for row in advice_of(problem, steps):
            print(f"{row.network}: {row.advice}: {row.promise}: ", end="")
            print(f"{'yes' if row.happened else 'NO'} ({row.found})", flush=True)
            found.append(row)
    return found


def advice_of(start: Problem, steps: int) -> Iterator[Tried]:
    """Everything that the diagnosis of a network promises, each tried."""
    optimizer = optax.adam(_RATE)
    problem, state = _trained(start, optimizer)
    yield from _precision(problem)
    diagnosis = gnjax.diagnose(
        (problem.apply, problem.params),
        problem.x,
        problem.y,
        loss=problem.loss,
        optimizer_state=state,
        optimizer=optimizer,
        seconds=math.inf,
    )
    limit = diagnosis.hessian_learning_rate or diagnosis.learning_rate
    losses = descent(problem, limit, steps)
    name = "limit of gradient descent"
    yield from _limit(problem.name, name, f"{name}, 2 / lambda_max(H) = {limit:.3g}", losses)
    factor = diagnosis.rate_to_limit
    if factor is not None:
        by_adam = _adam(problem, state, factor, steps)
        name = "limit of Adam"
        yield from _limit(problem.name, name, f"{name}, a rate of {factor * _RATE:.3g}", by_adam)
    without = best(descent(problem, diagnosis.learning_rate, steps))
    for suggestion in diagnosis.suggestions:
        if suggestion.verdict in (_HELPS, _HURTS):
            made = _with(suggestion, problem)
            if made is not None:
                yield _remedy(problem, suggestion, made, without, steps)


def _trained(problem: Problem, optimizer: optax.GradientTransformation) -> tuple[Problem, Tree]:
    """The problem after some steps of an optimiser, and the optimiser's state."""

    @jax.jit
    def step(params: Tree, state: Tree) -> Any:
        update, state = optimizer.update(jax.grad(problem.value)(params), state, params)
        return optax.apply_updates(params, update), state

    params, state = problem.params, optimizer.init(problem.params)
    for _ in range(_BEFORE):
        params, state = step(params, state)
    return replace(problem, params=params), state


def descent(
    problem: Problem, limit: float, steps: int, direction: Step = lambda gradient: gradient
) -> np.ndarray:
    """The loss before each step and after the last, (grid, steps + 1), at the grid's rates.

    ``limit`` is the rate of 1 on the grid, and a step goes along ``direction`` of the gradient, a
    vector of the parameters.
    """
    op = problem.gram()

    def run(rate: jax.Array) -> jax.Array:
        def step(vector: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            value, gradient = jax.value_and_grad(problem.value)(op.unravel(vector))
            return vector - rate * direction(op.ravel(gradient)), value

        end, values = jax.lax.scan(step, op.ravel(problem.params), None, steps)
        return jnp.append(values, problem.value(op.unravel(end)))

    return np.asarray(jax.jit(jax.vmap(run))(limit * jnp.asarray(_GRID)))


def _adam(problem: Problem, state: Tree, factor: float, steps: int) -> np.ndarray:
    """:func:`descent` by Adam from its state, where its limit is ``factor`` times its rate."""

    def run(rate: jax.Array) -> jax.Array:
        optimizer = optax.adam(rate)

        def step(carry: Any, _: None) -> Any:
            params, state = carry
            value, gradient = jax.value_and_grad(problem.value)(params)
            update, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, update), state), value

        (params, _), values = jax.lax.scan(step, (problem.params, state), None, steps)
        return jnp.append(values, problem.value(params))

    return np.asarray(jax.jit(jax.vmap(run))(factor * _RATE * jnp.asarray(_GRID)))


def best(losses: np.ndarray) -> float:
    """The lowest of the last losses, of those that are numbers."""
    return float(np.nanmin(np.where(np.isfinite(losses[:, -1]), losses[:, -1], np.nan)))


def _limit(network: str, kind: str, name: str, losses: np.ndarray) -> Iterator[Tried]:
    """What a limit of the rate says about rates below and above it."""
    ends = {index: f"ends at {losses[index, -1]:.3g}" for index in (_BELOW, _ABOVE)}
    start, below, above = losses[0, 0], losses[_BELOW], losses[_ABOVE]
    falls = bool((below <= start).all())
    yield Tried(
        network,
        kind,
        name,
        "at 0.9 times the limit the loss stays below its start",
        falls,
        f"{start:.3g} {ends[_BELOW]}",
    )
    rises = not bool((above <= start).all())
    lowest = _GRID[int(np.nanargmin(losses[:, -1]))]
    yield Tried(
        network,
        kind,
        name,
        "at 1.5 times it rises above it",
        rises,
        f"{ends[_ABOVE]}; {lowest:g} times the limit ends lowest, at {best(losses):.3g}",
    )


def _with(suggestion: Suggestion, problem: Problem) -> tuple[Problem, Step] | None:
    """The problem and the direction of a step with a remedy; None for one that is not tried."""
    name, along = suggestion.name, lambda gradient: gradient
    number = re.search(r"(?:beta=|x )([0-9.e-]+)", name)
    op = problem.gram()
    if name.startswith(("standardised", "whitened")):
        flat = np.asarray(problem.x).reshape(len(problem.x), -1)
        is_white = name.startswith("whitened")
        changed = gnjax.data.whiten(flat, method="zca").inputs if is_white else None
        changed = gnjax.data.standardise(flat) if changed is None else changed
        changed_problem = replace(problem, x=changed.reshape(problem.x.shape))
        return _as_told(changed_problem, suggestion), along
    if name.startswith("skip") and number:
        params = jax.tree.map(partial(_with_skip, float(number[1])), problem.params)
        return _as_told(replace(problem, params=params), suggestion), along
    if name.startswith("learning rate of") and number:
        layer = name.removeprefix("learning rate of ").partition(" x ")[0]
        scale = np.ones(op.shape[0])
        scale[op.places("layer")[layer]] = float(number[1])
        return problem, lambda gradient: scale * gradient
    damping = _DAMPING * float(gnjax.eigenvalues(op, k=1).values[0])
    if name == "the metric diag(G)":
        diagonal = op.ravel(gnjax.metrics.diagonal_of(op)) + damping
        return problem, lambda gradient: gradient / diagonal
    if name == "the metric of K-FAC":
        return problem, gnjax.metrics.kfac(op, damping=damping).solve
    return None  # the metric of the optimiser at hand, which is no change


def _with_skip(beta: float, weight: jax.Array) -> jax.Array:
    """W + beta I for a square matrix W, and anything else as it is."""
    is_square = weight.ndim == 2 and weight.shape[0] == weight.shape[1]
    return weight + beta * jnp.eye(len(weight)) if is_square else weight


def _as_told(changed: Problem, suggestion: Suggestion) -> Problem:
    """The changed problem; refused if its kappa and that which the diagnosis told are apart."""
    kappa, told = gnjax.condition_number(changed.gram()), suggestion.after
    (low, high), (told_low, told_high) = kappa.at_rank, told.at_rank
    if low > told_high or told_low > high:
        msg = f"{suggestion.name} was told to give {told}, and gives {kappa}"
        raise ValueError(msg)
    return changed


def _short(kappa: ConditionNumber) -> str:
    """kappa to three digits, and what is not known of it."""
    assumed = " at an assumed rank" if kappa.bounded and not kappa.resolved else ""
    return f"{'' if kappa.bounded else '>='}{kappa.value:.3g}{assumed}"


def kind_of(remedy: str) -> str:
    """A remedy without its numbers and layers, such as "learning rate of a layer"."""
    if remedy.startswith("learning rate of"):
        return "learning rate of a layer"
    return remedy.partition(" beta=")[0]


def _remedy(
    problem: Problem,
    suggestion: Suggestion,
    made: tuple[Problem, Step],
    without: float,
    steps: int,
) -> Tried:
    """What came of a remedy, at the best rate of the grid with it and ``without``."""
    changed, direction = made
    largest = suggestion.after.lambda_max
    losses = descent(changed, 2 / largest, steps, direction)
    with_it, at = best(losses), _GRID[int(np.nanargmin(losses[:, -1]))]
    helps = suggestion.verdict == _HELPS
    happened = with_it * _CLEAR <= without if helps else with_it >= _CLEAR * without
    kappas = f"kappa {suggestion.before.value:.2g} -> {suggestion.after.value:.2g}"
    return Tried(
        problem.name,
        kind_of(suggestion.name),
        suggestion.name.partition(" (best")[0],
        "lower loss" if helps else "higher loss",
        happened,
        f"{with_it:.3g} (at {at:g} x 2 / lambda_max) and {without:.3g} without; {kappas}",
    )


def _precision(problem: Problem) -> Iterator[Tried]:
    """Whether float64 resolves what float32 leaves open."""
    single = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), problem.params)
    x = np.asarray(problem.x)
    x = x.astype(np.float32) if x.dtype.kind == "f" else x
    jax.config.update("jax_enable_x64", False)  # as a user has it who has not heard of it
    try:
        narrow = gnjax.condition_number(
            gnjax.gauss_newton((problem.apply, single), x, problem.y, loss=problem.loss)
        )
    finally:
        gnjax.enable_x64()
    if narrow.resolved:
        return
    wide = gnjax.condition_number(
        gnjax.gauss_newton((problem.apply, single), x, problem.y, loss=problem.loss)
    )
    yield Tried(
        problem.name,
        "the same weights in float64",
        "the same weights in float64",
        "kappa is resolved",
        wide.resolved,
        f"kappa {_short(narrow)} -> {_short(wide)}",
    )


def main() -> None:
    given = record.options(measure, save=False)
    save_them = given.pop("save")
    began = record.environment()
    rows = [asdict(row) for row in measure(**given)]
    if save_them:
        record.write(record.FOLDER / "advice.json", {"environment": began, "rows": rows})


if __name__ == "__main__":
    main()
