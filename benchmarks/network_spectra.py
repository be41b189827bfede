"""NTKs, Gauss-Newton products and Hessian eigenvalues, against the tools used for them today.

    python -m benchmarks.rivals.install
    python -m benchmarks.network_spectra [--only=ntk,dense,ggn,hessian] [--small]

Every tool computes on the same arrays, warm, on the same cores; gnjax here and each rival in an
environment of its own. A rival and gnjax take turns, a run of each, because a machine's speed
varies from one minute to the next: seconds are medians, a ratio is the median over the pairs of
runs, and above 1 where gnjax was faster. Errors are against float64: a formula for the NTK, a
separate product for Gauss-Newton, the formed matrix for the Hessian. Gauss-Newton in float32 has
errors of 1e-4 wherever rounding takes a ReLU across its kink, in every tool. Run it on an idle
machine: torch suffers most from other load. ``--only=ggn_block``, products with ten vectors, takes
as long as all others together and is left out where it is not asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import threadpoolctl
from jax.flatten_util import ravel_pytree

import gnjax
from benchmarks import cases, record
from benchmarks.rivals import harness, install, jax_models
from benchmarks.rivals.harness import Arrays, Case

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", default=",".join(_USUAL), help="cases, separated by commas")
    parser.add_argument("--small", action="store_true", help="50 samples, to see that it works")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="write what the README's tables show")
    options = parser.parse_args()
    chosen = options.only.split(",")
    unknown = [name for name in chosen if name not in _CASES]
    if unknown:
        parser.error(f"no case is named {', '.join(unknown)}; they are {', '.join(_CASES)}")
    warnings.filterwarnings("ignore", "JAX is in 32-bit mode")  # asked for by two of the cases
    harness.limit_cores(options.threads)
    setting = Setting(50 if options.small else 1000, options.threads, options.repeats)
    load = os.getloadavg()[0]
    print(f"{setting.samples} samples, {setting.threads} threads, load {load:.1f} at the start")
    began = record.environment()
    rows: list[record.Row] = []
    with threadpoolctl.threadpool_limits(options.threads):
        for name in chosen:
            found = _CASES[name](setting)
            record.show(found)
            rows += found
    if options.save:
        record.save("network_spectra", rows, began)


def _ntk(setting: Setting) -> list[record.Row]:
    case = cases.ntk(setting.samples)
    truth = relu_ntk(case)

    def error(arrays: Arrays) -> float:
        return float(np.abs(arrays["matrix"] - truth).max() / np.abs(truth).max())

    with gnjax.x64():
        model, x = (jax_models.relu_mlp, jax_models.to_jax(case.weights)), jnp.asarray(case.x)
        whole = _contraction(case, setting)

    def ours() -> jax.Array:
        with gnjax.x64():
            return gnjax.ntk(model, x).as_matrix().block_until_ready()

    seconds, matrix = harness.timed(ours, setting.repeats)
    row = record.Row(_NTK, "gnjax", seconds, error=error({"matrix": np.asarray(matrix)}))
    return [row, whole, _rival(_NTK, "neural-tangents", case, setting, ours, error)]


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


def _contraction(case: Case, setting: Setting) -> record.Row:
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

    seconds, matrix = harness.timed(
        lambda: contract(weights, x).block_until_ready(), setting.repeats
    )
    truth = relu_ntk(cases.first(case, contracted))
    error = float(np.abs(matrix - truth).max() / np.abs(truth).max())
    scale = (setting.samples / contracted) ** 2
    note = f"extrapolated by n^2 from {contracted} samples" if scale > 1 else ""
    scaled = [scale * one for one in seconds]
    return record.Row(_NTK, "full Jacobian, contracted", scaled, error=error, note=note)


def _ggn(setting: Setting, columns: int) -> list[record.Row]:
    name = _GGN if columns == 1 else f"{_GGN}, {columns} vectors at once"
    case = cases.ggn(setting.samples, columns)
    truth = _exact_ggn_product(case)

    def error(arrays: Arrays) -> float:
        return float(np.linalg.norm(arrays["product"][:, 0] - truth) / np.linalg.norm(truth))

    order, statistics = jax_models.order(case.weights), jax_models.to_jax(case.statistics)
    v = jnp.asarray(case.vectors[order].squeeze() if columns == 1 else case.vectors[order])

    def apply(weights: jax_models.Weights, x: jax.Array) -> jax.Array:
        return jax_models.resnet20(weights, statistics, x)

    model, x = (apply, jax_models.to_jax(case.weights)), jnp.asarray(case.x)
    op = gnjax.gauss_newton(model, x, loss="cross_entropy", side="parameters")

    def measured(
        tool: str, multiply: Callable[[jax.Array], jax.Array], note: str = ""
    ) -> record.Row:
        seconds, image = harness.timed(lambda: multiply(v).block_until_ready(), setting.repeats)
        in_case = np.empty_like(case.vectors)
        in_case[order] = np.asarray(image).reshape(-1, columns)
        found = error({"product": in_case})
        return record.Row(name, tool, seconds, error=found, note=note)

    def stored() -> record.Row:
        making, kept = harness.once(lambda: jax.block_until_ready(gnjax.with_jacobian(op)))
        size = sum(array.nbytes for array in jax.tree.leaves(kept.blocks)) / 1e9
        note = f"made once in {making:.0f} s, {size:.1f} GB"
        return measured("gnjax, Jacobian stored before", kept.mv, note)

    product = jax.jit(lambda op, v: op.mv(v))
    rows = [
        measured("gnjax", partial(product, op)),
        measured("gnjax, linearised before", gnjax.linearised(op).mv),
        stored(),
    ]
    rivals = ("curvlinops", "kfac-jax")

    def ours() -> jax.Array:
        return product(op, v).block_until_ready()

    return [*rows, *(_rival(name, rival, case, setting, ours, error) for rival in rivals)]


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


def _hessian(setting: Setting) -> list[record.Row]:
    case = cases.hessian(setting.samples)
    with gnjax.x64():
        matrix = _dense_hessian(case)
        size = len(matrix)
        ends = [size - harness.EIGENVALUES, size - 1]
        truth = scipy.linalg.eigh(matrix, eigvals_only=True, subset_by_index=ends)[::-1]

        def error(values: np.ndarray) -> float:
            return float(np.abs(values - truth).max() / truth[0])

        model, x = (jax_models.tanh_mlp, jax_models.to_jax(case.weights)), jnp.asarray(case.x)
        op = gnjax.hessian(model, x, case.y, loss="cross_entropy")

    def ours() -> gnjax.Spectrum:
        with gnjax.x64():
            return gnjax.eigenvalues(
                op, k=harness.EIGENVALUES, which="largest", rtol=harness.TOLERANCE
            )

    seconds, found = harness.timed(ours, setting.repeats)
    bound = max(found.errors) / truth[0]
    note = f"error bound {bound:.0e}, {found.certificate.brief}, {found.method}"
    rows = [
        record.Row(_HESSIAN, "gnjax", seconds, error=error(np.asarray(found.values)), note=note)
    ]
    for name in ("curvlinops", "matfree", "hessian-eigenthings"):
        residual = _Residual(matrix, truth[0])
        rows.append(
            _rival(
                _HESSIAN,
                name,
                case,
                setting,
                ours,
                lambda arrays: error(arrays["values"]),
                residual,
            )
        )
    return rows


@dataclass(frozen=True)
class _Residual:
    """The largest |H v - lambda v| of the pairs a tool returned, relative to lambda_max."""

    matrix: np.ndarray
    largest: float

    def __call__(self, arrays: Arrays) -> str:
        values, vectors = arrays["values"], arrays["vectors"]
        residuals = np.linalg.norm(self.matrix @ vectors - vectors * values, axis=0)
        return f"residual {residuals.max() / self.largest:.0e}"


def _dense_hessian(case: Case) -> np.ndarray:
    """The Hessian column by column, in the order of the case's flat vector."""
    flat, unravel = ravel_pytree(jax_models.to_jax(case.weights))
    x, y = jnp.asarray(case.x), jnp.asarray(case.y)

    def risk(flat: jax.Array) -> jax.Array:
        return jax_models.cross_entropy(jax_models.tanh_mlp(unravel(flat), x), y)

    def column(v: jax.Array) -> jax.Array:
        return jax.jvp(jax.grad(risk), (flat,), (v,))[1]

    columns = jax.jit(lambda identity: jax.lax.map(column, identity, batch_size=128))
    order = jax_models.order(case.weights)
    matrix = np.empty((flat.size, flat.size))
    matrix[np.ix_(order, order)] = columns(jnp.eye(flat.size))
    return (matrix + matrix.T) / 2


