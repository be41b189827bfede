"""The spectra of the diagonal blocks of a network's curvature, and how much they differ."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from gnjax.conditioning.condition_number import ConditionNumber, condition_of_spectrum
from gnjax.networks.network import parameter_names
from gnjax.networks.parameters import Groups, grouped
from gnjax.numerics.certificate import Error
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.result import Result
from gnjax.operators.blocks import diagonal_blocks
from gnjax.operators.curvature import gauss_newton
from gnjax.operators.network import NetworkGram
from gnjax.operators.protocol import Operator
from gnjax.spectra.distance import jensen_shannon
from gnjax.spectra.eigenvalues import eigenvalues
from gnjax.spectra.spectrum import Spectrum, with_zeros

_ZERO = 1e-12  # of the largest eigenvalue of all blocks, below which one counts as zero


@dataclass(frozen=True, repr=False)
class BlockSpectrum(Result):
    """One diagonal block.

    Attributes:
      name: of the block; ``parameters`` is how many it has.
      spectrum: all of its eigenvalues, with their errors.
      condition: its kappa; None where it has a negative eigenvalue.

    >>> model = lambda w, x: x @ w["a"] + w["b"], {"a": np.ones((1, 1)), "b": np.ones((1, 1))}
    >>> x = np.array([[1.0], [2.0]])
    >>> found = gnjax.block_spectra(model, x, by="parameter")  # diag(G) = (1 + 4) / 2 and 1
    >>> print(found["a"])
    a: 1 parameters, trace 2.5, kappa = 1 in [1, 1] (rank 1 of 1, full; factored, measured)
    """

    name: str
    parameters: int
    spectrum: Spectrum
    condition: ConditionNumber | None

    @property
    def trace(self) -> float:
        """The sum of the eigenvalues."""
        return float(self.spectrum.values.sum())

    def __str__(self) -> str:
        kappa = "indefinite" if self.condition is None else str(self.condition)
        return f"{self.name}: {self.parameters} parameters, trace {self.trace:.6g}, {kappa}"


@dataclass(frozen=True, repr=False)
class BlockSpectra(Result):
    """What :func:`block_spectra` found.

    Attributes:
      blocks: one :class:`BlockSpectrum` for each block, in the natural order of their names.
      distances: (b, b), the Jensen-Shannon distance between every two blocks: the eigenvalues that
        are not zero are sorted into four bins to a decade, and d^2 is the Jensen-Shannon divergence
        of the shares in the bins to base 2. It is 0 for equal shares and 1 where no bin is shared,
        and nan for a block without an eigenvalue above the floor.
      distance_errors: (b, b), bounds on their errors, as sure as the two spectra are.
      floor: an eigenvalue of at most this size counts as zero: 1e-12 of the largest of all blocks.
      off_block_share: |G - blockdiag(G)|_F^2 / |G|_F^2.
      off_block_error: a bound on its error.
      method: "jacobian" or "kernels", all blocks from one pass over the network; "matrix" or
        "products", from the columns of the matrix.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> found = gnjax.block_spectra(model, jax.random.normal(jax.random.key(1), (5, 3)))
    >>> [(block.name, len(block.spectrum), block.condition.rank) for block in found.blocks]
    [('dense1', 16, 10), ('dense2', 10, 10)]
    >>> gnjax.BlockSpectra.from_json(found.to_json()).off_block_share == found.off_block_share
    True
    """

    blocks: tuple[BlockSpectrum, ...]
    distances: np.ndarray
    distance_errors: np.ndarray
    floor: float
    off_block_share: float
    off_block_error: Error
    method: str

    def __getitem__(self, name: str) -> BlockSpectrum:
        """The block of a name."""
        for block in self.blocks:
            if block.name == name:
                return block
        names = ", ".join(block.name for block in self.blocks)
        msg = f"there is no block {name!r}; the blocks are {names}"
        raise ValueError(msg)

    @property
    def mean_distance(self) -> float:
        """The mean of the distances over all pairs of blocks; nan for a single block.

        It measures how heterogeneous the blocks are, as in Zhang et al. 2024 (arXiv 2402.16788).
        """
        return self._mean(self.distances)

    @property
    def mean_distance_error(self) -> float:
        """A bound on the error of ``mean_distance``."""
        return self._mean(self.distance_errors)

    def _mean(self, matrix: np.ndarray) -> float:
        pairs = matrix[np.triu_indices(len(matrix), 1)]
        return float(pairs.mean()) if len(pairs) else float("nan")

    def __str__(self) -> str:
        share, error = self.off_block_share, self.off_block_error
        width = max(len(block.name) for block in self.blocks)
        rows = (
            f"  {block.name:{width}}  {block.parameters:>9}  {block.trace:>10.4g}  {_kappa(block)}"
            for block in self.blocks
        )
        return "\n".join(
            [
                f"{len(self.blocks)} blocks, {share:.4g} +- {error.value:.2g} of |G|_F^2 off them, "
                f"mean distance {self.mean_distance:.4g} +- {self.mean_distance_error:.2g}",
                f"  {'block':{width}}  {'parameters':>9}  {'trace':>9}  kappa",
                *rows,
            ]
        )


def block_spectra(
    op: Any,
    x: Any = None,
    *,
    by: Groups = "layer",
    limits: Limits = LIMITS,
    **options: Any,
) -> BlockSpectra:
    """The spectrum and kappa of every diagonal block, their distances, and what lies off them.

    Of a Gauss-Newton matrix or NTK, of one side or the other, the blocks are those on the side of
    the parameters, scale J_b^T J_b. They come from one Jacobian where that is small, else from the
    kernels of the layers, so that no block costs a pass of its own. Of any other operator on the
    parameters of a network, such as a Hessian, they come from the columns of its matrix.

    Args:
      op: an operator of a network, or a model with its inputs ``x``.
      x: inputs, where ``op`` is a model; it is then ``gauss_newton(op, x, **options)``.
      by: "layer" (a kernel and its bias), "parameter" (every leaf), a list of patterns of paths
        (each parameter goes to the first that it matches), or a function from a path to the name
        of its block.
      limits: of memory and work.
      options: those of :func:`gauss_newton`.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> found = gnjax.block_spectra(model, x)
    >>> print(found["dense1"].condition)  # doctest: +ELLIPSIS
    kappa = ... (rank 10 of 16, analytic; factored, measured)
    >>> 0 < found.off_block_share < 1, found.distances.shape
    (True, (2, 2))
    >>> op = gnjax.hessian(model, x, np.ones((5, 2)))
    >>> [block.name for block in gnjax.block_spectra(op, by=["*/kernel", "*/bias"]).blocks]
    ['*/bias', '*/kernel']
    """
    operator = _operator(op, x, options)
    groups = grouped(parameter_names(operator.net), by)
    found = diagonal_blocks(operator, list(groups.values()), limits)
    counts = operator.net.counts
    blocks = tuple(
        _block(name, sum(counts[place] for place in group), block, limits)
        for (name, group), block in zip(groups.items(), found.operators, strict=True)
    )
    floor = _ZERO * max(float(np.abs(block.spectrum.values).max()) for block in blocks)
    distances, errors = np.zeros((2, len(blocks), len(blocks)))
    for (i, one), (j, other) in combinations(enumerate(blocks), 2):
        value, error = jensen_shannon(one.spectrum, other.spectrum, floor)
        distances[i, j] = distances[j, i] = value
        errors[i, j] = errors[j, i] = error.value
    share = found.off_share, found.off_error
    return BlockSpectra(blocks, distances, errors, floor, *share, found.method)


def _operator(op: Any, x: Any, options: dict[str, Any]) -> Any:
    if x is not None:
        return gauss_newton(op, x, **options)
    if not isinstance(op, Operator) or getattr(op, "net", None) is None:
        msg = (
            f"blocks are of the parameters of a network, got a {type(op).__name__}; pass an "
            "operator such as gnjax.gauss_newton(model, x), or the model and x"
        )
        raise ValueError(msg)
    if getattr(op, "side", "parameters") != "parameters" and not isinstance(op, NetworkGram):
        msg = (
            "this operator acts on the outputs of the model, and blocks are of its parameters; "
            "make it with side='parameters'"
        )
        raise ValueError(msg)
    if options:
        msg = f"{', '.join(options)}: these options belong to a model and x, not to an operator"
        raise ValueError(msg)
    return op


def _block(name: str, parameters: int, op: Operator, limits: Limits) -> BlockSpectrum:
    """A block from the smaller of its twins: the eigenvalues that only one of them has are zero."""
    whole = eigenvalues(op, limits=limits)
    condition = None
    if whole.values[-1] >= -whole.errors[-1]:
        condition = condition_of_spectrum(op, whole, parameters)
    if len(whole) < parameters:
        whole = with_zeros(whole, parameters)
    return BlockSpectrum(name, parameters, whole, condition)


def _kappa(block: BlockSpectrum) -> str:
    if block.condition is None:
        return "indefinite"
    return f"{block.condition.value:.6g}{'' if block.condition.resolved else ' or more'}"
