"""Traces by Hutchinson's estimator and by Hutch++ (Meyer, Musco, Musco and Woodruff, 2021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gnjax.numerics.host import HostProduct
from gnjax.operators.protocol import Operator
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.krylov.host_products import refuse_nonfinite
from gnjax.spectra.stochastic.probes import images_of, lengths_of, signs, standard_error


@dataclass(frozen=True)
class TraceEstimate:
    """An estimate of tr A from random vectors.

    Attributes:
      value: the estimate.
      standard_error: of the value; 0.0 where nothing of it is random.
      samples: how many numbers the standard error was computed from.
      products: how many vectors were multiplied by A.
      lengths: the sum of |x| |A x| over the products that the value is made of, to which their
        rounding is proportional.
    """

    value: float
    standard_error: float
    samples: int
    products: int
    lengths: float


def hutchinson(
    op: Operator,
    product: HostProduct,
    counts: Sequence[int],
    rng: np.random.Generator,
    stop: Callable[[], bool],
    block: int,
    is_accurate: Callable[[TraceEstimate], bool] = lambda estimate: False,
) -> TraceEstimate:
    """The mean of g^T A g over vectors g of random signs.

    There are as many as the last of the ascending ``counts``. After each of the others
    ``is_accurate`` is asked whether they suffice. There are fewer if ``stop`` is True. ``product``
    multiplies rows by A, for ``block`` vectors at once, and no others are in memory.
    """
    samples: list[np.ndarray] = []
    lengths, done = 0.0, 0  # the sum of |g| |A g|, and the number of vectors
    for count in counts:
        while done < count and not (done and stop()):
            of_block, lengths_of_block = _samples(
                product, rng, min(block, count - done), op.shape[0]
            )
            samples.append(of_block)
            lengths, done = lengths + lengths_of_block, done + len(of_block)
        values = np.concatenate(samples)
        refuse_nonfinite(values)
        estimate = TraceEstimate(
            float(values.mean()), standard_error(values), done, done, lengths / done
        )
        if done < count or (count < counts[-1] and is_accurate(estimate)):
            break
    return estimate


def _samples(
    product: HostProduct, rng: np.random.Generator, count: int, size: int
) -> tuple[np.ndarray, float]:
    """g^T A g for ``count`` vectors g of random signs, and the sum of |g| |A g| over them."""
    tests = signs(rng, count, size)
    images = product(tests)
    return (images * tests).sum(axis=1), float(lengths_of(tests, images).sum())


def hutch_plus_plus(
    op: Operator, product: HostProduct, probes: int, rng: np.random.Generator
) -> TraceEstimate:
    """tr(Q^T A Q), plus the mean of g^T P A P g over vectors g of random signs, with P = I - Q Q^T.

    Each takes a third of the products, and so does Q (n, k), an orthonormal basis of A S for a
    Gaussian S (n, k). With k = n, P is zero, and the only error left is rounding.
    """
    size, third = op.shape[0], probes // 3
    sketch = rng.standard_normal((min(third, size), size))  # S^T
    basis = np.linalg.qr(images_of(product, sketch).T)[0].T  # Q^T
    images = images_of(product, basis)
    captured = float((images * basis).sum())  # tr(Q^T A Q)
    lengths = float(lengths_of(basis, images).sum())  # |q| |A q|, to which rounding is proportional
    products = 2 * len(basis)
    if len(basis) == size:
        return TraceEstimate(captured, 0.0, 0, products, lengths)
    complement_probes = krylov.outside(signs(rng, probes - products, size), basis)  # P g
    images = images_of(product, complement_probes)
    lengths += float(lengths_of(complement_probes, images).mean())
    values = captured + (images * complement_probes).sum(axis=1)
    return TraceEstimate(float(values.mean()), standard_error(values), len(values), probes, lengths)
