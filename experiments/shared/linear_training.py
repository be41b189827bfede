"""Linear networks of paper B trained on orthogonalised data, and the Hessian along training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import gnjax
from gnjax import data as datasets
from gnjax.numerics.rounding import spectral_error
from gnjax.operators import NetworkHessian
from gnjax.papers.training import linear_descent
from gnjax.papers.training.descent import descend
from gnjax.papers.training.linear_descent import Moments, Weights


@dataclass(frozen=True)
class Data:
    """The samples: class 0 has ``share`` of them, and the other classes have equal numbers.

    ``side`` is the side of the grey, downsampled image, 0 for the image as it is.
    """

    name: str
    samples: int
    share: float
    seed: int
    side: int


def draws(
    name: str, samples: int, shares: Sequence[float], seeds: Sequence[int], side: int
) -> list[Data]:
    """The samples with every share and every seed."""
    return [Data(name, samples, share, seed, side) for share in shares for seed in seeds]


@dataclass(frozen=True)
class Training:
    """Gradient descent with the halving rule, started by ``initializer``, kept at ``epochs``."""

    depth: int
    width: int
    initializer: str
    rate: float
    epochs: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.epochs or min(self.epochs) < 0 or self.depth < 2 or self.width < 1:
            msg = f"training needs epochs, 2 layers or more and a width, got {self}"
            raise ValueError(msg)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Samples with one-hot labels, before anything is done to the inputs."""

    inputs: NDArray[np.float64]  # (n, d)
    labels: NDArray[np.float64]  # (n, k)
    largest_share: float  # of a class, as realised
    source: str


@dataclass(frozen=True)
class Orthogonal:
    """The moments of orthogonalised data, on which a linear network depends, and their source."""

    moments: Moments
    inputs: int  # the rank of the data
    outputs: int
    samples: int
    largest_share: float  # of a class, as realised
    floor: float  # the loss at every global minimum
    source: str


@dataclass(frozen=True)
class Point:
    """The network after some epochs."""

    epoch: int
    weights: list[jax.Array]
    loss: float


def draw(data: Data) -> Drawn:
    """Draw the samples, with the share of class 0; grey and downsampled where a side is given."""
    imbalanced = datasets.class_imbalance(_loaded(data.name), data.samples, data.share, data.seed)
    labelled = imbalanced.dataset
    inputs, shape = labelled.inputs, labelled.shape
    if data.side and len(shape) == 3:
        inputs, shape = datasets.grayscale(inputs, shape), shape[:2]
    if data.side:
        inputs = datasets.downsample(inputs, shape, (data.side, data.side))
    labels = datasets.one_hot(labelled.labels, labelled.classes)
    return Drawn(inputs, labels, imbalanced.largest_share, labelled.source)


@lru_cache(maxsize=1)
def _loaded(name: str) -> datasets.Dataset:
    return datasets.load(name)


@cache
def orthogonal(data: Data, sigma_x: float) -> Orthogonal:
    """Draw, downsample and orthogonalise, x^T x / n = sigma_x^2 I, with one-hot labels."""
    drawn = draw(data)
    x = datasets.orthogonalise(drawn.inputs, sigma_x)
    moments = linear_descent.moments(x, drawn.labels)
    return Orthogonal(
        moments,
        x.shape[1],
        drawn.labels.shape[1],
        len(x),
        drawn.largest_share,
        linear_descent.floor(moments),
        drawn.source,
    )


def describe(data: Data, sigma_x: float) -> str:
    """One line for the provenance."""
    found = orthogonal(data, sigma_x)
    size = f", grey, {data.side} x {data.side}" if data.side else ""
    return (
        f"{found.source}{size}, orthogonalised with sigma_x={sigma_x:g}: n={found.samples}, "
        f"rank {found.inputs}"
    )


