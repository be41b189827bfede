"""NTKs, Gauss-Newton products and Hessian eigenvalues, against the tools used for them today.

    python -m benchmarks.rivals.install
    python -m benchmarks.network_spectra [--only ntk dense ggn hessian] [--small]

Every tool computes on the same arrays, warm, on the same cores; gnjax here and each rival in an
environment of its own. A rival and gnjax take turns, a run of each, because a machine's speed
varies from one minute to the next: seconds are medians, a ratio is the median over the pairs of
runs, and above 1 where gnjax was faster. Errors are against float64: a formula for the NTK, a
separate product for Gauss-Newton, the formed matrix for the Hessian. Gauss-Newton in float32 has
errors of 1e-4 wherever rounding takes a ReLU across its kink, in every tool. Run it on an idle
machine: torch suffers most from other load. ``--only ggn_block``, products with ten vectors, takes
as long as all others together and is left out where it is not asked for.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import threadpoolctl
from jax.flatten_util import ravel_pytree

import gnjax
from benchmarks import cases, harness, record
from benchmarks.harness import Arrays, Case
from benchmarks.record import Row
from benchmarks.rivals import install, jax_models

_RTOL = 1e-3  # of the condition number
_CONTRACTED = 100  # samples whose whole Jacobian is formed: 3 GB
_CHUNK = 50  # samples at a time in the float64 Gauss-Newton product
_NTK = "NTK of 784-500-10, ReLU, float64, formed (k n x k n)"
_KAPPA = "kappa to 1e-3 of that matrix"
_GGN = "Gauss-Newton product, ResNet20, cross-entropy, float32"
_HESSIAN = "10 largest Hessian eigenvalues to 1e-6, 64-100-10, tanh, float64"
_PATIENCE = 1800.0  # seconds for one rival
_USUAL = ("ntk", "dense", "ggn", "hessian")


@dataclass(frozen=True)
class Setting:
    samples: int
    threads: int
    repeats: int


@dataclass(frozen=True)
class Comparison:
    """A case, gnjax's own call for it, and the error of a tool's numbers."""

    title: str
    task: str
    case: Case
    ours: Callable[[], Any]
    error: Callable[[Arrays], float]
    describe: Callable[[Arrays], str] = lambda _: ""

    def rival(self, name: str, setting: Setting) -> Row:
        """Run a rival in its environment, on gnjax's case and cores, and in turn with ``ours``."""
        if (reason := install.missing(name)) is not None:
            return Row(self.title, name, None, note=reason)
        function = f"benchmarks.rivals.{name.replace('-', '_')}:{self.task}"
        given = {"case": vars(self.case), "repeats": setting.repeats}
        python, threads = install.interpreter(name), setting.threads
        try:
            found = harness.apart(function, given, python, threads, _PATIENCE, self.ours)
        except harness.NoAnswerError as reason:
            return Row(self.title, name, None, note=f"failed: {reason}")
        runs = found["runs"].tolist()
        products = f"{found['products']} products" if "products" in found else ""
        notes = (self.describe(found), products, found.get("note", ""))
        return Row(
            self.title,
            found["tool"],
            runs,
            record.ratios(runs, found["ours"]),
            self.error(found),
            found["gigabytes"],
            ", ".join(note for note in notes if note),
        )


def measure(
    only: tuple[str, ...] = _USUAL,
    small: bool = False,
    threads: int = os.cpu_count() or 1,
    repeats: int = 5,
) -> Iterator[Row]:
    if unknown := [name for name in only if name not in _CASES]:
        sys.exit(f"no case is named {', '.join(unknown)}; they are {', '.join(_CASES)}")
    warnings.filterwarnings("ignore", "JAX is in 32-bit mode")  # asked for by two of the cases
    harness.limit_cores(threads)
    setting = Setting(50 if small else 1000, threads, repeats)
    with threadpoolctl.threadpool_limits(threads):
        for name in only:
            yield from _CASES[name](setting)


def _ntk(setting: Setting) -> list[Row]:
    case = cases.ntk(setting.samples)
    truth = relu_ntk(case)
    with gnjax.x64():
        model, x = (jax_models.relu_mlp, jax_models.to_jax(case.weights)), jnp.asarray(case.x)
        whole = _contraction(case, setting)

    def ours() -> jax.Array:
        with gnjax.x64():
            return gnjax.ntk(model, x).as_matrix().block_until_ready()

    compared = Comparison(_NTK, "ntk", case, ours, lambda held: _apart(held["matrix"], truth))
    seconds, matrix = harness.timed(ours, setting.repeats)
    row = Row(_NTK, "gnjax", seconds, error=_apart(np.asarray(matrix), truth))
    return [row, whole, compared.rival("neural-tangents", setting)]


