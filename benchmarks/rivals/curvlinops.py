"""curvlinops: Gauss-Newton products, and Hessian eigenvalues through scipy's ARPACK."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse.linalg
import torch
from curvlinops import (
    CGInverseLinearOperator,
    GGNLinearOperator,
    HessianLinearOperator,
)
from curvlinops.examples import IdentityLinearOperator

from benchmarks import harness
from benchmarks.rivals import public_modules, torch_models

_BATCHES = (1000, 250, 50)
_BASIS = 40
_STEPS = 2_000  # of conjugate gradients at most
_TINY = 1e-30
_MOST_ROWS = 6_000  # parameters of a matrix that is formed by products


def _operator(kind: Any, model: torch.nn.Module, parameters: Any, data: Any, **more: Any) -> Any:
    loss = torch.nn.CrossEntropyLoss()
    return kind(model, loss, list(parameters), data, check_deterministic=False, **more)


def ggn(case: harness.Case, repeats: int) -> dict[str, Any]:
    """G V for the block of the case, in the batches that are fastest."""
    model = torch_models.network(case)
    x, y = torch_models.data(case)
    block = torch.from_numpy(case.vectors)
    block = block.squeeze(1) if block.shape[1] == 1 else block
    operators = {}
    for batch in sorted({min(batch, len(x)) for batch in _BATCHES}):
        batches = list(zip(x.split(batch), y.split(batch), strict=True))
        operators[batch] = _operator(GGNLinearOperator, model, model.parameters(), batches)
    batch = min(operators, key=lambda batch: harness.timed(lambda: operators[batch] @ block, 1)[0])
    runs, product = harness.in_turn(lambda: operators[batch] @ block, repeats)
    product = product.reshape(len(block), -1).numpy()
    return {"tool": _signed(), "runs": runs, "product": product, "note": f"batches of {batch}"}


def _signed() -> str:
    return harness.signed("curvlinops-for-pytorch")


def hessian(case: harness.Case, repeats: int) -> dict[str, Any]:
    """The largest eigenvalues by ARPACK."""
    model = torch_models.network(case)
    data = [torch_models.data(case)]
    operator = _operator(HessianLinearOperator, model, model.parameters(), data)
    runs, found = harness.in_turn(lambda: _largest(operator), repeats)
    return {"tool": _signed(), "runs": runs, "note": f"ARPACK, ncv {_BASIS}", **found}


def _largest(operator: Any) -> dict[str, Any]:
    """ARPACK stops at residuals of tol |lambda|."""
    product, calls = operator.to_scipy(), [0]

    def counted(v: np.ndarray) -> np.ndarray:
        calls[0] += 1
        return product @ v.ravel()

    linear = scipy.sparse.linalg.LinearOperator(product.shape, counted, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(product.shape[0])
    options = {"which": "LA", "tol": harness.TOLERANCE, "ncv": _BASIS, "v0": start}
    values, vectors = scipy.sparse.linalg.eigsh(linear, harness.EIGENVALUES, **options)
    order = np.argsort(-values)
    return {"values": values[order], "vectors": vectors[:, order], "products": calls[0]}


def solve(case: harness.Case, repeats: int) -> dict[str, Any]:
    """x with (N G + I) x = b by conjugate gradients."""
    model = torch_models.network(case)
    x, y = torch_models.data(case)
    ggn = _operator(GGNLinearOperator, model, model.parameters(), [(x, y)])
    matrix = len(x) * ggn + IdentityLinearOperator(
        [p.shape for p in model.parameters()], torch.device("cpu"), torch.float64
    )
    # With its usual eps of 1e-10, below which it takes v^T A v for zero, it ends at 1e-5.
    options = {"eps": _TINY, "stop_updating_after": _TINY, "max_iter": _STEPS}
    inverse = CGInverseLinearOperator(matrix, tolerance=harness.RESIDUAL, **options)
    right = torch.from_numpy(case.vectors[:, 0])
    runs, found = harness.in_turn(lambda: inverse @ right, repeats, time.process_time)
    note = "conjugate gradients"
    return {"tool": _signed(), "runs": runs, "solution": found.detach().numpy(), "note": note}


def module(name: str, task: str, repeats: int) -> dict[str, Any]:
    return public_modules.answer(_solver, name, task, repeats)


def _solver(case: public_modules.Case, task: str) -> Callable[[], harness.Arrays]:
    """Hessian eigenvalues by ARPACK, or those of G's blocks, each formed by products."""
    if task == "kappa":
        msg = "kappa needs the smallest eigenvalue that is not zero, and products find none"
        raise harness.NoAnswerError(msg)
    model = public_modules.Logits(case.module)
    data = [(torch.from_numpy(case.x), torch.from_numpy(case.y).flatten())]
    counted = {"num_data": len(case.x)}  # inputs, each of which may have many labels
    if task == "hessian":
        options = (HessianLinearOperator, model, model.parameters(), data)
        return lambda: {"values": _largest(_operator(*options, **counted))["values"]}

    def formed(parameters: list[torch.Tensor]) -> np.ndarray:
        size = sum(p.numel() for p in parameters)
        if size > _MOST_ROWS:
            msg = f"a block of {size:,} parameters is formed by as many products"
            raise harness.NoAnswerError(msg)
        operator = _operator(GGNLinearOperator, model, parameters, data, **counted)
        matrix = (operator @ torch.eye(size).double()).numpy()
        return public_modules.nonzero(np.linalg.eigvalsh((matrix + matrix.T) / 2))

    parts = public_modules.blocks(case.module)
    return lambda: {path: formed([p for _, p in part]) for path, part in parts.items()}
