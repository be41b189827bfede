"""The limits of memory and work that choose between methods; a caller can pass others."""

from __future__ import annotations

from dataclasses import dataclass

from gnjax.numerics.evidence import KINDS_OF_EVIDENCE, USUAL


@dataclass(frozen=True)
class Limits:
    """How much memory and work a computation may take.

    Matrices, factors and bases are in host memory, and LAPACK works on them there, whatever device
    makes the products: these are limits of the host's memory and time. A Krylov basis of a few
    eigenvalues that has no room there in float64 is kept on the devices in the precision of the
    products, within the same limits. Method "sketched" holds the rows of J and its matrices
    on a GPU where there is one, within ``rows_bytes`` and what the GPU has free. How much goes
    through the device at once is decided by that device (``gnjax.numerics.memory.device``).

    Attributes:
      matrix_rows: the most rows that a matrix in host memory may have, formed or given.
      factor_bytes: the most memory that a factor J with J J^T = A may take.
      factor_work: the most multiplications that the singular values of such a factor may take, for
        an operator to be stored as a factor and not as a matrix, and for "auto" to prefer them to
        the eigenvalues of the matrix.
      density_bytes: the most memory that the basis of one probe of a spectral density may take, and
        the vectors of a trace.
      basis_bytes: the most memory that a Krylov basis may take, on all devices together where it is
        on devices: then the vectors of the answer, in host memory, come on top. In host memory,
        what counts eigenvalues that a run may have missed holds a second one. As many random
        vectors of a density or a trace are multiplied at once as have room in it, one at least.
      vectors: the most vectors that a Krylov basis may hold; where it is not given, as many as
        ``basis_bytes`` has room for.
      factor_rows: if the matrix does not resolve kappa, "auto" takes the singular values of a
        factor with at most so many rows or columns.
      whole_rows: for at most so many rows, a few eigenvalues are taken from the whole spectrum, and
        a diagnosis decomposes the Jacobian.
      small_rows: for at most so many rows, numbers that cost a whole matrix are computed unasked:
        the exact trace, kappa of every layer's block, what each remedy changes.
      jacobian_bytes: the most memory that the stored Jacobian of a network may take.
      rows_bytes: the most memory that the rows of a factor J may take beside a preconditioner of
        J J^T, in float32 or float64; never more than most of the memory that is free. Where it is
        not given, 12 GB of host memory, and on a GPU what is free there.
      linearisation_bytes: the most memory that a linearised network may take.
      kernel_bytes: the most memory that those parts of a Jacobian may take from which a network's
        kernel is formed at once.
      evidence: how much is done to measure the rounding of a network. "usual" takes about a fifth
        of the time of the answer: the products of the answer are made again at numbers that are
        moved by one rounding, and a few samples are computed with random roundings. "thorough"
        computes all samples with random roundings (:doc:`/answers/certificates` says what only that
        sees). "none" measures nothing: the error is unknown, and the answer says so.
      seconds: how long the products of an answer may go on. After that it is the answer so far, as
        after Ctrl-C. Where even the fewest products take longer, they are refused as soon as the
        time of one is known. What follows on the products, as evidence, comes on top.

    >>> small = gnjax.Limits(matrix_rows=2)
    >>> gnjax.condition_number(np.eye(3), method="dense", limits=small)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: ...
    """

    matrix_rows: int = 20_000  # 3.2 GB in float64
    factor_bytes: float = 4e9
    factor_work: float = 1e10  # some seconds
    basis_bytes: float = 2e9
    density_bytes: float = 16e9
    factor_rows: int = 4000
    whole_rows: int = 3000
    small_rows: int = 1000
    jacobian_bytes: float = 4e9
    rows_bytes: float | None = None
    linearisation_bytes: float = 3e9
    kernel_bytes: float = 3e9  # one layer of ResNet20, with 36,864 weights, for 10,000 outputs fits
    vectors: int | None = None
    evidence: str = USUAL
    seconds: float | None = None

    def __post_init__(self) -> None:
        """Refuse a kind of evidence that there is not, and a time that is none."""
        if self.seconds is not None and not self.seconds > 0:
            msg = f"seconds={self.seconds!r} is not a number above 0; leave it out for no limit"
            raise ValueError(msg)
        if self.evidence not in KINDS_OF_EVIDENCE:
            msg = f"evidence={self.evidence!r} is not one of {', '.join(KINDS_OF_EVIDENCE)}"
            raise ValueError(msg)

    def basis_rows(self, size: int, itemsize: int = 8) -> int:
        """How many vectors of ``size`` numbers with ``itemsize`` bytes a Krylov basis may hold.

        There are never more than ``size``, as these span the whole space. What needs a second basis
        beside it, as the search for eigenvalues that a run has missed, takes as much once more.
        """
        most = size if self.vectors is None else min(size, self.vectors)
        return int(min(most, self.basis_bytes / (itemsize * size)))


LIMITS = Limits()
