"""The bound on kappa(G) of a network with one hidden Leaky-ReLU layer (Lemma 4)."""

from __future__ import annotations

from dataclasses import dataclass

from jax.typing import ArrayLike

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import Certificate, certificate
from gnjax.numerics.outward import lowered, raised
from gnjax.papers.bounds.enclosures import extreme_singular_values
from gnjax.papers.closed_form.leaky_relu import leaky_layer


@dataclass(frozen=True, repr=False)
class LeakyReluBound(Result):
    """Lemma 4: kappa(G) <= value = largest / smallest for G of Eq 10.

    Attributes:
      value: the bound of Eq 11; None where the lemma does not apply.
      estimate: the paper's second bound, from Eqs 25 and 26. It is no bound: kappa can exceed it.
        None where its denominator is 0.
      largest, smallest: the bounds of Eq 11 on lambda_max(G) from above and on lambda_min(G) from
        below.
      applicable: whether ``smallest`` is proved to be positive, rounding included.
      reason: why the lemma does not apply, or "".
      certificate: what ``value`` rests on; ``estimate`` has none.

    >>> v, w, x = (np.random.default_rng(0).standard_normal(s) for s in ((9, 3), (2, 9), (3, 3)))
    >>> bound = gnjax.papers.bounds.leaky_relu(v, w, x, slope=0.5)
    >>> kappa = gnjax.condition_number(gnjax.papers.leaky_relu_gauss_newton(v, w, x, slope=0.5))
    >>> bound.applicable, kappa.interval[0] <= bound.value
    (True, True)
    """

    value: float | None
    estimate: float | None
    largest: float
    smallest: float
    applicable: bool
    reason: str
    certificate: Certificate


def leaky_relu(V: ArrayLike, W: ArrayLike, X: ArrayLike, slope: float) -> LeakyReluBound:
    """Lemma 4, Eq 11: a bound on kappa(G) for F(x) = W sigma(V x) with V (m, d) and W (k, m).

    sigma is Leaky ReLU, and X (d, n) has the samples as columns. The bound is

        (s_max^2(X) s_max^2(W) + lambda_max(Gamma))
        / (slope^2 s_min^2(X) s_min^2(W) + lambda_min(Gamma)),  Gamma = sigma(V X)^T sigma(V X).

    s_min(X) is the smallest of n singular values and s_min(W) the smallest of k, so that they are 0
    where n > d or k > m. Each singular value is moved outwards by its rounding error.

    ``estimate`` has X^T V^T V X in place of Gamma in the numerator, and slope^2 times that matrix
    in the denominator. Eqs 25 and 26 would hold if all units had the same Lambda. They fail in
    general: with slope 1/2, X = I and V = [[-2, 1/2], [1, -1]], Gamma is singular and V is not;
    with slope 0, X = I and V = [[1, 1], [1, -1]], lambda_max(Gamma) = 2.618 exceeds
    lambda_max(V^T V) = 2.

    >>> v, w, x = (np.random.default_rng(0).standard_normal(s) for s in ((9, 3), (2, 9), (3, 3)))
    >>> gnjax.papers.bounds.leaky_relu(v, w, x, slope=0.5).applicable
    True
    """
    layer = leaky_layer(V, W, X, slope)
    data = extreme_singular_values(layer.inputs.T, layer.inputs_error)
    outer = extreme_singular_values(layer.outer, layer.outer_error)
    hidden = extreme_singular_values(layer.hidden.T, layer.hidden_error)
    if max(data.above * outer.above, hidden.above) > 1e150:
        msg = (
            "the squares of these weights and data are beyond floats; divide them by powers of two"
        )
        raise ValueError(msg)
    largest = raised((data.above * outer.above) ** 2 + hidden.above**2)
    smallest = lowered((layer.slope * data.below * outer.below) ** 2 + hidden.below**2)
    reason = ""
    if smallest == 0:
        (units, samples), outputs = layer.hidden.shape, layer.outer.shape[0]
        reason = (
            "Lemma 4 bounds lambda_min from below by 0: Gamma is singular, exactly or to working "
            f"precision (n={samples}, m={units}), and slope^2 s_min^2(X) s_min^2(W) is 0 "
            f"(slope={layer.slope}, d={layer.inputs.shape[0]}, k={outputs})"
        )
    value = None if reason else raised(largest / smallest)
    # The paper's second bound, in which a smallest singular value not above its error counts as 0.
    parts = data, outer, extreme_singular_values(layer.before.T)
    tops = [part.largest**2 for part in parts]
    least = [part.smallest**2 if part.below > 0 else 0.0 for part in parts]
    denominator = layer.slope**2 * (least[0] * least[1] + least[2])
    estimate = (tops[0] * tops[1] + tops[2]) / denominator if denominator > 0 else None
    rests_on = certificate(data.part, outer.part, hidden.part)
    return LeakyReluBound(value, estimate, largest, smallest, not reason, reason, rests_on)
