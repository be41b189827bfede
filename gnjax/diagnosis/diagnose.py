"""What makes a user's own model ill-conditioned: kappa, learning rates, layers, and remedies.

On the output side G = sum_l G_l, one term a layer, so that for a unit eigenvector u of G

    lambda = sum_l u^T G_l u = 1/n sum_l |J_l^T u|^2,

and the layer's share of the eigenvalue, u^T G_l u / lambda, is the squared norm of its part of
the eigenvector J^T u / |J^T u| on the parameter side. With a learning rate s_l eta for the layer,
G_l becomes s_l G_l, and d ln lambda / d ln s_l is that share (first-order perturbation).
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.typing import ArrayLike

from gnjax.conditioning.condition_number import ConditionNumber, condition_number
from gnjax.diagnosis.remedies import (
    HELPS,
    Found,
    LeftOut,
    Problem,
    Suggestion,
    block_condition,
    counted,
    suggestions,
)
from gnjax.networks.losses import Loss
from gnjax.networks.model import functional
from gnjax.networks.network import backward_products, differentiated, parameter_names
from gnjax.networks.parameters import layer_name, natural_order
from gnjax.numerics.limits import LIMITS
from gnjax.numerics.result import Result
from gnjax.numerics.rounding import spectral_error
from gnjax.operators.curvature import hessian
from gnjax.operators.network import NetworkGram
from gnjax.spectra import eigenvalues as spectrum
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.krylov.host_products import beside_xla, host_product

_DENSE_UP_TO = 3000
_BLOCKS = 1000  # the largest block of a layer that is decomposed
_BLOCK = 4
_RESIDUAL = 1e-6
_CLUSTER = 1e-6  # singular values this close count as one, with all their vectors
_STANDS_OUT = 0.1
_FOUR_DIGITS = 1e-4
_WIDTH = 80


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
      samples, outputs, parameters: n, k and p.
      eigenvalues: of G from the largest down; None for a matrix too large to be decomposed.
      sharpness: the largest eigenvalue of the Hessian; None where no targets were given.
      layers: in the order of their names.
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
    differentiated: tuple[str, ...] = ()

    @property
    def learning_rate(self) -> float:
        """2 / lambda_max(G): gradient descent on the quadratic model diverges above it."""
        return 2 / self.condition.lambda_max

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
    def culprit(self) -> LayerShare | None:
        """The layer with the largest top - bottom share, if it stands out."""
        return _most_sensitive(self.layers)

    def __str__(self) -> str:
        parts = [_heading(self), _kappa(self), _rates(self), _layers(self), _remedies(self)]
        return "\n\n".join(parts)


def diagnose(
    model: Any, x: ArrayLike, y: ArrayLike | None = None, loss: Loss = "mse", *, seed: int = 0
) -> Diagnosis:
    """Measure what conditions a model on data: kappa, learning rates, layers, remedies.

    Args:
      model: see :func:`gnjax.functional`.
      x: inputs (n, ...).
      y: targets; with them the Hessian's largest eigenvalue is computed too.
      loss: see :func:`gnjax.gauss_newton`.
      seed: of random starts, and of the weights that are drawn at another width.

    Eigenvectors, the layers' blocks and the remedies are computed while the smaller side of the
    Jacobian is at most 3000 (1000 for blocks); the report says what is missing.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> found = gnjax.diagnose(model, x)
    >>> round(sum(layer.top for layer in found.layers), 9)  # shares of lambda_max
    1.0
    >>> print(str(found).splitlines()[0])
    26 parameters, 2 layers, 5 samples, 2 outputs
    """
    problem = Problem(functional(model), model, x, y, loss, seed)
    op = problem.gram()
    condition = condition_number(op, seed=seed)
    if condition.rank == 0:
        msg = (
            "no output depends on any parameter at these inputs (lambda_max = 0), so there is "
            "nothing to diagnose; are all units dead or the inputs zero?"
        )
        raise ValueError(msg)
    parts = _whole(problem, op, condition) if _fits(op) else _top_only(op, seed)
    return Diagnosis(
        condition=condition,
        samples=op.net.samples,
        outputs=op.net.k,
        parameters=op.net.parameters,
        eigenvalues=parts.eigenvalues,
        sharpness=None if y is None else _sharpness(problem, y),
        layers=parts.layers,
        suggestions=parts.suggestions,
        left_out=parts.left_out,
        differentiated=tuple(differentiated(op.net)),
    )


@dataclass(frozen=True)
class _Parts:
    """What needs the eigenvectors."""

    layers: tuple[LayerShare, ...]
    eigenvalues: np.ndarray | None = None
    suggestions: tuple[Suggestion, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


def _fits(op: NetworkGram) -> bool:
    stated = op.factorisation()
    fits = stated is not None and stated.size_in_bytes <= LIMITS.factor_bytes
    return min(op.factor_shape) <= _DENSE_UP_TO and fits


def _whole(problem: Problem, op: NetworkGram, condition: ConditionNumber) -> _Parts:
    factor = op.factor()
    jacobian = factor.T if op.side == "parameters" else factor
    values, top, bottom = _ends(jacobian, condition.rank)
    layers = _shares(op, top, bottom, jacobian)
    culprit = _most_sensitive(layers)
    names = parameter_names(op.net) if culprit is not None else []
    chosen = tuple(name for name in names if culprit and layer_name(name) == culprit.name)
    made, missing = suggestions(problem, Found(condition, op, jacobian, chosen))
    return _Parts(layers, values, made, missing)


def _top_only(op: NetworkGram, seed: int) -> _Parts:
    reason = f"measured while the smaller side of the Jacobian is at most {_DENSE_UP_TO}"
    layers = _shares(op, _krylov_top(op, seed), None, None)
    return _Parts(layers, left_out=(LeftOut("all remedies", reason),))


def _sharpness(problem: Problem, y: ArrayLike) -> float:
    op = hessian(problem.model, problem.x, y, loss=problem.loss)
    return float(spectrum.eigenvalues(op, k=1, which="largest", rtol=_RESIDUAL).values[0])


def _ends(jacobian: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues of G, and the eigenvectors (p, .) of the largest and of the rank-th.

    They are right singular vectors v = J^T u / sigma; of a wide J the left ones u come from its
    small triangular factor. The matrix G itself would lose the bottom at eps lambda_max.
    """
    rows, columns = jacobian.shape
    small = jacobian
    if columns > rows:
        small = scipy.linalg.qr(jacobian.T, mode="r", check_finite=False)[0][:rows].T
    lefts, sigma, _ = np.linalg.svd(small, full_matrices=False)
    top, bottom = (jacobian.T @ lefts[:, _cluster(sigma, end)] for end in (0, rank - 1))
    return sigma**2, top, bottom