def _dense(setting: Setting) -> list[record.Row]:
    matrix = relu_ntk(cases.ntk(setting.samples))
    with gnjax.x64():
        op = gnjax.dense(matrix)
        seconds, kappa = harness.timed(
            lambda: gnjax.condition_number(op, rtol=_RTOL), setting.repeats
        )
    rival, values = harness.once(lambda: scipy.linalg.eigvalsh(matrix, check_finite=False))
    truth = values[-1] / values[0]
    return [
        record.Row(_KAPPA, "gnjax", seconds, error=abs(kappa.value / truth - 1)),
        record.Row(
            _KAPPA,
            "scipy `eigvalsh`",
            [rival],
            [rival / own for own in seconds],
            note="taken as exact, one run for all pairs",
        ),
    ]


def _rival(
    title: str,
    name: str,
    case: Case,
    setting: Setting,
    ours: Callable[[], Any],
    error: Callable[[Arrays], float],
    describe: Callable[[Arrays], str] = lambda arrays: "",
) -> record.Row:
    """Run a rival in its environment, on gnjax's case and cores, and in turn with ``ours``."""
    reason = install.missing(name)
    if reason is not None:
        return record.Row(title, name, None, note=reason)
    with tempfile.TemporaryDirectory() as folder:
        stored, out = Path(folder, "case.npz"), Path(folder, "out.json")
        case.save(stored)
        module = f"benchmarks.rivals.{name.replace('-', '_')}"
        command = [str(install.interpreter(name)), "-m", module, str(stored), str(out)]
        command += [f"--threads={setting.threads}", f"--repeats={setting.repeats}", "--in-turn"]
        seconds, failure = _in_turn(command, setting.threads, ours)
        if failure is not None:
            return record.Row(title, name, None, note=failure)
        report = json.loads(out.read_text())
        with np.load(out.with_suffix(".npz")) as arrays:
            held = dict(arrays)
    return record.Row(
        title,
        _signed(report),
        report["runs"],
        record.ratios(report["runs"], seconds),
        error(held),
        report["peak_gb"],
        _notes(report, describe(held)),
    )


