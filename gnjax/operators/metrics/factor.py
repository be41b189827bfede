"""The factors of Kronecker blocks with their eigenvectors, and how exact these are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.host import on_device
from gnjax.numerics.outward import raised
from gnjax.numerics.rounding import gamma

_DOUBLE = np.dtype(np.float64)


class Power(NamedTuple):
    """The eigenvalues (g, m) of a power of a factor, and a bound on the error of that power."""

    values: np.ndarray
    distance: float

    @property
    def norm(self) -> float:
        return float(self.values.max())


class RoundedBasis(NamedTuple):
    """Eigenvectors rounded to a precision: U (g, m, m), or None for the identity."""

    basis: jax.Array | None
    distance: float  # a bound on ||U^T U_0 - I||, with U_0 the eigenvectors in float64
    defect: float  # a bound on ||U U^T - I||


@dataclass(frozen=True)
class Factor:
    """A factor (g, m, m) of a Kronecker block, or its diagonal (g, m), for every group g.

    ``basis`` has the columns U; None where they are unit vectors.
    """

    matrix: np.ndarray
    eigenvalues: np.ndarray  # (g, m)
    basis: np.ndarray | None

    @property
    def size(self) -> int:
        return self.eigenvalues.shape[1]

    @property
    def eigenvectors(self) -> np.ndarray:
        """U (g, m, m)."""
        groups, size = self.eigenvalues.shape
        unit = np.broadcast_to(np.eye(size), (groups, size, size))
        return unit if self.basis is None else self.basis

    @cached_property
    def defect(self) -> float:
        """A bound on ||U^T U - I||, which is also ||U U^T - I||."""
        return 0.0 if self.basis is None else _from_identity(self.basis, self.basis)

    @cached_property
    def residual(self) -> float:
        """A bound on ||A - U diag(eigenvalues) U^T||."""
        if self.basis is None:
            return float(np.abs(self.matrix - self.eigenvalues).max())
        again = (self.basis * self.eigenvalues[:, None]) @ self.basis.swapaxes(1, 2)
        distance = float(np.linalg.norm(self.matrix - again, axis=(1, 2)).max())
        rounding = gamma(self.size + 4, _DOUBLE) * self.size * float(self.eigenvalues.max())
        return raised(distance + rounding)

    def powered(self, power: float) -> Power:
        """A^power for 0 < power <= 1 and A >= 0, from the eigenvalues.

        t^power is operator monotone, so that ||A^power - C^power|| <= ||A - C||^power for C >= 0,
        and <= power m^(power - 1) ||A - C|| where both have no eigenvalue below m.
        """
        residual = self.residual
        if power == 1:
            return Power(self.eigenvalues, residual)
        least = float(self.eigenvalues.min()) - residual
        bounds = [residual**power]
        if least > 0:
            bounds.append(power * least ** (power - 1) * residual)
        return Power(self.eigenvalues**power, raised(min(bounds)))

    def stored(self, dtype: jnp.dtype) -> RoundedBasis:
        """The eigenvectors rounded to a precision, and how far that takes them from orthogonal."""
        if self.basis is None:
            return RoundedBasis(None, 0.0, 0.0)
        basis = on_device(self.basis, dtype)
        rounded_basis = np.asarray(basis, np.float64)
        return RoundedBasis(
            basis,
            _from_identity(rounded_basis, self.basis),
            _from_identity(rounded_basis, rounded_basis),
        )


def symmetric_factor(matrix: np.ndarray) -> Factor:
    """A factor (g, m, m) that is positive semidefinite; rounding below zero is cut off."""
    symmetric = (matrix + matrix.swapaxes(1, 2)) / 2
    values, basis = np.linalg.eigh(symmetric)
    return Factor(symmetric, values.clip(0), basis)


def diagonal_factor(entries: np.ndarray) -> Factor:
    """A factor that is diagonal, (g, m)."""
    return Factor(entries, entries, None)


def _from_identity(u: np.ndarray, v: np.ndarray) -> float:
    """A bound on ||U^T V - I|| for all groups, rounding included."""
    size = u.shape[1]
    distance = float(np.linalg.norm(u.swapaxes(1, 2) @ v - np.eye(size), axis=(1, 2)).max())
    return raised(distance + gamma(size + 2, _DOUBLE) * size)
