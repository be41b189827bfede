"""The members of the family that a monitor measures beside the largest eigenvalue of H."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jax
import numpy as np

from gnjax.diagnosis.sharpness.along_gradients import (
    batch_sharpness,
    critical_sharpness,
    driving_eigenvalue,
)
from gnjax.diagnosis.sharpness.in_norms import (
    Towards,
    check_whole,
    largest_in_norm,
    polar_factors,
    signs,
)
from gnjax.operators.of_networks.hessian import NetworkHessian

_IN_NORMS: dict[str, Towards] = {
    "sign_sharpness": signs,
    "spectral_sharpness": polar_factors,
}
MEASURES = ("batch_sharpness", "critical_sharpness", "driving_eigenvalue", *_IN_NORMS)


class SharpnessFamily:
    """Computes the chosen ``measures`` along a training; the searches start from their last ends.

    >>> from gnjax.diagnosis.sharpness import SharpnessFamily
    >>> family = SharpnessFamily(["driving_eigenvalue"])
    >>> model = lambda w, x: x * w, np.array([[1.0, 1.0]])
    >>> op = gnjax.hessian(model, np.array([[1.0, 2.0]]), np.zeros((1, 2)))
    >>> family(op, np.ones(2), sharpness=4.0)["driving_eigenvalue"]  # f = (1, 2), K = diag(1, 4)
    3.4
    """

    def __init__(self, measures: Collection[str] = (), batch_samples: int | None = None) -> None:
        self._measures, self._batch_samples = tuple(measures), batch_samples
        self._vectors: dict[str, np.ndarray] = {}
        unknown = [name for name in self._measures if name not in MEASURES]
        if unknown or isinstance(measures, str):
            msg = f"measures={measures!r} are not some of {', '.join(MEASURES)}"
            raise ValueError(msg)
        if ("batch_sharpness" in self._measures) != (batch_samples is not None):
            msg = (
                "batch_sharpness is of batches of so many samples as training takes: give "
                "measures=['batch_sharpness'] and batch_samples= together"
            )
            raise ValueError(msg)

    def renew(self) -> None:
        """Forget the vectors of a model of another structure."""
        self._vectors = {}

    def __call__(
        self,
        op: NetworkHessian,
        top: Any,
        *,
        sharpness: float,
        update: jax.Array | None = None,
        rate: float | None = None,
        rtol: float = 2e-2,
        steps: int = 30,
    ) -> dict[str, Any]:
        """The measures and their errors by name, and the number of products made.

        Args:
          op: the Hessian.
          top: its eigenvector of the largest eigenvalue ``sharpness``.
          update: the step of an optimiser (p,), from which the loss is searched for its rise.
          rate: the learning rate of the update.
          rtol: the searches in norms end where a step gains less than this.
          steps: the most products from one start of a search.
        """
        fields: dict[str, Any] = {"products": 0}
        for name in self._measures:
            if name in _IN_NORMS:
                value, error, products = self._in_norm(name, op, top, rtol, steps)
                fields["products"] += products
            elif name == "batch_sharpness":
                value, error = batch_sharpness(op, self._checked_size(op))
            elif name == "driving_eigenvalue":
                value, error = driving_eigenvalue(op)
            else:
                value, error = critical_sharpness(op, update, *_step(update, rate, sharpness))
            fields |= {name: value, f"{name}_error": error}
        return fields

    def _in_norm(
        self, name: str, op: NetworkHessian, top: Any, rtol: float, steps: int
    ) -> tuple[float, float, int]:
        """The lower bound from the eigenvector of H, or from the vector of the row before."""
        if name == "spectral_sharpness":
            check_whole(op)
        starts = [vector for vector in (self._vectors.get(name), top) if vector is not None]
        end = largest_in_norm(op, _IN_NORMS[name], starts, rtol, steps)
        self._vectors[name] = end.vector
        return end.value, end.error, end.products

    def _checked_size(self, op: NetworkHessian) -> int:
        size, net = self._batch_samples, op.net
        assert size is not None
        if net.coupled:
            msg = (
                "batch_sharpness divides the samples into batches, and these are coupled: leave it "
                "out, or call model.eval()"
            )
            raise ValueError(msg)
        if not 1 <= size <= net.samples:
            msg = f"batch_samples={size} is not between 1 and the monitor's {net.samples} samples"
            raise ValueError(msg)
        return size


def _step(update: jax.Array | None, rate: float | None, sharpness: float) -> tuple[float, float]:
    """The learning rate that the step is made with, and the factor that the search begins with.

    Without an update the step is the gradient, of learning rate 1, and the search begins at
    1 / sharpness.
    """
    if update is None:
        return 1.0, 1 / sharpness if sharpness > 0 else 1.0
    if rate is None:
        msg = (
            "critical_sharpness along an update needs the learning rate that the update was made "
            "with: pass rate= with update=, or neither for the gradient"
        )
        raise ValueError(msg)
    return float(rate), 1.0