def train(found: Orthogonal, training: Training, seed: int) -> Iterator[Point]:
    """The network at each epoch, in the coordinates of the data.

    Descent runs on the rows that the moments and W_1 span, where it takes the same path.
    """
    widths = (found.inputs, *[training.width] * (training.depth - 1), found.outputs)
    drawn = gnjax.initializers.chain(jax.random.key(seed), widths, training.initializer)
    reduced = linear_descent.row_space(drawn, found.moments)
    path = descend(
        linear_descent.loss,
        reduced.weights,
        reduced.data,
        keep=training.epochs,
        rate=training.rate,
    )
    for at, epoch in enumerate(training.epochs):
        weights = linear_descent.lift([w[at] for w in path.params], reduced)
        yield Point(epoch, weights, float(path.losses[at]))


def hessian(weights: Weights, moments: Moments) -> NetworkHessian:
    """The full Hessian of the loss on all samples, computed from few rows with their moments."""
    op = gnjax.hessian((_linear, list(weights)), *representatives(moments))
    assert isinstance(op, NetworkHessian)
    return op


@dataclass(frozen=True, eq=False)
class SplitHessian:
    """The full Hessian for a covariance C = c I, as two parts that do not mix.

    ``inside`` is the Hessian on the inputs that the rows of W_1 and of the cross moment span. Only
    W_1 may move along one of the other inputs, where the Hessian is c S^T S with
    S = W_L .. W_2: the whole Hessian has its eigenvalues ``outside`` once for each such input.
    """

    inside: NetworkHessian
    outside: NDArray[np.float64]
    inputs_outside: int
    deviation: float  # |C / c - I| in the Frobenius norm: what rounding left in C

    def trace(self, probes: int, seed: int) -> tuple[float, float]:
        """Hutchinson's estimate for ``inside`` plus the rest, and its standard error."""
        found = gnjax.trace(self.inside, probes=probes, seed=seed)
        return found.value + self._trace_outside(), found.standard_error

    def exact_trace(self) -> float:
        """The trace, for ``inside`` by a product with every unit vector."""
        return gnjax.trace(self.inside, method="exact").value + self._trace_outside()

    def _trace_outside(self) -> float:
        return self.inputs_outside * float(self.outside.sum())

    def largest(self, count: int, rtol: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The largest eigenvalues of both parts together, and their errors."""
        found = gnjax.eigenvalues(self.inside, k=count, which="largest", rtol=rtol)
        repeated = np.repeat(self.outside, min(self.inputs_outside, count))
        rounding = spectral_error(len(self.outside), jnp.dtype(float)) * self.outside[-1]
        values = np.concatenate([found.values, repeated])
        errors = np.concatenate([found.errors, np.full(len(repeated), rounding)])
        order = np.argsort(-values)[:count]
        return values[order], errors[order]


def split_hessian(weights: Weights, moments: Moments) -> SplitHessian:
    """The full Hessian on orthogonalised data, split so that its products need fewer inputs.

    With 3,072 inputs, for example, they need 266.
    """
    reduced = linear_descent.row_space(weights, moments)
    variance = float(reduced.data.covariance[0])
    after_first = np.asarray(linear_descent.end_to_end(weights[1:]))
    covariance = np.asarray(moments.covariance)
    return SplitHessian(
        hessian(reduced.weights, reduced.data),
        variance * np.linalg.eigvalsh(after_first.T @ after_first),
        len(covariance) - len(reduced.data.covariance),
        float(np.linalg.norm(covariance / variance - np.eye(len(covariance)))),
    )


def _linear(weights: Weights, x: jax.Array) -> jax.Array:
    for weight in weights:
        x = jnp.matmul(x, weight.T, precision="highest")
    return x


def representatives(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Rows x (r, d) and y (r, k) with x^T x / r = C and y^T x / r = B, r the rank of C.

    With C = V diag(c) V^T, x = sqrt(r) diag(c)^{1/2} V^T and y = sqrt(r) diag(c)^{-1/2} V^T B^T.
    The loss on them differs from that on all samples by a constant.
    """
    values, axes = linear_descent.axes(moments.covariance)
    kept = values > len(values) * np.finfo(np.float64).eps * values.max()
    roots, axes = np.sqrt(values[kept])[:, None], axes[:, kept].T
    scale = len(roots) ** 0.5
    return scale * roots * axes, scale * (axes @ np.asarray(moments.cross).T) / roots
