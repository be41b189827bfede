"""Optimisers of optax as people write them, with random constants and after some random steps.

Each comes with its metric P from differences of its own updates, or None where these say that it
has no diagonal one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
from jax.flatten_util import ravel_pytree

_SIZE = 1e-5  # of the gradients of differences, relative to those of the steps; no clip is so small
_APART = 1e-5  # relative: of P from two differences where it is one and the same, in float32 too


class Drawn(NamedTuple):
    """An optimiser with random constants.

    Attributes:
      optimizer: of optax.
      constants: in words.
      decay: of the mean of gradients on which P depends; None where P depends on none.
      corrected: whether that mean is divided by the sum of its weights.
    """

    optimizer: Any
    constants: str = ""
    decay: float | None = None
    corrected: bool = False


Make = Callable[[np.random.Generator, Any], Drawn]


@dataclass(frozen=True)
class Trained:
    """An optimiser of optax after its steps.

    Attributes:
      name: its name and constants.
      optimizer, state: what the library is given.
      metric: the diagonal (p,) of P, and None where it has none.
      apart: how far the metrics of two differences are apart, relative to either.
      known: whether the differences can tell a metric, which they cannot where updates are NaN,
        or the state holds gradients in float32.
    """

    name: str
    optimizer: Any
    state: Any
    metric: np.ndarray | None
    apart: float
    known: bool = True


def _rate(rng: np.random.Generator) -> float:
    return float(10 ** rng.uniform(-4, 0))


def _decays(rng: np.random.Generator) -> dict[str, float]:
    b1 = float(rng.choice([0.0, 0.5, 0.9, 0.95]))
    return {"b1": b1, "b2": float(rng.choice([0.9, 0.95, 0.99, 0.999]))}


def _eps(rng: np.random.Generator) -> dict[str, float]:
    return {} if rng.random() < 0.5 else {"eps": float(10 ** rng.uniform(-10, -2))}


def _plain(make: Any, *, decays: bool = True, eps: bool = True) -> Make:
    """An optimiser of a rate, its decays and its eps."""

    def of(rng: np.random.Generator, params: Any) -> Drawn:
        options = (_decays(rng) if decays else {}) | (_eps(rng) if eps else {})
        return Drawn(make(_rate(rng), **options), repr(options))

    return of


def _adam(rng: np.random.Generator, params: Any) -> Drawn:
    options = _decays(rng) | _eps(rng) | {"nesterov": bool(rng.random() < 0.5)}
    if rng.random() < 0.3:
        options["eps_root"] = float(10 ** rng.uniform(-12, -6))
    return Drawn(optax.adam(_rate(rng), **options), repr(options))


def _adamw(rng: np.random.Generator, params: Any) -> Drawn:
    options = _decays(rng) | {"weight_decay": float(rng.choice([1e-4, 1e-2, 1.0]))}
    if rng.random() < 0.5:
        options["mask"] = jax.tree.map(lambda leaf: leaf.ndim > 1, params)
    return Drawn(optax.adamw(_rate(rng), **options), repr(sorted(options)))


def _rmsprop(rng: np.random.Generator, params: Any, centered: bool) -> Drawn:
    options = _eps(rng) | {"decay": float(rng.choice([0.5, 0.9, 0.99])), "centered": centered}
    options |= {"bias_correction": bool(rng.random() < 0.5)}
    options |= {"eps_in_sqrt": bool(rng.random() < 0.5)}
    if rng.random() < 0.5:
        options |= {"momentum": 0.9, "nesterov": bool(rng.random() < 0.5)}
    decay = options["decay"] if centered else None
    optimizer = optax.rmsprop(_rate(rng), **options)
    return Drawn(optimizer, repr(options), decay, options["bias_correction"])


def _adabelief(rng: np.random.Generator, params: Any) -> Drawn:
    options = _decays(rng) | _eps(rng)
    return Drawn(optax.adabelief(_rate(rng), **options), repr(options), options["b1"])


def _adagrad(rng: np.random.Generator, params: Any) -> Drawn:
    start = float(rng.choice([0.0, 1e-3, 0.1]))
    return Drawn(
        optax.adagrad(_rate(rng), initial_accumulator_value=start, **_eps(rng)), f"{start}"
    )


def _adafactor(rng: np.random.Generator, params: Any) -> Drawn:
    options: dict[str, Any] = {"min_dim_size_to_factor": int(rng.choice([2, 128]))}
    options["multiply_by_parameter_scale"] = bool(rng.random() < 0.5)
    options["clipping_threshold"] = rng.choice([None, 1.0])
    options["momentum"] = rng.choice([None, 0.9])
    options |= {"dtype_momentum": jnp.float64}
    return Drawn(optax.adafactor(_rate(rng), **options), repr(options))


def _descent(rng: np.random.Generator, params: Any) -> Drawn:
    options = {"momentum": rng.choice([None, 0.9]), "nesterov": bool(rng.random() < 0.5)}
    return Drawn(optax.sgd(_rate(rng), **options), repr(options))


def _clipped(rng: np.random.Generator, params: Any) -> Drawn:
    clip = float(10 ** rng.uniform(-2, 1))
    kinds = {
        "norm": optax.clip_by_global_norm(clip),
        "value": optax.clip(clip),
        "block": optax.clip_by_block_rms(clip),
        "adaptive": optax.adaptive_grad_clip(clip),
    }
    kind, inner = str(rng.choice(list(kinds))), _inner(rng)
    return Drawn(optax.chain(kinds[kind], inner), f"{kind} {clip:.2g}")


def _inner(rng: np.random.Generator) -> Any:
    """One of the usual optimisers, to be put into something else."""
    kinds = (
        partial(optax.adam, **_decays(rng)),
        optax.yogi,
        optax.amsgrad,
        partial(optax.sgd, momentum=0.9),
    )
    return kinds[int(rng.integers(len(kinds)))](_rate(rng))


def _by_part(rng: np.random.Generator, params: Any) -> Drawn:
    kinds = {"a": _inner(rng), "b": _inner(rng)}
    labels = jax.tree.map(lambda _: str(rng.choice(["a", "b"])), params)
    return Drawn(optax.multi_transform(kinds, labels), "")


def _masked(rng: np.random.Generator, params: Any) -> Drawn:
    """Half of the parameters are scaled by their moments, and all take one rate."""
    mask = jax.tree.map(lambda _: bool(rng.random() < 0.5), params)
    first = optax.masked(optax.scale_by_adam(**_decays(rng)), mask)
    return Drawn(optax.chain(first, optax.scale(-_rate(rng))), "")


def _scheduled(rng: np.random.Generator, params: Any) -> Drawn:
    rate = optax.warmup_cosine_decay_schedule(0.0, _rate(rng), 3, 20)
    return Drawn(optax.adamw(rate, **_decays(rng)), "")


def _injected(rng: np.random.Generator, params: Any) -> Drawn:
    make = optax.inject_hyperparams(optax.nadam if rng.random() < 0.5 else optax.adamax)
    return Drawn(make(_rate(rng), **_decays(rng)), "")


def _accumulated(rng: np.random.Generator, params: Any) -> Drawn:
    every = int(rng.integers(2, 4))
    return Drawn(optax.MultiSteps(optax.adam(_rate(rng), **_decays(rng)), every), f"{every}")


def _schedule_free(rng: np.random.Generator, params: Any) -> Drawn:
    options = {"b1": 0.9, "b2": float(rng.choice([0.9, 0.999])), "weight_decay": 0.01}
    return Drawn(optax.contrib.schedule_free_adamw(_rate(rng), **options), repr(options))


OPTIMISERS: dict[str, Make] = {
    "adam": _adam,
    "adamw": _adamw,
    "nadamw": _plain(optax.nadamw),
    "amsgrad": _plain(optax.amsgrad),
    "adagrad": _adagrad,
    "radam": _plain(optax.radam),
    "rmsprop": partial(_rmsprop, centered=False),
    "centred rmsprop": partial(_rmsprop, centered=True),
    "adamax": _plain(optax.adamax),
    "yogi": _plain(optax.yogi),
    "adabelief": _adabelief,
    "adafactor": _adafactor,
    "adadelta": _plain(optax.adadelta, decays=False),
    "descent": _descent,
    "novograd": _plain(optax.novograd, eps=False),
    "ademamix": _plain(optax.contrib.ademamix),
    "clipped": _clipped,
    "multi_transform": _by_part,
    "masked": _masked,
    "schedule": _scheduled,
    "inject_hyperparams": _injected,
    "MultiSteps": _accumulated,
    "schedule_free": _schedule_free,
    "lion": _plain(optax.lion, eps=False),
    "lamb": _plain(optax.lamb),
    "lars": _plain(optax.lars, decays=False, eps=False),
    "muon": _plain(optax.contrib.muon, decays=False, eps=False),
    "galore": lambda rng, params: Drawn(optax.contrib.galore(_rate(rng), rank=2)),
    "sm3": _plain(optax.sm3, decays=False, eps=False),
    "adan": _plain(optax.adan, decays=False),
}


def trained(rng: np.random.Generator, name: str, params: Any) -> Trained:
    """An optimiser called ``name`` at these parameters, after some steps with random gradients.

    The parameters stay where they are. Gradients differ in size among the entries.
    """
    drawn = OPTIMISERS[name](rng, params)
    flat, unravel = ravel_pytree(params)
    sizes = 10 ** rng.uniform(-2, 1, flat.size)
    gradients = sizes * rng.standard_normal((int(rng.integers(2, 7)), flat.size))
    update, state = jax.jit(drawn.optimizer.update), jax.jit(drawn.optimizer.init)(params)
    for gradient in gradients:
        _, state = update(unravel(jnp.asarray(gradient)), state, params)

    def step(gradient: np.ndarray) -> np.ndarray:
        """The next update (p,) that is not zero, for the same gradient until then."""
        later, moved = state, np.zeros(flat.size)
        for _ in range(20):
            updates, later = update(unravel(jnp.asarray(gradient)), later, params)
            moved = np.asarray(ravel_pytree(updates)[0])
            if moved.any():
                break
        return moved

    centre, metrics = _centre(drawn, gradients), []
    for _ in range(2):
        h = _SIZE * np.sqrt(np.square(gradients).mean(axis=0)) * rng.uniform(0.5, 1, flat.size)
        metrics.append(_metric(step, centre, h * (rng.integers(0, 2, flat.size) * 2.0 - 1.0)))
    first, second = metrics
    # sums of gradients in float32 round those of differences away
    narrow = [leaf for leaf in jax.tree.leaves(state) if leaf.dtype == jnp.float32 and leaf.any()]
    known = not narrow and not any(np.isnan(metric).any() for metric in metrics)
    with np.errstate(invalid="ignore"):
        apart = float(np.max(np.abs(first - second) / np.abs(first)))
    positive = first if first[0] > 0 else -first
    is_metric = apart < _APART and (positive > 0).all()
    name = f"{name} {drawn.constants}"
    return Trained(name, drawn.optimizer, state, positive if is_metric else None, apart, known)


def _metric(
    step: Callable[[np.ndarray], np.ndarray], centre: np.ndarray, h: np.ndarray
) -> np.ndarray:
    """-h / du for the change du of the update by h, from four points, to the fifth order in h."""
    near = step(centre + h) - step(centre - h)
    far = step(centre + 2 * h) - step(centre - 2 * h)
    with np.errstate(divide="ignore", invalid="ignore"):
        return -12 * h / (8 * near - far)


def _centre(drawn: Drawn, gradients: np.ndarray) -> np.ndarray:
    """The gradient at which P is meant: zero, or the mean of gradients where P depends on it."""
    mean = np.zeros(gradients.shape[1])
    if drawn.decay is None:
        return mean
    for gradient in gradients:
        mean = drawn.decay * mean + (1 - drawn.decay) * gradient
    return mean / (1 - drawn.decay ** len(gradients)) if drawn.corrected else mean