def _in_turn(
    command: list[str], threads: int, ours: Callable[[], Any]
) -> tuple[list[float], str | None]:
    """The seconds of ``ours``, run before each run of the command, and the command's error if any.

    The error is None if the command succeeds.
    """
    limits = {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    seconds: list[float] = []
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command,
            env={**os.environ, **limits},
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        patience = threading.Timer(_PATIENCE, process.kill)
        patience.daemon = True  # who stops the benchmark does not wait for it
        patience.start()
        for line in process.stdout:
            if line.strip() == harness.TURN:
                seconds.append(harness.once(ours)[0])
                with suppress(BrokenPipeError):  # it was stopped meanwhile
                    print(file=process.stdin, flush=True)
        code, stopped = process.wait(), not patience.is_alive()
        patience.cancel()
        errors.seek(0)
        said = errors.read().splitlines()
    if stopped:
        return seconds, f"stopped after {_PATIENCE:.0f} s"
    return seconds, f"failed: {(said or [f'exit {code}'])[-1]}" if code else None


def _signed(report: dict[str, Any]) -> str:
    """A tool's name and version, as its distribution has them."""
    distribution, version = next(iter(report["versions"].items()))
    return f"{distribution} {version}"


def _notes(report: dict[str, Any], description: str) -> str:
    products = report["products"]
    counted = f"{products} products" if products is not None else ""
    return ", ".join(part for part in (description, counted, report["note"]) if part)


_CASES: dict[str, Callable[[Setting], list[record.Row]]] = {
    "ntk": _ntk,
    "dense": _dense,
    "ggn": lambda s: _ggn(s, 1),
    "ggn_block": lambda s: _ggn(s, 10),
    "hessian": _hessian,
}

if __name__ == "__main__":
    main()
