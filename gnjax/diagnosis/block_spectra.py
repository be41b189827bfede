"""The spectra of the diagonal blocks of a network's curvature, and how much they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from gnjax.conditioning.answer import ASSUMED, is_assumed, short
from gnjax.conditioning.condition_number import ConditionNumber, condition_of_spectrum
from gnjax.networks.arguments.frameworks import InputTree, Model, PyTree
from gnjax.networks.model import is_model
from gnjax.networks.network import Network, parameter_names
from gnjax.networks.parameters import Groups, grouped, natural_order
from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import Error
from gnjax.numerics.evidence import with_evidence
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.validation import check_known
from gnjax.operators.blocks.diagonal_blocks import DiagonalBlocks, diagonal_blocks, entry_blocks
from gnjax.operators.blocks.label_parts import row_parts
from gnjax.operators.curvature import gauss_newton
from gnjax.operators.metrics.exact import on_parameters
from gnjax.operators.protocol import Operator
from gnjax.operators.trees import network_of
from gnjax.spectra.distance import distances
from gnjax.spectra.eigenvalues import eigenvalues
from gnjax.spectra.spectrum import Spectrum, with_zeros
from gnjax.spectra.watch import Progress, stages

_ZERO = 1e-12  # eigenvalues up to this times the largest of all blocks count as zero


@dataclass(frozen=True, repr=False)
class BlockSpectrum(Result):
    """One diagonal block.

    Attributes:
      name: the name of the block.
      parameters: how many rows it has.
      spectrum: all of its eigenvalues, with their errors.
      condition: its kappa; None where it has a negative eigenvalue.
      terms: for a part by ``labels``, how many samples or tokens it comes from; else None.

    >>> model = lambda w, x: x @ w["a"] + w["b"], {"a": np.ones((1, 1)), "b": np.ones((1, 1))}
    >>> x = np.array([[1.0], [2.0]])
    >>> spectra = gnjax.block_spectra(model, x, by="parameter")  # diag(G) = (1 + 4) / 2 and 1
    >>> print(spectra["a"])
    a: 1 parameters, trace 2.5, kappa = 1 in [1, 1] (rank 1 of 1, full; factored, measured)
    """

    _also = ("trace",)

    name: str
    parameters: int
    spectrum: Spectrum
    condition: ConditionNumber | None
    terms: int | None = None

    @property
    def trace(self) -> float:
        """The sum of the eigenvalues."""
        return float(self.spectrum.values.sum())

    def __str__(self) -> str:
        kappa = "indefinite" if self.condition is None else str(self.condition)
        return f"{self.name}: {self.parameters} parameters, trace {self.trace:.6g}, {kappa}"


@dataclass(frozen=True, repr=False)
class BlockSpectra(Result):
    """The answer of :func:`block_spectra`.

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
    >>> spectra = gnjax.block_spectra(model, jax.random.normal(jax.random.key(1), (5, 3)))
    >>> [(block.name, len(block.spectrum), block.condition.rank) for block in spectra.blocks]
    [('dense1', 16, 10), ('dense2', 10, 10)]
    >>> again = gnjax.answers.BlockSpectra.from_json(spectra.to_json())
    >>> again.off_block_share == spectra.off_block_share
    True
    """

    _rows = ("blocks",)
    _also = ("mean_distance", "mean_distance_error")

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
        return self._mean_over_pairs(self.distances)

    @property
    def mean_distance_error(self) -> float:
        """A bound on the error of ``mean_distance``: the mean of the bounds of all pairs."""
        return self._mean_over_pairs(self.distance_errors)

    def _mean_over_pairs(self, matrix: np.ndarray) -> float:
        """The mean of the entries above the diagonal, one for each pair of blocks."""
        pairs = matrix[np.triu_indices(len(matrix), 1)]
        return float(pairs.mean()) if len(pairs) else float("nan")

    def __str__(self) -> str:
        """A line on all blocks, and a table with a row for each block."""
        share, error = self.off_block_share, self.off_block_error
        width = max(len(block.name) for block in self.blocks)
        rows = (
            f"  {block.name:{width}}  {block.parameters:>9}  {block.trace:>10.4g}  "
            + ("indefinite" if block.condition is None else short(block.condition, 6))
            for block in self.blocks
        )
        return "\n".join(
            [
                f"{len(self.blocks)} blocks, {share:.4g} +- {error.value:.2g} of |G|_F^2 off them, "
                f"mean distance {self.mean_distance:.4g} +- {self.mean_distance_error:.2g}",
                f"  {'block':{width}}  {'parameters':>9}  {'trace':>9}  kappa",
                *rows,
                *([f"  {ASSUMED}"] if any(is_assumed(b.condition) for b in self.blocks) else []),
            ]
        )


@with_evidence
def block_spectra(
    op: Operator | Model,
    x: InputTree | None = None,
    y: PyTree | None = None,
    *,
    by: Groups | Mapping[str, ArrayLike] = "layer",
    labels: ArrayLike | None = None,
    centred: bool = False,
    progress: Progress = None,
    limits: Limits = LIMITS,
    **options: Any,
) -> BlockSpectra:
    """Compute the spectrum and kappa of every diagonal block, and how much the spectra differ.

    The answer also has the share of |G|_F^2 that lies outside the diagonal blocks. For a
    Gauss-Newton matrix or an NTK the blocks are scale J_b^T J_b, with the columns J_b of J that
    belong to the parameters of block b, even if the operator acts on the outputs. All blocks are
    computed in one pass: from J if it is small, and otherwise from the kernels of the layers. The
    blocks of any other operator on the parameters of a network, such as a Hessian, are computed
    from the columns of its matrix.

    With ``labels`` the blocks are instead the parts G_c of the sum G = sum_c G_c. The part G_c is
    scale J_c^T J_c, with the rows J_c of J for the samples or tokens with the label c. Then
    ``off_block_share`` is 1 - sum_c |G_c|_F^2 / |G|_F^2.

    Args:
      op: an operator of a network, or a model with its inputs ``x``.
      x: inputs, where ``op`` is a model; it is then ``gauss_newton(op, x, y, **options)``.
      y: targets, where ``op`` is a model and its loss needs them.
      by: "layer" (a kernel and its bias), "module" (the module that holds the layer, such as the
        attention of one block), "parameter" (every leaf), a list of patterns of paths (each
        parameter goes to the first that it matches), or a function from a path to the name of its
        block. Or a dict from paths to labels of the entries of these parameters, in an array that
        broadcasts to theirs: ``{"head/kernel": np.arange(classes)}`` makes a block of the weights
        of every class, and one named "others" of all other parameters.
      labels: integers or strings, (n,) or one for each token: the class of each sample, or its
        band by :func:`frequency_bands`. Entries with a label below zero are left out.
      centred: with ``labels``, whether the mean of the rows of J is subtracted first. The parts of
        :func:`empirical_fisher` are then those of the covariance of the gradients, its noise.
      progress: True for a bar on stderr, or a function of the stages done and expected: the
        formation of all blocks, and the eigenvalues of each.
      limits: of memory and work.
      options: those of :func:`gauss_newton`.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> spectra = gnjax.block_spectra(model, x)
    >>> print(spectra["dense1"].condition)  # doctest: +ELLIPSIS
    kappa = ... (rank 10 of 16, analytic; factored, measured)
    >>> 0 < spectra.off_block_share < 1, spectra.distances.shape
    (True, (2, 2))
    >>> op = gnjax.hessian(model, x, np.ones((5, 2)))
    >>> [block.name for block in gnjax.block_spectra(op, by=["*/kernel", "*/bias"]).blocks]
    ['*/bias', '*/kernel']
    >>> y = np.array([0, 0, 0, 1, 1])
    >>> parts = gnjax.block_spectra(model, x, y, loss="cross_entropy", labels=y)
    >>> [(part.name, part.terms, part.condition.rank) for part in parts.blocks]
    [('0', 3, 3), ('1', 2, 2)]
    """
    operator = _operator(op, x, y, options)
    names, terms, parameters, diagonal = _blocks(operator, by, labels, centred, limits)
    blocks: list[BlockSpectrum] = []
    with stages(progress, len(names) + 1) as advance:
        for name, block_terms, block_parameters, block in zip(
            names, terms, parameters, diagonal.operators, strict=True
        ):
            advance()  # at first for the formation of all blocks, then for the block before
            bound = diagonal.rank_bound_of(len(blocks))
            spectrum = eigenvalues(block, limits=limits)  # of the rows that are left of the block
            condition = None
            if spectrum.values[-1] >= -spectrum.errors[-1]:
                condition = condition_of_spectrum(block, spectrum, block_parameters, bound)
            if len(spectrum) < block_parameters:
                spectrum = with_zeros(spectrum, block_parameters)
            blocks.append(BlockSpectrum(name, block_parameters, spectrum, condition, block_terms))
        advance()
    floor = _ZERO * max(float(np.abs(block.spectrum.values).max()) for block in blocks)
    distance_of_pairs, distance_errors = distances([block.spectrum for block in blocks], floor)
    return BlockSpectra(
        tuple(blocks),
        distance_of_pairs,
        distance_errors,
        floor,
        diagonal.off_share,
        diagonal.off_error,
        diagonal.method,
    )


def _blocks(
    op: Any, by: Any, labels: Any, centred: bool, limits: Limits
) -> tuple[list[str], Sequence[int | None], list[int], DiagonalBlocks]:
    """Of each block: its name, its samples or tokens (or None), its parameters, and an operator."""
    check_known("block_spectra", op)
    net = network_of(on_parameters(op), "blocks are")
    if labels is not None:
        if by != "layer":
            msg = "labels= makes parts of the samples and by= blocks of the parameters; give one"
            raise ValueError(msg)
        names, terms, blocks = row_parts(op, np.asarray(labels), centred=centred, limits=limits)
        return names, terms, [net.parameters] * len(names), blocks
    if centred:
        msg = "centred=True is of the rows of J, and so of parts by labels=; give labels"
        raise ValueError(msg)
    paths, counts = parameter_names(net), net.counts
    if isinstance(by, Mapping):
        entries = _entries_by_label(net, paths, by)
        blocks = entry_blocks(op, list(entries.values()), limits)
        parameters = [len(indices) for indices in entries.values()]
        return list(entries), [None] * len(entries), parameters, blocks
    groups = grouped(paths, by)  # by the name of each block, the indices of its parameters
    blocks = diagonal_blocks(op, list(groups.values()), limits)
    parameters = [sum(counts[index] for index in group) for group in groups.values()]
    return list(groups), [None] * len(groups), parameters, blocks


def _entries_by_label(
    net: Network, paths: list[str], by: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """For each label in ``by``, and for "others", the indices of its entries of all parameters."""
    labels_of_leaves = []
    unknown = [path for path in by if path not in paths]
    if unknown:
        msg = f"by= has labels for {', '.join(unknown)}, and the parameters are {', '.join(paths)}"
        raise ValueError(msg)
    # A parameter is a leaf of the tree, or those of its entries that ``indices`` chooses.
    for path, leaf, indices in zip(paths, net.leaf_indices, net.entry_indices, strict=True):
        shape = net.leaves[leaf].shape
        labels = np.asarray(by.get(path, "others"))
        try:
            flat = np.broadcast_to(labels, shape).ravel().astype(str)
        except ValueError as error:
            msg = f"the labels of {path} have shape {labels.shape}, which is not that of {shape}"
            raise ValueError(msg) from error
        labels_of_leaves.append(flat if indices is None else flat[np.asarray(indices)])
    labels = np.concatenate(labels_of_leaves)
    names = sorted(set(labels.tolist()), key=natural_order)
    return {name: np.flatnonzero(labels == name) for name in names}


def _operator(op: Any, x: Any, y: Any, options: dict[str, Any]) -> Any:
    """The operator whose blocks are asked for: ``op`` itself, or G of the model ``op`` at x."""
    given = {"x": x, "y": y, **options}
    names = ", ".join(name for name, value in given.items() if value is not None)
    if isinstance(op, Operator) and names:
        msg = f"{names}: these belong to a model, and an operator has its samples already"
        raise ValueError(msg)
    if x is not None:
        return gauss_newton(op, x, y, **options)
    if is_model(op):
        msg = "the blocks of a model are those at samples; give x too, as block_spectra(model, x)"
        raise ValueError(msg)
    return op