def _apart(matrix: Any, truth: np.ndarray) -> float:
    """The largest difference, relative to the largest entry."""
    return float(np.abs(matrix - truth).max() / np.abs(truth).max())


def relu_ntk(case: Case) -> np.ndarray:
    """J J^T of W2 relu(W1 x) by hand, with h the hidden layer and s its slopes:

    delta_ab h_i . h_j + (x_i . x_j) sum_m W2[a, m] W2[b, m] s_i[m] s_j[m].
    """
    first, second = case.weights["layer1_dense"], case.weights["layer2_dense"]
    k = len(second)
    hidden = case.x @ first.T
    slopes = (hidden > 0).astype(float)
    hidden *= slopes
    backward = (slopes[:, None, :] * second).reshape(-1, second.shape[1])  # (n k, m)
    inner = backward @ backward.T
    inner *= np.kron(case.x @ case.x.T, np.ones((k, k)))
    gram = hidden @ hidden.T
    for output in range(k):
        inner[output::k, output::k] += gram
    return inner


def _contraction(case: Case, setting: Setting) -> Row:
    """J J^T from the whole Jacobian, for as many samples as fit; its cost grows as n^2."""
    contracted = min(_CONTRACTED, setting.samples)
    weights, x = jax_models.to_jax(case.weights), jnp.asarray(case.x[:contracted])

    def one(weights: jax_models.Weights, x: jax.Array) -> jax.Array:
        return jax_models.relu_mlp(weights, x[None])[0]

    @jax.jit
    def contract(weights: jax_models.Weights, x: jax.Array) -> jax.Array:
        jacobian = jax.vmap(jax.jacrev(one), in_axes=(None, 0))(weights, x)
        rows = len(x) * cases.CLASSES
        factors = [part.reshape(rows, -1) for part in jax.tree.leaves(jacobian)]
        return sum(factor @ factor.T for factor in factors)

    ready = jax.block_until_ready
    seconds, matrix = harness.timed(lambda: ready(contract(weights, x)), setting.repeats)
    error = _apart(matrix, relu_ntk(cases.first(case, contracted)))
    scale = (setting.samples / contracted) ** 2
    note = f"extrapolated by n^2 from {contracted} samples" if scale > 1 else ""
    scaled = [scale * one for one in seconds]
    return Row(_NTK, "full Jacobian, contracted", scaled, error=error, note=note)


def _dense(setting: Setting) -> list[Row]:
    matrix = relu_ntk(cases.ntk(setting.samples))
    with gnjax.x64():
        ask = partial(gnjax.condition_number, gnjax.dense(matrix), rtol=_RTOL)
        seconds, kappa = harness.timed(ask, setting.repeats)
    rival, values = harness.once(lambda: scipy.linalg.eigvalsh(matrix, check_finite=False))
    ratios = [rival / own for own in seconds]
    note = "taken as exact, one run for all pairs"
    error = abs(kappa.value / (values[-1] / values[0]) - 1)
    return [
        Row(_KAPPA, "gnjax", seconds, error=error),
        Row(_KAPPA, "scipy `eigvalsh`", [rival], ratios, note=note),
    ]


def _ggn(setting: Setting, columns: int) -> list[Row]:
    name = _GGN if columns == 1 else f"{_GGN}, {columns} vectors at once"
    case = cases.ggn(setting.samples, columns)
    truth = _exact_ggn_product(case)
    order, statistics = jax_models.order(case.weights), jax_models.to_jax(case.statistics)
    v = jnp.asarray(case.vectors[order].squeeze() if columns == 1 else case.vectors[order])

    def error(arrays: Arrays) -> float:
        return float(np.linalg.norm(arrays["product"][:, 0] - truth) / np.linalg.norm(truth))

    def apply(weights: jax_models.Weights, x: jax.Array) -> jax.Array:
        return jax_models.resnet20(weights, statistics, x)

    def measured(tool: str, multiply: Callable[[jax.Array], jax.Array], note: str = "") -> Row:
        seconds, image = harness.timed(lambda: multiply(v).block_until_ready(), setting.repeats)
        in_case = np.empty_like(case.vectors)
        in_case[order] = np.asarray(image).reshape(-1, columns)
        return Row(name, tool, seconds, error=error({"product": in_case}), note=note)

    model, x = (apply, jax_models.to_jax(case.weights)), jnp.asarray(case.x)
    op = gnjax.gauss_newton(model, x, loss="cross_entropy", side="parameters")
    product = jax.jit(lambda op, v: op.mv(v))
    rows = [measured("gnjax", partial(product, op))]
    rows.append(measured("gnjax, linearised before", gnjax.linearised(op).mv))
    making, kept = harness.once(lambda: jax.block_until_ready(gnjax.with_jacobian(op)))
    size = sum(array.nbytes for array in jax.tree.leaves(kept.blocks)) / 1e9
    note = f"made once in {making:.0f} s, {size:.1f} GB"
    rows.append(measured("gnjax, Jacobian stored before", kept.mv, note))
    compared = Comparison(name, "ggn", case, lambda: jax.block_until_ready(product(op, v)), error)
    return [*rows, *(compared.rival(rival, setting) for rival in ("curvlinops", "kfac-jax"))]


