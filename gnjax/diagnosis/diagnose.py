"""What makes a user's own model ill-conditioned: kappa, learning rates, layers, and remedies.

On the output side G = sum_l G_l, one term for each layer, so that for a unit eigenvector u of G

    lambda = sum_l u^T G_l u = 1/n sum_l |J_l^T u|^2,

and the layer's share of the eigenvalue, u^T G_l u / lambda, is the squared norm of its part of
the eigenvector J^T u / |J^T u| on the parameter side. With a learning rate s_l eta for the layer,
G_l becomes s_l G_l, and d ln lambda / d ln s_l is that share (first-order perturbation).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.linalg

from gnjax.conditioning.condition_number import ConditionNumber, condition_number
from gnjax.diagnosis.classes import ClassShare, class_shares
from gnjax.diagnosis.remedies.learning_rate import own_rate
from gnjax.diagnosis.remedies.suggestion import (
    HELPS,
    Found,
    LeftOut,
    Problem,
    Suggestion,
    block_condition,
)
from gnjax.diagnosis.remedies.tried import REMEDIES, suggestions
from gnjax.diagnosis.report import report
from gnjax.diagnosis.subset import part_of
from gnjax.networks.forms.batches import is_batches
from gnjax.networks.losses import Loss
from gnjax.networks.model import functional
from gnjax.networks.network import backward_products, differentiated, parameter_names
from gnjax.networks.parameters import Only, layer_name, natural_order
from gnjax.numerics.limits import LIMITS
from gnjax.numerics.result import Result
from gnjax.numerics.rounding import spectral_error
from gnjax.operators.curvature import hessian
from gnjax.operators.factorisation import compact
from gnjax.operators.of_networks.network import NetworkGram
from gnjax.spectra import eigenvalues as spectrum
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.krylov.host_products import beside_xla, host_product
from gnjax.spectra.watch import Progress, stages

_DENSE_UP_TO = 3000
_PART_ROWS = 1000  # of J where a part of the samples is taken: some seconds for each remedy
_OWN_STAGES = 3  # kappa, learning rates, layers
_BLOCKS = 1000  # the largest block of a layer that is decomposed
_BLOCK = 4
_RESIDUAL = 1e-6
_RATE = 1e-3  # of the learning rates
_SMALL_KAPPA = 1e8  # eps times it, relative to the smallest eigenvalue, is far below a share
_CLUSTER = 1e-6  # singular values this close count as one, with all their vectors
_STANDS_OUT = 0.1


@dataclass(frozen=True, repr=False)
class LayerShare(Result):
    """A layer's part in both ends of the spectrum.

    Attributes:
      name: the common prefix of its parameters' paths; ``parameters`` is how many they hold.
      top, bottom: its shares of lambda_max and of the smallest non-zero eigenvalue; each add up to
        1 over the layers. ``bottom`` is None where the matrix is too large for eigenvectors.
      block: kappa of G_l alone, the layer's own block; None where it was not computed.
    """

    name: str
    parameters: int
    top: float
    bottom: float | None
    block: ConditionNumber | None

    @property
    def sensitivity(self) -> float | None:
        """d ln kappa / d ln s for a learning rate s times the others': top less bottom."""
        return None if self.bottom is None else self.top - self.bottom


@dataclass(frozen=True, repr=False)
class Diagnosis(Result):
    """What :func:`diagnose` found; ``str`` of it is the report.

    Attributes:
      condition: kappa of the Gauss-Newton matrix G (Eq 1) with its certificate.
      samples, outputs, parameters: n, k and p of the Jacobian that was decomposed.
      part: what part of the samples that is, in words; "" where it is all of them.
      whole_lambda_max: the largest eigenvalue of G over all samples.
      eigenvalues: of G from the largest down; None for a matrix too large to be decomposed.
      sharpness: the largest eigenvalue of the Hessian; None where no targets were given.
      layers: in the order of their names.
      classes: the shares of the classes, or of bands of them by frequency; empty without labels.
      suggestions, left_out: remedies measured on the model, and those that could not be.
      differentiated: the paths of the parameters that are in no layer of a known type, so that
        their part of the Jacobian is computed by automatic differentiation.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> found = gnjax.diagnose(model, x)
    >>> found.condition.rank, found.learning_rate == 2 / found.condition.lambda_max
    (10, True)
    >>> [layer.name for layer in found.layers]
    ['dense1', 'dense2']
    """

    condition: ConditionNumber
    samples: int
    outputs: int
    parameters: int
    eigenvalues: np.ndarray | None
    sharpness: float | None
    layers: tuple[LayerShare, ...]
    suggestions: tuple[Suggestion, ...]
    left_out: tuple[LeftOut, ...]
    whole_lambda_max: float
    differentiated: tuple[str, ...] = ()
    classes: tuple[ClassShare, ...] = ()
    part: str = ""

    @property
    def learning_rate(self) -> float:
        """2 / lambda_max(G) over all samples: descent on the quadratic model diverges above it."""
        return 2 / self.whole_lambda_max

    @property
    def hessian_learning_rate(self) -> float | None:
        """2 / lambda_max(H), where targets were given and H curves upwards anywhere."""
        if self.sharpness is None or self.sharpness <= 0:
            return None
        return 2 / self.sharpness

    @property
    def best_learning_rate(self) -> float:
        """2 / (lambda_max + lambda_min), the constant one with the best rate."""
        return 2 / (self.condition.lambda_max + self.condition.lambda_min)

    @property
    def rate(self) -> float:
        """(kappa - 1) / (kappa + 1), what is left of the error after a step at the best rate."""
        return (self.condition.value - 1) / (self.condition.value + 1)

    @property
    def steps_per_decade(self) -> float:
        """ln 10 / -ln(rate), by -ln((kappa - 1) / (kappa + 1)) = 2 artanh(1 / kappa)."""
        if self.condition.value <= 1:
            return 0.0
        return math.log(10) / (2 * math.atanh(1 / self.condition.value))

    @property
    def suspect(self) -> LayerShare | None:
        """The layer with the largest top - bottom share, if it stands out."""
        return _most_sensitive(self.layers)

    @property
    def culprit(self) -> LayerShare | None:
        """The suspect, if a learning rate of its own was measured to lower kappa."""
        suspect = self.suspect
        helping = [found.name for found in self.suggestions if found.verdict == HELPS]
        blamed = suspect and any(name.startswith(own_rate(suspect.name)) for name in helping)
        return suspect if blamed else None

    def __str__(self) -> str:
        return report(self)


