"""Train paper B's networks at several class proportions at once, and find their sharpness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

import gnjax
from experiments.shared.linear_training import Data, Drawn, draw, hessian
from gnjax import data as datasets
from gnjax.papers import balanced
from gnjax.papers.training import linear_descent
from gnjax.papers.training.descent import (
    PAPER,
    DescentLoss,
    Halving,
    Path,
    Samples,
    descend,
    tanh_loss,
    tanh_network,
)
from gnjax.papers.training.linear_descent import Moments

INPUTS = ("orthogonalised", "raw")
INITIALIZERS = ("balanced", "pytorch_default")
ACTIVATIONS = ("linear", "tanh")


@dataclass(frozen=True)
class Recipe:
    """The network and the data, and how it is trained.

    Attributes:
      inputs: "orthogonalised", x^T x / n = sigma_x^2 I, or "raw" pixels.
      initializer: "balanced" with all singular values ``start``, or "pytorch_default".
      activation: "linear" or "tanh".
    """

    inputs: str
    initializer: str
    activation: str
    depth: int
    width: int
    sigma_x: float
    start: float
    rate: float
    epochs: int

    def __post_init__(self) -> None:
        known = {"inputs": INPUTS, "initializer": INITIALIZERS, "activation": ACTIVATIONS}
        for name, choices in known.items():
            if getattr(self, name) not in choices:
                msg = f"{name}={getattr(self, name)!r} is not one of {', '.join(choices)}"
                raise ValueError(msg)
        if self.depth < 2 or self.width < 10 or self.epochs < 1:
            msg = f"depth 2, width 10 (the classes) and one epoch are the least, got {self}"
            raise ValueError(msg)


@dataclass(frozen=True, eq=False)
class Problem:
    """One network before training, in the fewest coordinates that leave its training unchanged.

    ``least`` and ``printed`` are the two readings of Eq 14 for the orthogonalised inputs.
    """

    weights: list[jax.Array]
    data: Moments | Samples
    inputs: int
    share: float
    least: float
    printed: float
    source: str


class Sharpness(NamedTuple):
    """The largest eigenvalue of the full Hessian; H has one within ``error`` of ``value``."""

    value: float
    error: float


def problem(data: Data, recipe: Recipe) -> Problem:
    """Draw the samples and the weights, both from the seed of the data, and reduce them."""
    return problem_on(draw(data), recipe, data.seed)


def problem_on(drawn: Drawn, recipe: Recipe, seed: int) -> Problem:
    """Draw the weights for these samples, and reduce both."""
    white = datasets.orthogonalise(drawn.inputs, recipe.sigma_x)
    x = white if recipe.inputs == "orthogonalised" else drawn.inputs
    widths = (x.shape[1], *[recipe.width] * (recipe.depth - 1), drawn.labels.shape[1])
    weights = _initial(widths, recipe, seed)
    least = balanced.least_sharpness(white, drawn.labels, recipe.depth, recipe.sigma_x)
    printed = balanced.printed_sharpness(white, drawn.labels, recipe.depth, recipe.sigma_x)
    small, seen = _reduced(weights, x, drawn.labels, recipe)
    return Problem(small, seen, x.shape[1], drawn.largest_share, least, printed, drawn.source)


def _initial(widths: Sequence[int], recipe: Recipe, seed: int) -> list[jax.Array]:
    values = np.full(min(widths), recipe.start)
    options = {"singular_values": values} if recipe.initializer == "balanced" else {}
    return gnjax.initializers.chain(jax.random.key(seed), widths, recipe.initializer, **options)


def _reduced(
    weights: list[jax.Array], x: NDArray[np.float64], y: NDArray[np.float64], recipe: Recipe
) -> tuple[list[jax.Array], Moments | Samples]:
    """The weights and the data in fewer coordinates; those of a tanh network stay as they are.

    The reductions are those of :mod:`gnjax.papers.training.linear_descent`.
    """
    if recipe.activation == "tanh":
        return weights, Samples(jnp.asarray(x), jnp.asarray(y))
    data = linear_descent.moments(x, y)
    if recipe.initializer == "balanced":
        weights, data, _ = linear_descent.core(weights, data, rank=y.shape[1])
    if recipe.inputs == "raw":
        weights, data, _ = linear_descent.principal_axes(weights, data)
    else:
        weights, data, _ = linear_descent.row_space(weights, data)
    return weights, data


def train(problems: Sequence[Problem], recipe: Recipe, epochs: tuple[int, ...] = ()) -> list[Path]:
    """Train all problems at once, by the halving rule; keep these epochs, or the last one."""
    run = partial(_descend, recipe=recipe, keep=epochs or (recipe.epochs,), halving=PAPER)
    return batched(run, problems)


def batched(run: Any, problems: Sequence[Problem]) -> list[Path]:
    """The path ``run(weights, data)`` of every problem, all computed at once by ``jax.vmap``.

    Subsets of the samples differ in rank, so inputs are padded with zeros to the same number. An
    input that is 0 in all samples moves no weight.
    """
    most = max(problem.weights[0].shape[1] for problem in problems)
    padded = [_padded(problem.weights, problem.data, most) for problem in problems]
    weights, data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded)
    paths = jax.vmap(run)(weights, data)
    return [
        _unpadded(jax.tree.map(lambda leaf, i=i: leaf[i], paths), problem)
        for i, problem in enumerate(problems)
    ]


def _descend(
    weights: list[jax.Array],
    data: Moments | Samples,
    rate: ArrayLike | None = None,
    *,
    recipe: Recipe,
    keep: Sequence[int],
    halving: Halving | None,
) -> Path:
    loss: DescentLoss = tanh_loss if recipe.activation == "tanh" else linear_descent.loss
    if recipe.activation == "tanh":  # float32 is enough to train in, and twice as fast
        weights, data = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (weights, data))
    rate = recipe.rate if rate is None else rate
    return descend(loss, weights, data, keep=keep, rate=rate, halving=halving)


def _padded(
    weights: list[jax.Array], data: Moments | Samples, inputs: int
) -> tuple[list[jax.Array], Moments | Samples]:
    def wider(array: jax.Array) -> jax.Array:
        missing = inputs - array.shape[-1]
        return jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)])

    if isinstance(data, Samples):
        seen: Moments | Samples = data._replace(x=wider(data.x))
    else:
        seen = replace(data, covariance=wider(data.covariance), cross=wider(data.cross))
    return [wider(weights[0]), *weights[1:]], seen


def _unpadded(path: Path, problem: Problem) -> Path:
    """The path without the inputs that padding added, in float64."""
    inputs = problem.weights[0].shape[1]
    first, *rest = [w.astype(jnp.float64) for w in path.params]
    return replace(path, params=[first[..., :inputs], *rest])


def at_rates(
    problem: Problem, recipe: Recipe, rates: Sequence[float], epochs: Sequence[int]
) -> list[Path]:
    """The paths from the same start at several constant learning rates."""
    run = partial(_descend, recipe=recipe, keep=tuple(epochs), halving=None)
    paths = jax.vmap(run, in_axes=(None, None, 0))(
        problem.weights, problem.data, jnp.asarray(rates)
    )
    return [jax.tree.map(lambda leaf, i=i: leaf[i], paths) for i in range(len(rates))]


def sharpness(weights: list[jax.Array], data: Moments | Samples, rtol: float) -> Sharpness:
    """The largest eigenvalue of the full Hessian in float64, which no reduction changes."""
    if isinstance(data, Samples):
        op = gnjax.hessian((tanh_network, weights), data.x, data.y)
    else:
        op = hessian(weights, data)
    found = gnjax.eigenvalues(op, k=1, which="largest", rtol=rtol)
    return Sharpness(float(found.values[0]), float(found.errors[0]))


def floor(data: Moments | Samples) -> float | None:
    """The least loss of a linear network; None for a tanh network, where it is not known."""
    return None if isinstance(data, Samples) else linear_descent.floor(data)


def row(
    problem: Problem,
    path: Path,
    index: int,
    data: Data,
    recipe: Recipe,
    rtol: float,
) -> dict[str, Any]:
    """The columns of a table at one point of a path.

    ``share`` is that of class 0 as realised, ``measured`` the sharpness, ``printed`` Eq 14 as
    printed, and ``least`` lambda_*, Eq 14 with |Y X^T| / (n sigma_x^2); no minimum is flatter.
    """
    weights = [w[index] for w in path.params]
    found = sharpness(weights, problem.data, rtol)
    return {
        "data": f"{data.name}, {recipe.inputs}",
        "inputs": problem.inputs,
        "outputs": 10,
        "seed": data.seed,
        "share": problem.share,  # as realised
        "rate": path.rates[index],
        "measured": found.value,
        "error": found.error,
        "least": problem.least,
        "printed": problem.printed,
        "loss": path.losses[index],
        "floor": floor(problem.data),  # the least-squares optimum
    }