def _exact_ggn_product(case: Case) -> np.ndarray:
    """The first column of 1/n sum_i J_i^T (diag p - p p^T) J_i V, in float64."""
    exact = cases.as_type(case, np.float64)
    order = jax_models.order(case.weights)
    with gnjax.x64():
        weights, statistics = jax_models.to_jax(exact.weights), jax_models.to_jax(exact.statistics)
        v = ravel_pytree(weights)[1](jnp.asarray(exact.vectors[order, 0]))

        @jax.jit
        def product(x: jax.Array) -> jax.Array:
            def network(weights: jax_models.Weights) -> jax.Array:
                return jax_models.resnet20(weights, statistics, x)

            outputs, pushed = jax.jvp(network, (weights,), (v,))
            p = jax.nn.softmax(outputs)
            weighted = p * (pushed - (p * pushed).sum(1, keepdims=True))
            return ravel_pytree(jax.vjp(network, weights)[1](weighted)[0])[0]

        n = len(exact.x)
        chunks = [jnp.asarray(exact.x[i : i + _CHUNK]) for i in range(0, n, _CHUNK)]
        total = np.asarray(sum(product(chunk) for chunk in chunks)) / n
    in_case = np.empty_like(total)
    in_case[order] = total
    return in_case


def _hessian(setting: Setting) -> list[Row]:
    case, k = cases.hessian(setting.samples), harness.EIGENVALUES
    with gnjax.x64():
        matrix = _dense_hessian(case)
        ends = [len(matrix) - k, len(matrix) - 1]
        truth = scipy.linalg.eigh(matrix, eigvals_only=True, subset_by_index=ends)[::-1]
        model, x = (jax_models.tanh_mlp, jax_models.to_jax(case.weights)), jnp.asarray(case.x)
        op = gnjax.hessian(model, x, case.y, loss="cross_entropy")

    def error(arrays: Arrays) -> float:
        return float(np.abs(arrays["values"] - truth).max() / truth[0])

    def residual(arrays: Arrays) -> str:
        """The largest |H v - lambda v| of the pairs a tool returned, relative to lambda_max."""
        values, vectors = arrays["values"], arrays["vectors"]
        residuals = np.linalg.norm(matrix @ vectors - vectors * values, axis=0)
        return f"residual {residuals.max() / truth[0]:.0e}"

    def ours() -> gnjax.answers.Spectrum:
        with gnjax.x64():
            return gnjax.eigenvalues(op, k=k, which="largest", rtol=harness.TOLERANCE)

    seconds, found = harness.timed(ours, setting.repeats)
    bound = max(found.errors) / truth[0]
    note = f"error bound {bound:.0e}, {found.certificate.brief}, {found.method}"
    own = Row(_HESSIAN, "gnjax", seconds, error=error({"values": found.values}), note=note)
    compared = Comparison(_HESSIAN, "hessian", case, ours, error, residual)
    rivals = ("curvlinops", "matfree", "hessian-eigenthings")
    return [own, *(compared.rival(name, setting) for name in rivals)]


def _dense_hessian(case: Case) -> np.ndarray:
    """The Hessian column by column, in the order of the case's flat vector."""
    flat, product = jax_models.hessian_product(case)
    columns = jax.jit(lambda identity: jax.lax.map(product, identity, batch_size=128))
    order = jax_models.order(case.weights)
    matrix = np.empty((flat.size, flat.size))
    matrix[np.ix_(order, order)] = columns(jnp.eye(flat.size))
    return (matrix + matrix.T) / 2


_CASES: dict[str, Callable[[Setting], list[Row]]] = {
    "ntk": _ntk,
    "dense": _dense,
    "ggn": lambda setting: _ggn(setting, 1),
    "ggn_block": lambda setting: _ggn(setting, 10),
    "hessian": _hessian,
}

if __name__ == "__main__":
    record.command(measure)