def diagnose(
    model: Any,
    x: Any,
    y: Any = None,
    loss: Loss = "squared_error",
    *,
    only: Only | None = None,
    batch_size: int | None = None,
    progress: Progress = None,
    seed: int = 0,
) -> Diagnosis:
    """Measure what conditions a model on data: kappa, learning rates, layers, classes, remedies.

    Args:
      model: see :func:`gnjax.functional`.
      x: inputs (n, ...), or a pytree of them.
      y: targets; with them the Hessian's largest eigenvalue is computed too.
      loss: see :func:`gnjax.gauss_newton`, as are ``only`` and ``batch_size``.
      progress: True for a bar on stderr, or a function of the stages done and expected.
      seed: of random starts, and of the weights that are drawn at another width.

    A Jacobian of up to 3000 rows or columns is decomposed. Of more samples, some at equal distances
    are taken, or some tokens of one sample where that alone has more rows; ``part`` says which, and
    only the learning rates are those of all samples. Where no such part exists, both ends come from
    Lanczos, and the report says what is missing.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> found = gnjax.diagnose(model, x)
    >>> round(sum(layer.top for layer in found.layers), 9)  # shares of lambda_max
    1.0
    >>> print(str(found).splitlines()[0])
    26 parameters, 2 layers, 5 samples, 2 outputs
    """
    if is_batches(x):
        msg = (
            "x is a sequence of batches, and a diagnosis is of one Jacobian; pass one batch (x, y) "
            "of it, and see gnjax.condition_number(gnjax.gauss_newton(model, batches)) for them all"
        )
        raise ValueError(msg)
    given = Problem(functional(model), model, x, y, loss, seed, only, batch_size)
    whole = given.gram()
    problem, part = (given, "") if _fits(whole) else part_of(given, whole, _PART_ROWS)
    op = problem.gram() if part else whole
    with stages(progress, _OWN_STAGES + len(REMEDIES)) as advance:
        condition = condition_number(op, seed=seed)
        if condition.rank == 0:
            msg = (
                "no output depends on any parameter at these inputs (lambda_max = 0), so there is "
                "nothing to diagnose; are all units dead or the inputs zero?"
            )
            raise ValueError(msg)
        advance()
        top = _largest(whole) if part else condition.lambda_max
        sharpness = None if y is None else _sharpness(given)
        advance()
        from_ends = _from_factor if _fits(op) else _top_only
        fields = from_ends(problem, op, condition, advance)
    return Diagnosis(
        condition=condition,
        samples=op.net.samples,
        outputs=op.net.k,
        parameters=op.net.parameters,
        sharpness=sharpness,
        **fields,
        whole_lambda_max=top,
        differentiated=tuple(differentiated(op.net)),
        part=part,
    )


def _fits(op: NetworkGram) -> bool:
    stated = op.factorisation()
    fits = stated is not None and stated.size_in_bytes <= LIMITS.factor_bytes
    return min(op.factor_shape) <= _DENSE_UP_TO and fits


def _from_factor(
    problem: Problem, op: NetworkGram, condition: ConditionNumber, advance: Callable[[], None]
) -> dict[str, Any]:
    """The fields of a diagnosis that are computed from the eigenvectors at both ends."""
    factor = op.factor()
    jacobian = factor.T if op.side == "parameters" else factor
    values, top, bottom = _end_eigenvectors(jacobian, condition)
    layers = _shares(op, top, bottom, jacobian)
    advance()
    suspect = _most_sensitive(layers)
    names = parameter_names(op.net) if suspect is not None else []
    chosen = tuple(name for name in names if suspect and layer_name(name) == suspect.name)
    made, missing = suggestions(problem, Found(condition, op, jacobian, chosen), advance)
    return {
        "layers": layers,
        "classes": () if problem.y is None else class_shares(problem.y, jacobian, top, bottom),
        "eigenvalues": values,
        "suggestions": made,
        "left_out": missing,
    }


