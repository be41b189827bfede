"""One tool on one task of one public module, in a process of its own.

    python -m benchmarks.rivals.torch_tools MODEL TASK TOOL OUT.json [--threads=2] [--repeats=3]

It leaves in OUT the seconds of the first answer, which compiles, and of those after it, and beside
it the numbers in an .npz file. ``torch.func`` is the reference: J by reverse mode, and products
with the Hessian.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.func import functional_call, grad, jvp, vjp, vmap

from benchmarks.rivals import harness, public_modules
from benchmarks.rivals.public_modules import Case, Logits

Solve = Callable[[], dict[str, np.ndarray]]
_MOST_ROWS = 6_000  # parameters of a matrix that is formed by products
_CHUNK = 64  # outputs at a time in reverse mode
_BASIS = 4e9  # bytes of a Krylov basis: 40 vectors of ResNet18, as ARPACK has for curvlinops


class NotOfferedError(Exception):
    """A tool does not do a task, or not at this size."""


def gnjax_tool(case: Case, task: str) -> Solve:
    import gnjax

    gnjax.enable_x64()
    models: list[Any] = []  # made with the first answer

    def solve() -> dict[str, np.ndarray]:
        models[:] = models or [gnjax.from_torch(case.module)]
        options: dict[str, Any] = {"y": case.y, "loss": "cross_entropy"}
        op: Any
        if task == "hessian":
            op = gnjax.hessian(models[0], case.x, **options)
            roomy = gnjax.Limits(basis_bytes=_BASIS)
            found = gnjax.eigenvalues(op, k=harness.EIGENVALUES, limits=roomy)
            return {"values": found.values, "errors": found.errors}
        if task == "kappa":
            op = gnjax.gauss_newton(models[0], case.x, side="outputs", **options)
            kappa = gnjax.condition_number(op)
            value = kappa.value if kappa.resolved or kappa.at_rank is None else kappa.at_rank[0]
            return {"kappa": np.array(value), "rank": np.array(kappa.rank)}
        spectra = gnjax.block_spectra(models[0], case.x, **options)
        return {block.name: _nonzero(block.spectrum.values) for block in spectra.blocks}

    return solve


def curvlinops_tool(case: Case, task: str) -> Solve:
    import scipy.sparse.linalg
    from curvlinops import GGNLinearOperator, HessianLinearOperator

    model = Logits(case.module)
    data = [(torch.from_numpy(case.x), torch.from_numpy(case.y).flatten())]

    def operator(kind: Any, parameters: list[Any]) -> Any:
        """An operator whose ``num_data`` counts inputs, each of which may have many labels."""
        loss = torch.nn.CrossEntropyLoss()
        return kind(model, loss, parameters, data, check_deterministic=False, num_data=len(case.x))

    def formed(parameters: list[Any]) -> np.ndarray:
        """The eigenvalues of G's block of these parameters, formed by products."""
        size = sum(p.numel() for p in parameters)
        if size > _MOST_ROWS:
            msg = f"a block of {size:,} parameters is formed by as many products"
            raise NotOfferedError(msg)
        matrix = (operator(GGNLinearOperator, parameters) @ torch.eye(size).double()).numpy()
        return np.linalg.eigvalsh((matrix + matrix.T) / 2)[::-1]

    def solve() -> dict[str, np.ndarray]:
        if task == "hessian":
            product = operator(HessianLinearOperator, list(model.parameters())).to_scipy()
            found = scipy.sparse.linalg.eigsh(
                product, harness.EIGENVALUES, which="LA", tol=harness.TOLERANCE, ncv=40
            )
            return {"values": np.sort(found[0])[::-1]}
        if task == "kappa":
            msg = "kappa needs the smallest eigenvalue that is not zero, and products find none"
            raise NotOfferedError(msg)
        parts = blocks(case.module)
        return {name: _nonzero(formed([p for _, p in part])) for name, part in parts.items()}

    return solve


def eigenthings_tool(case: Case, task: str) -> Solve:
    if task != "hessian":
        msg = "it has eigenvalues, traces and densities of whole matrices"
        raise NotOfferedError(msg)
    from hessian_eigenthings import HessianOperator, lanczos, supervised_loss

    data = [(torch.from_numpy(case.x), torch.from_numpy(case.y).flatten())]
    loss = supervised_loss(torch.nn.CrossEntropyLoss())
    operator = HessianOperator(Logits(case.module), data, loss)

    def run(steps: int) -> Any:
        options = {"k": harness.EIGENVALUES, "max_iter": steps, "which": "LA", "seed": 0}
        return lanczos(operator, reorthogonalize=True, **options)

    def residual(steps: int) -> float:
        found = run(steps)
        return float(found.residuals.max() / found.eigenvalues.max())

    steps = harness.fewest_steps(residual)
    return lambda: {"values": run(steps).eigenvalues.numpy()}


def reference_tool(case: Case, task: str) -> Solve:
    """The eigenvalues of G that are not zero, those of its blocks, or the Hessian's by ARPACK."""
    if task == "hessian":
        return lambda: {"values": _hessian_eigenvalues(case)}
    return lambda: {
        name: _squares([part for _, part in columns]) for name, columns in _root_blocks(case, task)
    }


