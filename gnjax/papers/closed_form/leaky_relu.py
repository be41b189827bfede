"""The Gauss-Newton matrix of a one-hidden-layer Leaky-ReLU network F(x) = W sigma(V x) (Eq 10).

With z = V X (m, n) and sigma(z) = sigma'(z) z, the slopes sigma'(z_ij), 1 where z_ij >= 0 and
``slope`` elsewhere, are the diagonals of the paper's Lambda^i. At exactly 0 the slope is 1: what
``jax.nn.leaky_relu`` differentiates to (``jax.nn.relu`` takes 0 there). The signs are those of z
as computed, as for every evaluation of the network in the same precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.certificate import MEASURED, PROVED
from gnjax.numerics.host import by_numpy, on_device
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.outward import (
    conversion_error,
    frobenius_norm,
    raised,
    stored_bound,
    underflow,
)
from gnjax.numerics.rounding import gamma, unit_roundoff
from gnjax.numerics.validation import check_finite_number, check_matrix
from gnjax.operators.factorisation import compact, compaction_error
from gnjax.operators.stored.matrices import Dense, Factored


@dataclass(frozen=True)
class LeakyLayer:
    """The quantities in Eqs 10 and 11, for checked V (m, d), W (k, m), X (d, n).

    Attributes:
      before: V X, (m, n).
      slopes: sigma'(V X), (m, n); row i is the diagonal of Lambda^i.
      hidden: sigma(V X), (m, n); Gamma = hidden^T hidden.
      hidden_error: a bound on ||hidden - exact||_F for these slopes.
      outer_error, inputs_error: bounds on ||W - given||_F and ||X - given||_F.
    """

    inner: jax.Array  # V
    outer: jax.Array  # W
    inputs: jax.Array  # X
    slope: float
    before: jax.Array
    slopes: jax.Array
    hidden: jax.Array
    hidden_error: float
    outer_error: float
    inputs_error: float


def leaky_relu_gauss_newton(
    V: ArrayLike, W: ArrayLike, X: ArrayLike, slope: float, *, limits: Limits = LIMITS
) -> Dense | Factored:
    """sum_i Lambda^i X^T X Lambda^i (x) w_i w_i^T + Gamma (x) I_k, kn x kn (Eq 10).

    The network is F(x) = W sigma(V x) with Leaky ReLU sigma. w_i is column i of W, v_i row i of V,
    Lambda^i (n, n) the diagonal matrix of the slopes of unit i on the samples, and Gamma = sum_i
    Lambda^i X^T v_i^T v_i X Lambda^i. This is J J^T for the Jacobian J of all outputs, sample by
    sample, with respect to V and W; no 1/n.

    Small problems come back as ``Factored``, so that the condition number comes from the singular
    values of J. Otherwise J, with m (d + k) columns, is far larger than the matrix, which is formed
    without it in O((kn)^2 m) operations.

    ``error`` is proved for the slopes that were computed: rounding of every product, and of the
    input where it was converted. Only where d > n does it contain LAPACK's constant for a QR
    factorisation of X, which is seen and not proved.

    Args:
      V: (m, d), the hidden layer.
      W: (k, m), the output layer.
      X: (d, n), one column for each sample.
      slope: of sigma for negative arguments, in [0, 1]; 0 is ReLU and 1 the linear network.
      limits: of memory and work.

    >>> v, w, x = (np.random.default_rng(0).standard_normal(s) for s in ((6, 3), (2, 6), (3, 5)))
    >>> gnjax.papers.leaky_relu_gauss_newton(v, w, x, slope=0.1).shape  # k n for k = 2, n = 5
    (10, 10)
    """
    (op,) = leaky_relu_gauss_newtons(V, W, X, (slope,), limits=limits)
    return op


def leaky_relu_gauss_newtons(
    V: ArrayLike,
    W: ArrayLike,
    X: ArrayLike,
    slopes: Sequence[float],
    *,
    limits: Limits = LIMITS,
) -> Iterator[Dense | Factored]:
    """:func:`leaky_relu_gauss_newton` of one network at several slopes.

    Each matrix is formed when it is asked for. The product over pairs of samples, nearly all of the
    work, is made once and serves all slopes.

    >>> V, W, X = np.eye(3), np.ones((2, 3)), np.diag([1.0, -1.0, 2.0])
    >>> ops = gnjax.papers.leaky_relu_gauss_newtons(V, W, X, slopes=(0.1, 1.0))
    >>> [op.shape for op in ops]
    [(6, 6), (6, 6)]
    """
    both_pass = None  # the product over pairs of samples, once it is needed
    for slope in slopes:
        layer = leaky_layer(V, W, X, slope)
        if _is_small(layer, limits):
            data = np.asarray(layer.inputs).T  # (n, d); X enters Eq 10 as X^T X alone
            compaction = compaction_error(data.shape, data.dtype, float(np.linalg.norm(data)))
            inputs = on_device(compact(data).T)
            factor = _jacobian(layer.outer, inputs, layer.slopes, layer.hidden)
            error = stored_bound(_jacobian_error(layer, inputs, compaction), factor.dtype)
            compacted = inputs.shape != layer.inputs.shape
            yield Factored(factor, error, MEASURED if compacted else PROVED)
            continue
        passes = on_device((by_numpy(layer.before) >= 0).astype(layer.outer.dtype))
        both_pass = _gram_of_paths(layer.outer, passes) if both_pass is None else both_pass
        matrix = _form(layer.outer, layer.inputs, passes, layer.hidden, layer.slope, both_pass)
        yield Dense(matrix, stored_bound(_form_error(layer), matrix.dtype))


def _is_small(layer: LeakyLayer, limits: Limits) -> bool:
    """Whether J (k n, m (min(d, n) + k)) is small enough for its singular values.

    A J that is not small is refused if J J^T has more than ``limits.matrix_rows`` rows.
    """
    hidden, samples = layer.hidden.shape
    outputs = layer.outer.shape[0]
    rows, columns = outputs * samples, hidden * (min(layer.inputs.shape) + outputs)
    if rows * columns * min(rows, columns) <= limits.factor_work:
        return True
    if rows > limits.matrix_rows:
        msg = (
            f"{outputs} outputs on {samples} samples make a matrix of {rows} rows, "
            f"{8e-9 * rows**2:.0f} GB; draw at most {limits.matrix_rows // outputs} samples"
        )
        raise ValueError(msg)
    return False


def leaky_layer(V: ArrayLike, W: ArrayLike, X: ArrayLike, slope: float) -> LeakyLayer:
    """The checked network F(x) = W sigma(V x), with its slopes and activations on X (d, n)."""
    inner, outer, inputs = (check_matrix(name, x) for name, x in (("V", V), ("W", W), ("X", X)))
    slope = check_finite_number("slope", slope)
    if not 0 <= slope <= 1:
        msg = f"slope={slope} is not between 0 (ReLU) and 1 (the linear network)"
        raise ValueError(msg)
    if inner.shape[1] != inputs.shape[0]:
        msg = (
            f"V has {inner.shape[1]} columns but X has {inputs.shape[0]} rows; X is (d, n) with "
            "one column for each sample (transpose it if samples are rows)"
        )
        raise ValueError(msg)
    if outer.shape[1] != inner.shape[0]:
        msg = f"W has {outer.shape[1]} columns but V has {inner.shape[0]} rows; W V must chain"
        raise ValueError(msg)
    errors = [
        conversion_error(matrix, array) for matrix, array in ((V, inner), (W, outer), (X, inputs))
    ]
    before, slopes, hidden, magnitudes = _activations(inner, inputs, slope)
    terms = inner.shape[1] + 1
    error = gamma(terms, hidden.dtype) * frobenius_norm(magnitudes)
    error += underflow(terms, hidden.size, hidden.dtype)
    # What V and X, and then the slope, have lost in storage.
    error += (frobenius_norm(inner) + errors[0]) * errors[2] + errors[0] * frobenius_norm(inputs)
    error += abs(slope - float(np.asarray(slope, hidden.dtype))) * frobenius_norm(before)
    return LeakyLayer(
        inner, outer, inputs, slope, before, slopes, hidden, raised(error), errors[1], errors[2]
    )


@jax.jit
def _activations(
    inner: jax.Array, inputs: jax.Array, slope: float
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """V X, sigma'(V X), sigma(V X), and sigma'(V X) o |V| |X|, each (m, n).

    The last, times gamma, bounds the rounding of sigma(V X).
    """
    before = jnp.matmul(inner, inputs, precision="highest")
    slopes = jnp.where(before >= 0, 1.0, slope).astype(before.dtype)
    absolute = jnp.matmul(jnp.abs(inner), jnp.abs(inputs), precision="highest")
    return before, slopes, slopes * before, slopes * absolute


@jax.jit
def _jacobian(
    outer: jax.Array, inputs: jax.Array, slopes: jax.Array, hidden: jax.Array
) -> jax.Array:
    """The Jacobian J of all outputs by V and then by W, (n k, m d + m k).

    The row of output c on sample j has w_ci Lambda^i_jj x_aj for V_ia, and sigma(V X)_ij for W_ci.
    """
    samples, outputs = inputs.shape[1], outer.shape[0]
    first = jnp.einsum("ci,ij,aj->jcia", outer, slopes, inputs, precision="highest")
    first = first.reshape(samples * outputs, -1)
    second = jnp.kron(hidden.T, jnp.eye(outputs, dtype=hidden.dtype))
    return jnp.concatenate([first, second], axis=1)


def _jacobian_error(layer: LeakyLayer, inputs: jax.Array, compaction: float) -> float:
    """A bound on ||stored J - exact||_2 for the Jacobian J, up to a rotation of its columns.

    The block of V is the Khatri-Rao product of X and W with slopes of at most 1. With the errors
    E_X of ``inputs``, ``compaction`` included, and E_W of W it moves by at most
    ||E_X|| ||W|| + ||X|| ||E_W|| + ||E_X|| ||E_W||, and by roundings. That of W moves by the error
    of the activations.
    """
    dtype = layer.outer.dtype
    outer, data = frobenius_norm(layer.outer), frobenius_norm(inputs)
    shift = compaction + layer.inputs_error
    lost = abs(layer.slope - float(np.asarray(layer.slope, dtype)))
    error = shift * outer + (data + shift) * layer.outer_error
    error += (3 * unit_roundoff(dtype) + lost) * outer * data
    error += underflow(1, layer.outer.size * inputs.size, dtype)
    return raised(error + layer.hidden_error)


@jax.jit
def _gram_of_paths(outer: jax.Array, passes: jax.Array) -> jax.Array:
    """P P^T with the indices (j, c, l, e), (n, k, n, k), for P_(jc),i = w_ci passes_ij.

    ``outer`` is W (k, m), and ``passes`` (m, n) is 1 where z_ij >= 0, and 0 elsewhere.
    """
    units, samples = passes.shape
    outputs = outer.shape[0]
    paths = (passes.T[:, None, :] * outer[None, :, :]).reshape(samples * outputs, units)
    products = jnp.matmul(paths, paths.T, precision="highest")
    return products.reshape(samples, outputs, samples, outputs)


@jax.jit
def _form(
    outer: jax.Array,
    inputs: jax.Array,
    passes: jax.Array,
    hidden: jax.Array,
    slope: float,
    both_pass: jax.Array,
) -> jax.Array:
    """J J^T (n k, n k): (X^T X (x) 1 1^T) o (P P^T) + Gamma (x) I with P_(jc),i = w_ci Lambda^i_jj.

    W is ``outer`` (k, m), X ``inputs`` (d, n), Gamma = ``hidden``^T ``hidden``, and with the slope
    a and ``passes`` s (m, n), Lambda^i_jj = a + (1 - a) s_ij. P P^T is

        (1 - a)^2 B + a (1 - a) (M + M^T) + a^2 (1 1^T (x) W W^T),

    where B is ``both_pass``, the P P^T of slope 0, and M_(jc),(le) = sum_i w_ci w_ei s_ij, which
    is the same for all l.
    """
    units, samples = passes.shape
    outputs = outer.shape[0]
    pairs = (outer[:, None, :] * outer[None, :, :]).reshape(outputs**2, units)
    m = jnp.matmul(passes.T, pairs.T, precision="highest").reshape(samples, outputs, outputs)
    all_pass = jnp.matmul(outer, outer.T, precision="highest")[None, :, None, :]
    either = m[:, :, None, :] + m.transpose(1, 0, 2)[None, :, :, :]
    gap = 1 - slope
    products = gap * gap * both_pass + slope * gap * either + slope * slope * all_pass
    gram = jnp.matmul(inputs.T, inputs, precision="highest")
    activations = jnp.matmul(hidden.T, hidden, precision="highest")
    matrix = products * gram[:, None, :, None]
    matrix += activations[:, None, :, None] * jnp.eye(outputs, dtype=outer.dtype)[None, :, None, :]
    return matrix.reshape(samples * outputs, -1)


def _form_error(layer: LeakyLayer) -> float:
    """A bound on the error of :func:`_form`, by rounding and by the errors of the stored W and X.

    The matrix is J_V J_V^T + Gamma (x) I, where J_V is the Jacobian by V. If J_V moves by s, the
    first term moves by at most (2 ||J_V|| + s) s, and Gamma in the same way. Its rounding is at
    most gamma |J_V| |J_V|^T entry by entry, as no term of a slope has a negative factor, with a
    norm of at most ||J_V||_F^2 = sum_ij |w_i|^2 (Lambda^i_jj)^2 |x_j|^2.
    """
    dtype, (units, samples) = layer.outer.dtype, layer.slopes.shape
    outer, inputs = frobenius_norm(layer.outer), frobenius_norm(layer.inputs)
    hidden, error_of_hidden = frobenius_norm(layer.hidden), layer.hidden_error
    # ||J_V||_F^2, with room for its own rounding.
    lengths = jnp.linalg.norm(layer.outer, axis=0), jnp.linalg.norm(layer.inputs, axis=0)
    energy = frobenius_norm(lengths[0][:, None] * layer.slopes * lengths[1][None, :]) ** 2
    energy *= 1 + gamma(4 * (units + samples), dtype)
    lost = abs(layer.slope - float(np.asarray(layer.slope, dtype)))
    shift = layer.inputs_error * outer + (inputs + layer.inputs_error) * layer.outer_error
    shift += lost * outer * inputs
    rows = layer.outer.shape[0] * samples
    # An entry sums over units and inputs; 13 more roundings allow for how it is put together.
    error = gamma(units + layer.inputs.shape[0] + 13, dtype) * energy
    error += (2 * math.sqrt(energy) + shift) * shift
    error += gamma(units + 2, dtype) * hidden**2 + (2 * hidden + error_of_hidden) * error_of_hidden
    flushed = underflow(4 * (units + 2), rows**2, dtype) * (inputs**2 + 1)
    flushed += underflow(layer.inputs.shape[0], samples**2, dtype) * (outer**2 + 1) * rows
    return raised(error + flushed)