def _top_only(
    problem: Problem, op: NetworkGram, condition: ConditionNumber, advance: Callable[[], None]
) -> dict[str, Any]:
    """The same fields from the eigenvectors of the largest eigenvalue alone."""
    del condition
    reason = f"measured while the smaller side of the Jacobian is at most {_DENSE_UP_TO}"
    layers = _shares(op, _top_eigenvectors(op, problem.seed), None, None)
    advance()
    missing = (LeftOut("all remedies", reason),)
    return {"layers": layers, "eigenvalues": None, "suggestions": (), "left_out": missing}


def _largest(op: NetworkGram) -> float:
    found = spectrum.eigenvalues(op, k=1, which="largest", rtol=_RATE)
    return float(found.values[0])


def _sharpness(problem: Problem) -> float:
    op = hessian(
        problem.model,
        problem.x,
        problem.y,
        loss=problem.loss,
        only=problem.only,
        batch_size=problem.batch_size,
    )
    found = spectrum.eigenvalues(op, k=1, which="largest", rtol=_RATE)
    return float(found.values[0])


def _end_eigenvectors(
    jacobian: np.ndarray, condition: ConditionNumber
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues of G, and the eigenvectors (p, .) of the largest and of the rank-th.

    They are right singular vectors v = J^T u / sigma; of a wide J the left ones u come from its
    small triangular factor. The matrix J J^T, which is decomposed several times sooner, loses the
    bottom at eps lambda_max: it is taken where kappa is small enough for that.
    """
    few, many = jacobian.shape
    if few < many and condition.resolved and condition.value < _SMALL_KAPPA:
        squares, columns = scipy.linalg.eigh(
            jacobian @ jacobian.T, driver="evd", overwrite_a=True, check_finite=False
        )
        lefts, sigma = columns[:, ::-1], np.sqrt(np.maximum(squares[::-1], 0.0))
    else:
        lefts, sigma, _ = np.linalg.svd(compact(jacobian), full_matrices=False)
    top, bottom = (jacobian.T @ lefts[:, _cluster(sigma, end)] for end in (0, condition.rank - 1))
    return sigma**2, top, bottom


def _cluster(values: np.ndarray, index: int) -> np.ndarray:
    """Which values equal that of the index: a multiple eigenvalue has many eigenvectors."""
    return np.abs(values - values[index]) <= _CLUSTER * values[index]


def _top_eigenvectors(op: NetworkGram, seed: int) -> np.ndarray:
    """Eigenvectors (p, .) of the largest eigenvalue, by block Lanczos."""

    def enough(run: krylov.Run) -> bool:
        values, residuals, _ = krylov.ritz(run)
        return bool(residuals[-1] <= _RESIDUAL * values[-1])

    size = op.shape[0]
    with beside_xla():
        run = krylov.lanczos(
            host_product(op),
            krylov.random_rows(size, _BLOCK, seed),
            max_steps=max(2, LIMITS.basis_rows(size) // _BLOCK),
            noise=spectral_error(size, op.dtype) * spectrum.operator_norm(op),
            enough=enough,
        )
    values, _, coefficients = krylov.ritz(run)
    found = run.basis.T @ coefficients[:, _cluster(values, -1)]
    if op.side == "parameters":
        return found
    return np.asarray(backward_products(op.net, jnp.asarray(found, op.dtype)))


def _shares(
    op: NetworkGram, top: np.ndarray, bottom: np.ndarray | None, jacobian: np.ndarray | None
) -> tuple[LayerShare, ...]:
    """A line for every layer, from eigenvectors (p, .) of any length."""
    owners = np.repeat([layer_name(name) for name in parameter_names(op.net)], op.net.counts)
    made = []
    names = sorted(set(owners.tolist()), key=natural_order)
    for name in names:
        own = owners == name
        block = None
        if jacobian is not None and len(names) > 1 and min(own.sum(), len(jacobian)) <= _BLOCKS:
            block = block_condition(op, jacobian[:, own])
        least = None if bottom is None else _share_of_squares(bottom, own)
        made.append(LayerShare(name, int(own.sum()), _share_of_squares(top, own), least, block))
    return tuple(made)


def _share_of_squares(vectors: np.ndarray, own: np.ndarray) -> float:
    """The squared norm of the chosen entries in that of the whole, averaged over columns."""
    squares = np.square(vectors)
    return float((squares[own].sum(axis=0) / squares.sum(axis=0)).mean())


def _most_sensitive(layers: Sequence[LayerShare]) -> LayerShare | None:
    first = max(layers, key=lambda layer: layer.sensitivity or 0.0)
    return first if (first.sensitivity or 0.0) >= _STANDS_OUT else None
