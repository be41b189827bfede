"""What a monitor's row costs beside the training that it watches, and its products warm and cold.

    python -m benchmarks.monitor [--rows=10] [--save]

An MLP 196-256-256-10 on Fashion-MNIST at 14 x 14 trains by Adam with batches of 128. A row every
100 steps measures the sharpness and the curvature along the update on 128 samples: with and without
the largest eigenvalue of the Gauss-Newton matrix, and with at most two products for the sharpness.
Its share is of the training time. A cold start is a run from a random vector to the same residual,
and ``gnjax.eigenvalues`` certifies beside that no larger eigenvalue was missed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import optax

import gnjax
from benchmarks import harness, record

_EVERY, _BATCH, _RTOL = 100, 128, 2e-2
_WARM_UP = 3  # rows, of which the first ones compile
_KINDS: dict[str, dict[str, Any]] = {
    "H, G and the update": {},
    "H and the update": {"gauss_newton": False},
    "H and the update, warm_steps=2": {"gauss_newton": False, "warm_steps": 2},
}


def measure(rows: int = 10) -> list[record.Row]:
    gnjax.enable_x64()
    images = gnjax.data.load("fashion_mnist_5000", seed=0)
    x = images.inputs.reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(-1, 196)
    x, y = (x - x.mean()) / x.std(), images.labels
    model = gnjax.models.MLP((196, 256, 256, 10), activation="tanh", key=jax.random.key(0))
    apply, params = gnjax.functional(model)
    optimiser = optax.adam(1e-3)
    state, rng = optimiser.init(params), np.random.default_rng(0)

    @jax.jit
    def step(params: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        def loss(p: Any) -> jax.Array:
            return optax.softmax_cross_entropy_with_integer_labels(apply(p, x), y).mean()

        update, state = optimiser.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, update), state, update

    def trained(params: Any, state: Any) -> Any:
        for _ in range(_EVERY):
            batch = rng.integers(0, len(x), _BATCH)
            params, state, update = step(params, state, x[batch], y[batch])
        return jax.block_until_ready((params, state, update))

    monitors = {kind: _monitor(x, y, **wanted) for kind, wanted in _KINDS.items()}
    training: list[float] = []
    watching: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    products: dict[str, list[tuple[int, int]]] = {kind: [] for kind in _KINDS}
    certified: list[int] = []
    for number in range(_WARM_UP + rows):
        seconds, (params, state, update) = harness.once(partial(trained, params, state))
        training.append(seconds)
        for kind, monitor in monitors.items():
            ask = partial(monitor, number, (apply, params), update=update, rate=1e-3)
            watching[kind].append(harness.once(ask)[0])
            if number >= _WARM_UP:
                fresh = _monitor(x, y, **_KINDS[kind])
                fresh(0, (apply, params), update=update)
                pair = monitor.history[-1].products, fresh.history[-1].products
                products[kind].append(pair)
        if number >= _WARM_UP:
            certified.append(_certified_products(apply, params, x, y))
    case, training = f"{_EVERY} steps of Adam, batches of {_BATCH}", training[_WARM_UP:]
    note = f"eigenvalues(H, k=1) from a random start: {np.median(certified):.0f} products"
    made = [record.Row(case, "training", training, note=note)]
    for kind, seconds_of_rows in watching.items():
        warm, cold = np.median(products[kind], axis=0)
        watched = seconds_of_rows[_WARM_UP:]
        text = f"median products: {warm:.0f} warm, {cold:.0f} cold"
        shares = record.ratios(watched, training)
        made.append(record.Row(case, f"one row: {kind}", watched, shares, note=text))
    return made


def _monitor(x: np.ndarray, y: np.ndarray, **wanted: Any) -> gnjax.Monitor:
    return gnjax.Monitor(
        x[:_BATCH], y[:_BATCH], loss="cross_entropy", rtol=_RTOL, kappa=False, **wanted
    )


def _certified_products(apply: Any, params: Any, x: np.ndarray, y: np.ndarray) -> int:
    """How many products a certified eigenvalue takes from a random start."""
    done = [0]
    op = gnjax.hessian((apply, params), x[:_BATCH], y[:_BATCH], loss="cross_entropy")
    gnjax.eigenvalues(op, k=1, rtol=_RTOL, progress=lambda made, _: done.append(made))
    return max(done)


if __name__ == "__main__":
    record.command(measure)
