"""A recipe for training on mini-batches in plain values, and the optimiser that it names."""

from __future__ import annotations

from dataclasses import dataclass

import optax

from gnjax.networks.losses.sample_losses import check_loss

OPTIMIZERS = ("sgd", "adamw")


@dataclass(frozen=True)
class Recipe:
    """How to train, in plain values so that it can be a part of a config and of a cell.

    Attributes:
      optimizer: "sgd", where v <- momentum v + (gradient + decay w) and w <- w - rate v, or
        "adamw", where w <- w - rate (m / (sqrt(v) + 1e-8) + decay w) and ``momentum`` is not read.
      rate: the learning rate; ``drop`` times it after ``drop_after`` epochs (0: it is constant).
      batch: the samples in each step; those left over at the end of an epoch make a smaller step.
      loss: averaged over the batch; "mse" (|f - y|^2 / 2), or "cross_entropy", whose mean is over
        the labels that are not -1; each times ``scale``: 2 / k makes "mse" the mean over outputs
        too, as PyTorch's MSELoss is.
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
        """Refuse values that are out of range."""
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


def optimizer_of(recipe: Recipe, steps: int) -> optax.GradientTransformation:
    """The optimiser of a recipe; ``steps`` is the number of steps in an epoch.

    SGD adds weight decay before momentum, as PyTorch does. A weight of 0 whose gradient is always
    0, as a pruned one, stays at 0.
    """
    # The step at which the rate drops, and the factor.
    drops = {recipe.drop_after * steps: recipe.drop} if recipe.drop_after else {}
    rate = optax.piecewise_constant_schedule(recipe.rate, drops)
    if recipe.optimizer == "adamw":
        return optax.adamw(rate, weight_decay=recipe.decay)
    return optax.chain(
        optax.add_decayed_weights(recipe.decay), optax.sgd(rate, recipe.momentum or None)
    )
