"""Random small networks in many regimes, and the truth about their matrices in many digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import flint
import ml_dtypes
import numpy as np

from tests.held_out import many_digits, tape
from tests.held_out.architectures import ARCHITECTURES, EXACT, Architecture
from tests.held_out.many_digits import FACTOR_DIGITS, Truth

FEW, SEVERAL, MANY = 1, 4, 12  # many have more outputs than most networks have parameters
LOSSES = ("mse", "cross_entropy")
DTYPES = {"float64": np.float64, "float32": np.float32, "bfloat16": ml_dtypes.bfloat16}

_HESSIAN_DIGITS = 420
_STEP = 150  # digits of the step of the difference that gives a Hessian
_SEEN = 130  # digits down to which its entries are told from zero
_SMALL = 1e-100  # entries smaller than that, of the largest, may hide eigenvalues from 320 digits


@dataclass(frozen=True)
class Case:
    """A network at a batch: parameters in the dtype that the library is given, x, and labels."""

    architecture: Architecture
    regime: str
    loss: str
    dtype: str
    params: dict[str, np.ndarray]
    x: np.ndarray
    y: np.ndarray  # labels (n,) for the cross-entropy, targets (n, k) for the squared error

    @property
    def numbers(self) -> np.ndarray:
        """x in float64, which holds the numbers of every type of input exactly."""
        return self.x.astype(np.float64)


def draw(rng: np.random.Generator, name: str, samples: int, loss: str, regime: str) -> Case:
    """A random case; the regime may change weights, inputs or both."""
    architecture = ARCHITECTURES[name]
    params = {key: _initial(rng, key, shape) for key, shape in architecture.shapes.items()}
    x = rng.standard_normal((samples, *architecture.inputs))
    params, x = REGIMES[regime](rng, params, x)
    dtype = str(rng.choice(list(DTYPES), p=(0.6, 0.2, 0.2)))
    k = architecture.outputs
    y = rng.integers(0, k, samples)
    targets = rng.standard_normal((samples, k)) if loss == "mse" else y
    given = {key: value.astype(DTYPES[dtype]) for key, value in params.items()}
    return Case(architecture, regime, loss, dtype, given, x, targets)


def _initial(rng: np.random.Generator, key: str, shape: tuple[int, ...]) -> np.ndarray:
    if key.endswith("scale"):
        return rng.uniform(0.5, 1.5, shape)
    if len(shape) == 2 and shape[0] == 1:
        return 0.3 * rng.standard_normal(shape)
    fan_in = int(np.prod(shape[:-1]))
    return rng.standard_normal(shape) * 1.5 / fan_in**0.5


Params = dict[str, np.ndarray]
Changed = tuple[Params, np.ndarray]


def _ordinary(rng: np.random.Generator, params: Params, x: np.ndarray) -> Changed:
    return params, x


def _scaled(rng: np.random.Generator, params: Params, x: np.ndarray) -> Changed:
    """All weights by one factor between 1e-6 and 1e6."""
    factor = 10 ** rng.uniform(-6, 6)
    return {key: value * factor for key, value in params.items()}, x


def _graded(rng: np.random.Generator, params: Params, x: np.ndarray) -> Changed:
    """Every array of weights by its own factor between 1e-6 and 1e6."""
    return {key: value * 10 ** rng.uniform(-6, 6) for key, value in params.items()}, x


def _saturated(rng: np.random.Generator, params: Params, x: np.ndarray) -> Changed:
    """First layer large: units of tanh near 1, attention that looks at one token."""
    factor, last = 10 ** rng.uniform(0.5, 1.7), max(params)
    after = 10 ** rng.uniform(0, 4)
    return {
        key: value * (factor if key[0] == "0" else after if key == last else 1.0)
        for key, value in params.items()
    }, x


def _sure(rng: np.random.Generator, params: Params, x: np.ndarray) -> Changed:
    """Last layer large: a softmax that is nearly one-hot."""
    factor, last = 10 ** rng.uniform(0.5, 2.0), max(params)[0]
    return {key: value * (factor if key[0] == last else 1.0) for key, value in params.items()}, x


def _offset(rng: np.random.Generator, params: Params, x: np.ndarray) -> Changed:
    """Features with a common offset, from the data or from the first biases."""
    offset = 10 ** rng.uniform(1, 6)
    if "0b" in params and rng.random() < 0.5:
        return params | {"0b": params["0b"] + offset}, x
    return params, x + offset


def _duplicated(rng: np.random.Generator, params: Params, x: np.ndarray) -> Changed:
    return params, x[rng.integers(0, max(1, len(x) // 2), len(x))]


def _nearly_equal(rng: np.random.Generator, params: Params, x: np.ndarray) -> Changed:
    return params, x[:1] + 10 ** rng.uniform(-12, -3) * x


def _dead(rng: np.random.Generator, params: Params, x: np.ndarray) -> Changed:
    """Some weights are zero: a unit that nothing reaches, pruned entries, a zero scale."""
    chosen = str(rng.choice(sorted(params)))
    value = params[chosen].copy()
    if rng.random() < 0.5:
        value[..., rng.integers(value.shape[-1])] = 0.0
    else:
        value[rng.random(value.shape) < 0.5] = 0.0
    return params | {chosen: value}, x


REGIMES: dict[str, Callable[[np.random.Generator, Params, np.ndarray], Changed]] = {
    "ordinary": _ordinary,
    "scaled": _scaled,
    "graded": _graded,
    "saturated": _saturated,
    "sure": _sure,
    "offset": _offset,
    "duplicated": _duplicated,
    "nearly equal": _nearly_equal,
    "dead": _dead,
}


@dataclass(frozen=True)
class Truths:
    """What is true of a case. Hessians are None where they were not asked for."""

    ntk: Truth
    gauss_newton: Truth
    hessian: tuple[flint.arb, ...] | None = None
    functional_hessian: tuple[flint.arb, ...] | None = None


def truths(case: Case, *, hessians: bool = False) -> Truths:
    with flint.ctx.workdps(FACTOR_DIGITS):
        params = lifted(case)
        outputs, jacobian = outputs_and_jacobian(case.architecture, params, case.numbers)
        ntk = many_digits.of_factor(many_digits.exact(jacobian), hidden=_hides(jacobian))
        of_gauss_newton = _gauss_newton(case, outputs, jacobian)
    if not hessians:
        return Truths(ntk, of_gauss_newton)
    return Truths(ntk, of_gauss_newton, *_hessians(case))


def lifted(case: Case) -> dict[str, tape.Array]:
    return {key: tape.lift(value.astype(np.float64)) for key, value in case.params.items()}


def outputs_and_jacobian(
    architecture: Architecture, params: dict[str, tape.Array], x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """F (n, k) and its Jacobian (n k, p), parameters in the order of their names."""
    batches = [x] if architecture.coupled else [x[i : i + 1] for i in range(len(x))]
    leaves = [params[key] for key in sorted(params)]
    values, rows = [], []
    for batch in batches:
        output = architecture.apply(EXACT, params, tape.lift(batch))
        values.append(output.value)
        for place in np.ndindex(output.shape):
            unit = np.full(output.shape, flint.arb(0), dtype=object)
            unit[place] = flint.arb(1)
            parts = tape.gradients(output, unit, leaves)
            rows.append(np.concatenate([part.ravel() for part in parts]))
    return np.concatenate(values), np.array(rows, dtype=object)


def _hides(*entries: np.ndarray) -> bool:
    """Whether an entry is not zero, but too small to be seen beside the largest."""
    flat = [entry for part in entries for entry in part.ravel()]
    largest = max((entry.abs_upper() for entry in flat), default=flint.arb(0))
    return any(0 < entry.abs_lower() < largest * _SMALL for entry in flat)


def _gauss_newton(case: Case, outputs: np.ndarray, jacobian: np.ndarray) -> Truth:
    """1/n sum_i J_i^T B_i J_i from a factor with B = R R^T, written without cancellation.

    diag(p) - p p^T is the sum over pairs a < b of p_a p_b (e_a - e_b) (e_a - e_b)^T.
    """
    n, k = outputs.shape
    if case.loss == "mse":
        rows = [row / flint.arb(n).sqrt() for row in jacobian]
        return many_digits.of_factor(many_digits.exact(rows), hidden=_hides(jacobian))
    probabilities = tape.softmax(tape.Array(outputs)).value
    rows = []
    for i, a, b in ((i, a, b) for i in range(n) for a, b in combinations(range(k), 2)):
        weight = (probabilities[i, a] * probabilities[i, b] / n).sqrt()
        rows.append((jacobian[i * k + a] - jacobian[i * k + b]) * weight)
    if not rows:
        return Truth((flint.arb(0),), 0)
    return many_digits.of_factor(
        many_digits.exact(rows), hidden=_hides(jacobian, probabilities, np.array(rows))
    )


def _hessians(case: Case) -> tuple[tuple[flint.arb, ...], tuple[flint.arb, ...]]:
    """Eigenvalues of the Hessian of the mean loss, and of its part H_F = H - G.

    Columns are differences of gradients with a step of 10^-150 in 420 digits, which leaves an
    error near 10^-150 times the third derivative. The matrix must come out symmetric.
    """
    with flint.ctx.workdps(_HESSIAN_DIGITS):
        params, step = lifted(case), flint.arb(10) ** -_STEP
        at, gauss = _gradient(case, params), gauss_newton(case, params)
        columns = []
        for key in sorted(params):
            for place in np.ndindex(params[key].shape):
                moved = params[key].value.copy()
                moved[place] = moved[place] + step
                ahead = _gradient(case, params | {key: tape.Array(moved)})
                columns.append((ahead - at) / step)
        hessian = np.array(columns, dtype=object)
        largest = max(abs(entry.mid()) for entry in hessian.ravel())
        hessian = hessian + flint.arb(0, largest * flint.arb(10) ** -_SEEN)  # zero, where it may be
        allowed = largest * flint.arb(10) ** -70
        allowed = allowed + 10 * max(ball.rad() for ball in hessian.ravel())
        return tuple(
            tuple(many_digits.eigenvalues(many_digits.exact(_symmetric(matrix, allowed)), 100))
            for matrix in (hessian, hessian - gauss)
        )


def _gradient(case: Case, params: dict) -> np.ndarray:
    """The gradient of the mean loss: 1/n J^T (f - y), or 1/n J^T (softmax f - y)."""
    batches = [slice(None)] if case.architecture.coupled else [[i] for i in range(len(case.x))]
    leaves = [params[key] for key in sorted(params)]
    total = np.full(sum(leaf.value.size for leaf in leaves), flint.arb(0), dtype=object)
    for batch in batches:
        output = case.architecture.apply(EXACT, params, tape.lift(case.numbers[batch]))
        if case.loss == "mse":
            slope = output.value - tape.lift(case.y[batch]).value
        else:
            onehot = np.eye(case.architecture.outputs, dtype=int)[case.y[batch]]
            slope = tape.softmax(output).value - onehot
        parts = tape.gradients(output, slope, leaves)
        total = total + np.concatenate([part.ravel() for part in parts])
    return total / flint.arb(len(case.x))


def gauss_newton(case: Case, params: dict) -> np.ndarray:
    """The Gauss-Newton matrix 1/n J^T B J, entry by entry."""
    outputs, jacobian = outputs_and_jacobian(case.architecture, params, case.numbers)
    n, k = outputs.shape
    weighted = jacobian
    if case.loss == "cross_entropy":
        probabilities = tape.softmax(tape.Array(outputs)).value
        blocks = jacobian.reshape(n, k, -1)
        mean = (probabilities[:, :, None] * blocks).sum(axis=1, keepdims=True)
        weighted = (probabilities[:, :, None] * (blocks - mean)).reshape(jacobian.shape)
    return jacobian.T @ weighted / flint.arb(n)


def _symmetric(matrix: np.ndarray, allowed: flint.arb) -> np.ndarray:
    middle = _middle(matrix)
    apart = max(abs(entry) for entry in (middle - middle.T).ravel()).mid()
    if not apart <= allowed:
        msg = f"a reference Hessian is not symmetric: {apart.str(5)}, allowed {allowed.str(5)}"
        raise ArithmeticError(msg)
    return _middle((middle + middle.T) / flint.arb(2))


def _middle(matrix: np.ndarray) -> np.ndarray:
    """The centres of the balls; zero where a ball holds zero, as that of a difference of equals."""

    def middle(entry: flint.arb) -> flint.arb:
        return entry.mid() if entry.abs_lower() > 0 else flint.arb(0)

    return np.vectorize(middle, otypes=[object])(matrix)
