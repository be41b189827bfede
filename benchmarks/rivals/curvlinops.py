"""curvlinops: Gauss-Newton products, and Hessian eigenvalues through scipy's ARPACK."""

from __future__ import annotations

import numpy as np
import scipy.sparse.linalg
import torch
from curvlinops import GGNLinearOperator, HessianLinearOperator

from benchmarks.rivals import harness, torch_models

_BATCHES = (1000, 250, 50)
_BASIS = 40


def ggn(case: harness.Case, options: harness.Options) -> harness.Answer:
    """G V for the block of the case, in the batches that are fastest."""
    torch.set_num_threads(options.threads)
    model = torch_models.network(case)
    block = torch.from_numpy(case.vectors)
    block = block.squeeze(1) if block.shape[1] == 1 else block
    operators = {batch: _ggn(model, case, batch) for batch in _batches(case)}
    batch = min(operators, key=lambda batch: harness.timed(lambda: operators[batch] @ block, 1)[0])
    operator = operators[batch]
    seconds, product = options.timed(lambda: operator @ block)
    arrays = {"product": product.reshape(len(block), -1).numpy()}
    return harness.Answer(seconds, arrays, note=f"batches of {batch}")


def _batches(case: harness.Case) -> list[int]:
    return sorted({min(batch, len(case.x)) for batch in _BATCHES})


def _ggn(model: torch.nn.Module, case: harness.Case, batch: int) -> GGNLinearOperator:
    x, y = torch_models.data(case)
    batches = list(zip(x.split(batch), y.split(batch), strict=True))
    return GGNLinearOperator(
        model,
        torch.nn.CrossEntropyLoss(),
        list(model.parameters()),
        batches,
        check_deterministic=False,
    )


def hessian(case: harness.Case, options: harness.Options) -> harness.Answer:
    """The largest eigenvalues by ARPACK, which stops at residuals of tol |lambda|."""
    torch.set_num_threads(options.threads)
    model = torch_models.network(case)
    operator = HessianLinearOperator(
        model,
        torch.nn.CrossEntropyLoss(),
        list(model.parameters()),
        [torch_models.data(case)],
        check_deterministic=False,
    )
    product = operator.to_scipy()
    start = np.random.default_rng(0).standard_normal(product.shape[0])
    calls = 0

    def counted(v: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        return product @ v.ravel()

    def solve() -> tuple[np.ndarray, np.ndarray]:
        nonlocal calls
        calls = 0
        linear = scipy.sparse.linalg.LinearOperator(product.shape, counted, dtype=np.float64)
        return scipy.sparse.linalg.eigsh(
            linear, harness.EIGENVALUES, which="LA", tol=harness.TOLERANCE, ncv=_BASIS, v0=start
        )

    seconds, (values, vectors) = options.timed(solve)
    order = np.argsort(-values)
    arrays = {"values": values[order], "vectors": vectors[:, order]}
    return harness.Answer(seconds, arrays, products=calls, note=f"ARPACK, ncv {_BASIS}")


if __name__ == "__main__":
    harness.answer("curvlinops-for-pytorch", {"ggn": ggn, "hessian": hessian}, ("torch", "scipy"))