def _cluster(values: np.ndarray, index: int) -> np.ndarray:
    """Where a value is that of the index: a multiple eigenvalue has many eigenvectors."""
    return np.abs(values - values[index]) <= _CLUSTER * values[index]


def _krylov_top(op: NetworkGram, seed: int) -> np.ndarray:
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
        least = None if bottom is None else _mass(bottom, own)
        made.append(LayerShare(name, int(own.sum()), _mass(top, own), least, block))
    return tuple(made)


def _mass(vectors: np.ndarray, own: np.ndarray) -> float:
    """The squared norm of the chosen entries in that of the whole, averaged over columns."""
    squares = np.square(vectors)
    return float((squares[own].sum(axis=0) / squares.sum(axis=0)).mean())


def _most_sensitive(layers: Sequence[LayerShare]) -> LayerShare | None:
    first = max(layers, key=lambda layer: layer.sensitivity or 0.0)
    return first if (first.sensitivity or 0.0) >= _STANDS_OUT else None


def _heading(found: Diagnosis) -> str:
    counts = {
        "parameter": found.parameters,
        "layer": len(found.layers),
        "sample": found.samples,
        "output": found.outputs,
    }
    return ", ".join(counted(count, noun) for noun, count in counts.items())


def _kappa(found: Diagnosis) -> str:
    condition = found.condition
    low, high = condition.at_rank
    relation = "=" if condition.bounded else ">="
    lines = [
        f"kappa {relation} {condition.value:.6g} in [{low:.6g}, {high:.6g}]",
        f"  method {condition.method}, {condition.certificate.kind}",
        f"  lambda_max {condition.lambda_max:.4g}, lambda_min {condition.lambda_min:.4g}, "
        f"floor {condition.floor:.2g}",
        *_filled(_rank(found)),
        *_filled(_resolved(found)),
    ]
    return "\n".join(lines)


def _rank(found: Diagnosis) -> str:
    p, kn, rank = found.parameters, found.samples * found.outputs, found.condition.rank
    sides = f"rank {rank:,} ({found.condition.rank_source}) of p = {p:,} and k n = {kn:,}"
    if rank == min(p, kn):
        return f"{sides}: as large as it can be"
    which = "parameter" if p <= kn else "output"
    return f"{sides}: {min(p, kn) - rank:,} {which} directions have no curvature"


def _resolved(found: Diagnosis) -> str:
    if found.condition.resolved:
        return "resolved: the smallest non-zero eigenvalue is certified to lie above its error"
    if found.condition.bounded:
        return (
            "NOT RESOLVED: this is kappa at a numerical rank, which was read off a gap; "
            f"eigenvalues below {found.condition.floor:.2g} are taken for zero"
        )
    return (
        "NOT RESOLVED: eigenvalues run down into the floor of this arithmetic, so kappa is a "
        "lower bound and the rank counts what exceeds the floor"
    )


