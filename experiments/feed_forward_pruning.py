"""kappa of a feed-forward network that was pruned at initialisation, while it trains: figure 17."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

import gnjax
from experiments.shared.linear_network import kappa_fields
from experiments.shared.relu_networks import relu_network
from gnjax.models import MLP
from gnjax.networks.losses import sample_loss
from gnjax.papers.training import minibatch as training
from gnjax.papers.training import pruning
from gnjax.papers.training.recipe import Recipe

ALL, LEFT = "all", "left"  # the columns of J: of all parameters, or of those that pruning has left


@dataclass(frozen=True, eq=False)
class Path:
    """A pruned network in training: the network at each stop, and how well it fits all samples.

    ``losses`` and ``accuracies`` are of all samples, before training and after every epoch.
    """

    networks: dict[int, MLP]
    mask: Any
    losses: list[float]
    accuracies: list[float]


def trained_path(
    x: NDArray[np.float64],
    labels: NDArray[np.int64],
    widths: Sequence[int],
    *,
    initializer: str,
    biases: str,
    pruned: float,
    seed: int,
    recipe: Recipe,
    stops: Sequence[int],
) -> Path:
    """Prune every tensor of a ReLU network, and train it on the samples in their order."""
    model = relu_network(widths, initializer, biases, seed)
    mask = pruning.magnitude_mask(nnx.state(model, nnx.Param), pruned, every_tensor=True)
    problem, state = training.begin(model, x, labels, recipe, None, mask=mask, dtype="float64")
    networks, fits = {}, [_fit(problem, state)]
    for epoch in range(stops[-1] + 1):
        if epoch in stops:
            networks[epoch] = training.trained(model, state)
        if epoch < stops[-1]:
            state, _ = training.train(problem, state, 1)
            fits.append(_fit(problem, state))
    losses, accuracies = np.array(fits).T.tolist()
    return Path(networks, mask, losses, accuracies)


@jax.jit
def _fit(problem: training.Problem, state: training.State) -> jax.Array:
    """The loss of all samples as the recipe scales it, and the share of them classified rightly."""
    outputs, _ = problem.forward(state.params, state.statistics, problem.x)
    losses = jax.vmap(sample_loss(problem.recipe.loss))(outputs, problem.y)
    right = outputs.argmax(1) == _classes(problem.y)
    return jnp.stack([problem.recipe.scale * losses.mean(), right.mean(dtype=losses.dtype)])


def _classes(targets: jax.Array) -> jax.Array:
    """Labels (n,) of labels, or of targets that are rows of the identity."""
    return targets if targets.ndim == 1 else targets.argmax(1)


def kappa(net: MLP, x: NDArray[np.float64], mask: Any, columns: str) -> dict[str, Any]:
    """kappa of J J^T for J of all parameters, or of those that the mask keeps."""
    kernel = gnjax.ntk(net, x, mask=mask if columns == LEFT else None)
    return kappa_fields(gnjax.condition_number(kernel, method="inverse"))
