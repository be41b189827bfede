"""Inputs on another scale."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.conditioning.condition_number import condition_number
from gnjax.data.transforms import standardise, whiten
from gnjax.diagnosis.remedies.suggestion import Baseline, ModelOnData, NotMeasurableError, Remedy
from gnjax.numerics.host import on_device
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.operators.stored.matrices import factored


def standardised(problem: ModelOnData, baseline: Baseline) -> Remedy:
    """Inputs of which every feature has mean 0 and variance 1 over the samples."""
    flat = _flat_inputs(baseline.op)
    return _on_inputs("standardised inputs", problem, baseline.op, flat, standardise(flat))


def whitened(problem: ModelOnData, baseline: Baseline) -> Remedy:
    """Inputs whose covariance is the identity on its range, by ZCA."""
    flat = _flat_inputs(baseline.op)
    white = whiten(flat, method="zca")
    if white.rank == len(flat):
        msg = (
            f"whitening {len(flat)} independent samples in {flat.shape[1]} dimensions only makes "
            "them orthogonal to each other; give more samples than dimensions"
        )
        raise NotMeasurableError(msg)
    return _on_inputs("whitened inputs", problem, baseline.op, flat, white.inputs)


def _flat_inputs(op: NetworkGram) -> np.ndarray:
    """The inputs as an array of float64 (samples, features); refused where they are no numbers."""
    if not isinstance(op.net.x, jax.Array):
        msg = "inputs of several arrays do not have a single covariance"
        raise NotMeasurableError(msg)
    if not jnp.issubdtype(op.net.x.dtype, jnp.floating):
        msg = f"inputs of type {op.net.x.dtype} are tokens, which have no scale"
        raise NotMeasurableError(msg)
    return np.asarray(op.net.x, np.float64).reshape(op.net.samples, -1)


def _on_inputs(
    name: str, problem: ModelOnData, op: NetworkGram, flat: np.ndarray, changed: np.ndarray
) -> Remedy:
    """The remedy ``name``: inputs ``changed`` in place of ``flat``, both (samples, features)."""
    x = on_device(changed.reshape(op.net.x.shape), op.net.x.dtype)
    sigma = condition_number(factored(flat.T / math.sqrt(len(flat))))  # of x^T x / n
    reason = (
        "for linear networks kappa(G) <= kappa(Sigma) x a factor of the weights (Lemma 2); here "
        f"kappa(Sigma) {'=' if sigma.bounded else '>='} {sigma.value:.3g}"
    )
    return Remedy(name, reason, (("", replace(problem, x=x).kappa),))