def _rates(found: Diagnosis) -> str:
    bound = "" if found.condition.bounded else "at least "
    lines = [
        "learning rate of gradient descent",
        f"  stable below 2 / lambda_max(G) = {found.learning_rate:.4g}",
    ]
    if found.hessian_learning_rate is not None:
        lines.append(f"  stable below 2 / lambda_max(H) = {found.hessian_learning_rate:.4g}")
    lines += _filled(
        f"at the best constant one, {found.best_learning_rate:.4g}, the error is multiplied by "
        f"{bound}(kappa - 1) / (kappa + 1) = {_near_one(found)} in each step: {bound}"
        f"{found.steps_per_decade:.3g} steps for one decimal digit"
    )
    return "\n".join(lines)


def _near_one(found: Diagnosis) -> str:
    if found.rate < 0.999:
        return f"{found.rate:.4g}"
    return f"1 - {2 / (found.condition.value + 1):.3g}"


def _layers(found: Diagnosis) -> str:
    width = min(max(len("layer"), *(len(layer.name) for layer in found.layers)), 28)
    lines = [
        f"{'layer':{width}}  {'parameters':>11}  {'lambda_max':>10}  {'lambda_min':>10}  "
        f"{'kappa alone':>11}"
    ]
    for layer in found.layers:
        name = layer.name if len(layer.name) <= width else "~" + layer.name[1 - width :]
        bottom = "-" if layer.bottom is None else f"{layer.bottom:.1%}"
        alone = "-" if layer.block is None else _short(layer.block)
        lines.append(
            f"{name:{width}}  {layer.parameters:11,}  {layer.top:10.1%}  {bottom:>10}  {alone:>11}"
        )
    if found.differentiated:
        lines += _filled(_by_differentiation(found))
    return "\n".join([*lines, *_filled(_verdict(found))])


def _by_differentiation(found: Diagnosis) -> str:
    """The parameters in no known layer; of several with one name, the name and their number."""
    named = Counter(name.rpartition("/")[2] for name in found.differentiated)
    shown = dict.fromkeys(
        name if named[last] == 1 else f"{named[last]} called {last}"
        for name in found.differentiated
        for last in [name.rpartition("/")[2]]
    )
    return (
        "computed by automatic differentiation rather than by the structure of their layers: "
        + ", ".join(shown)
    )


def _short(condition: ConditionNumber) -> str:
    if condition.rank == 0:
        return "zero"
    return f"{'' if condition.bounded else '>='}{condition.value:.3g}"


def _verdict(found: Diagnosis) -> str:
    if len(found.layers) == 1:
        return "one layer holds every parameter"
    if any(layer.bottom is None for layer in found.layers):
        return "the bottom of the spectrum is not available: the matrix is too large for it"
    culprit = found.culprit
    if culprit is None:
        return "no layer stands out: each has about the same share at both ends"
    assert culprit.bottom is not None
    return (
        f"{culprit.name} ill-conditions the model most: it contributes {culprit.top:.1%} of "
        f"lambda_max and {culprit.bottom:.1%} of lambda_min; a learning rate for it that is "
        f"1% below that of the others lowers kappa by {culprit.top - culprit.bottom:.2f}%"
    )


def _remedies(found: Diagnosis) -> str:
    helping = [s for s in found.suggestions if s.verdict == HELPS]
    helping.sort(key=lambda s: s.after.value / s.before.value)
    others = [s for s in found.suggestions if s.verdict != HELPS]
    lines = ["what would help (measured on this model, nothing trained)"]
    if not helping:
        lines.append(
            "  nothing that was tried" if found.suggestions else "  nothing could be tried"
        )
    for suggestion in helping:
        lines += [*_filled(_numbers(suggestion)), *_filled(suggestion.reason, 4)]
    for suggestion in others:
        lines += _filled(f"does not help here ({suggestion.verdict}): {_numbers(suggestion)}")
        lines += _filled(suggestion.reason, 4)
    for missing in found.left_out:
        lines += _filled(f"not measured: {missing.name}: {missing.reason}")
    return "\n".join(lines)


def _numbers(suggestion: Suggestion) -> str:
    before, after = suggestion.before, suggestion.after
    ranks = "" if before.rank == after.rank else f", rank {before.rank} -> {after.rank}"
    return f"{suggestion.name}: kappa {_within(before)} -> {_within(after)}{ranks}"


def _within(condition: ConditionNumber) -> str:
    """Four digits, and the interval where they are not all certain."""
    low, high = condition.at_rank
    if condition.bounded and high - low <= _FOUR_DIGITS * condition.value:
        return f"{condition.value:.4g}"
    return f"{_short(condition)} in [{low:.4g}, {high:.4g}]"


def _filled(text: str, indent: int = 2) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_on_hyphens=False,
    )