def _root_blocks(case: Case, task: str) -> Iterator[tuple[str, list[tuple[str, np.ndarray]]]]:
    """R with G = R^T R, by columns: all of them, or those of each layer."""
    root = _root(case)
    if task == "kappa":
        yield "all", list(root.items())
        return
    for name, part in blocks(case.module).items():
        yield name, [(path, root[path]) for path, _ in part]


def _squares(columns: list[np.ndarray]) -> np.ndarray:
    return _nonzero(np.linalg.svd(np.concatenate(columns, axis=1), compute_uv=False) ** 2)


def _root(case: Case) -> dict[str, np.ndarray]:
    """Rows (diag(s) - s s^T)^{1/2} J / n^{1/2} for the softmax s of each output."""
    model = Logits(case.module)
    names = {f"module.{name}": p.detach() for name, p in case.module.named_parameters()}
    x = torch.from_numpy(case.x)
    outputs, pull = vjp(lambda p: functional_call(model, p, (x,)), names)
    count, classes = outputs.shape
    share = outputs.softmax(-1)
    rows = torch.zeros(count, classes, count, classes, dtype=outputs.dtype)
    middle = torch.diag_embed(share) - share[:, :, None] * share[:, None, :]
    values, vectors = torch.linalg.eigh(middle)
    half = vectors * values.clamp(min=0).sqrt()[:, None, :]
    rows[torch.arange(count), :, torch.arange(count), :] = half.transpose(1, 2)
    flat = rows.flatten(0, 1) / count**0.5
    found = vmap(pull, chunk_size=_CHUNK)(flat)[0]
    return {name.removeprefix("module."): p.flatten(1).numpy() for name, p in found.items()}


def _hessian_eigenvalues(case: Case) -> np.ndarray:
    """The largest ones by ARPACK, to the last digits, with products of torch.func."""
    import scipy.sparse.linalg

    model, x = Logits(case.module), torch.from_numpy(case.x)
    y = torch.from_numpy(case.y).flatten()
    names = {f"module.{name}": p.detach() for name, p in case.module.named_parameters()}
    sizes = [p.numel() for p in names.values()]

    def loss(parameters: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(functional_call(model, parameters, (x,)), y)

    def product(v: np.ndarray) -> np.ndarray:
        parts = torch.from_numpy(v.ravel().copy()).split(sizes)
        pairs = zip(names.items(), parts, strict=True)
        tangents = {name: part.view_as(p) for (name, p), part in pairs}
        _, image = jvp(grad(loss), (names,), (tangents,))
        return torch.cat([part.flatten() for part in image.values()]).numpy()

    whole = scipy.sparse.linalg.LinearOperator((sum(sizes),) * 2, product, dtype=np.float64)
    found = scipy.sparse.linalg.eigsh(whole, harness.EIGENVALUES, which="LA", tol=1e-11, ncv=40)
    return np.sort(found[0])[::-1]


def blocks(module: torch.nn.Module) -> dict[str, list[tuple[str, torch.Tensor]]]:
    """The parameters of each layer under its name in gnjax, its path with slashes."""
    found: dict[str, list[tuple[str, torch.Tensor]]] = {}
    for path, parameter in module.named_parameters():
        found.setdefault(path.rpartition(".")[0].replace(".", "/"), []).append((path, parameter))
    return found


def _nonzero(values: np.ndarray) -> np.ndarray:
    """From the largest down, without those below 1e-13 of it."""
    values = np.sort(np.asarray(values))[::-1]
    return values[values > 1e-13 * values[0]]


TOOLS: dict[str, tuple[Callable[[Case, str], Solve], tuple[str, ...]]] = {
    "gnjax": (gnjax_tool, ("jax", "torch")),
    "curvlinops": (curvlinops_tool, ("curvlinops-for-pytorch", "torch")),
    "hessian-eigenthings": (eigenthings_tool, ("hessian-eigenthings", "torch")),
    "torch.func": (reference_tool, ("torch",)),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=public_modules.CASES)
    parser.add_argument("task", choices=("kappa", "hessian", "blocks"))
    parser.add_argument("tool", choices=TOOLS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    harness.limit_cores(options.threads)
    torch.set_num_threads(options.threads)
    case = public_modules.made(options.model)
    make, packages = TOOLS[options.tool]
    try:
        solve = make(case, options.task)
        first, found = harness.once(solve)
    except NotOfferedError as reason:
        options.out.write_text(json.dumps({"refused": str(reason)}))
        return
    again = [harness.once(solve)[0] for _ in range(options.repeats)]
    np.savez(options.out.with_suffix(".npz"), **found)
    report = {
        "first": first,
        "again": again,
        "peak_gb": harness.peak_bytes() / 1e9,
        "parameters": sum(p.numel() for p in case.module.parameters()),
        "versions": {name: harness.version(name) for name in packages},
    }
    options.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
