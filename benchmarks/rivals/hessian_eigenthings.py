"""hessian-eigenthings: eigenvalues by its Lanczos method with reorthogonalisation."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from hessian_eigenthings import (
    EigenResult,
    GGNOperator,
    HessianOperator,
    lanczos,
    supervised_forward,
    supervised_loss,
    supervised_loss_of_output,
)
from torch.nn import functional

from benchmarks import gpt, harness
from benchmarks.rivals import public_modules, torch_models


def _largest(operator: Any, steps: int) -> EigenResult:
    options = {"k": harness.EIGENVALUES, "max_iter": steps, "which": "LA", "seed": 0}
    return lanczos(operator, reorthogonalize=True, **options)


def _residual(found: EigenResult) -> float:
    return float(found.residuals.max() / found.eigenvalues.max())


def _hessian(model: torch.nn.Module, data: Any) -> tuple[Callable[[], EigenResult], int]:
    """Finds the largest eigenvalues in the fewest steps that reach the residual, and these."""
    loss = supervised_loss(torch.nn.CrossEntropyLoss())
    operator = HessianOperator(model, [data], loss)
    steps = harness.fewest_steps(lambda steps: _residual(_largest(operator, steps)))
    return partial(_largest, operator, steps), steps


def hessian(case: harness.Case, repeats: int) -> dict[str, Any]:
    solve, steps = _hessian(torch_models.network(case), torch_models.data(case))
    runs, found = harness.in_turn(solve, repeats)
    return {
        "tool": harness.signed("hessian-eigenthings"),
        "runs": runs,
        "values": found.eigenvalues.numpy(),
        "vectors": found.eigenvectors.numpy().T,
        "products": steps,
        "note": "fewest steps, found beforehand",
    }


def module(name: str, task: str, repeats: int) -> dict[str, Any]:
    return public_modules.answer(_solver, name, task, repeats)


def _solver(case: public_modules.Case, task: str) -> Callable[[], harness.Arrays]:
    if task != "hessian":
        msg = "it has eigenvalues, traces and densities of whole matrices"
        raise harness.NoAnswerError(msg)
    data = (torch.from_numpy(case.x), torch.from_numpy(case.y).flatten())
    solve, _ = _hessian(public_modules.Logits(case.module), data)
    return lambda: {"values": solve().eigenvalues.numpy()}


def language_model(tokens: int, steps: int) -> dict[str, Any]:
    """The largest Gauss-Newton eigenvalues of :mod:`benchmarks.gpt`, in so many steps."""
    shape = gpt.Shape()
    model = torch_models.GPT(shape, gpt.weights(shape)).eval()
    batch = tuple(torch.from_numpy(part) for part in gpt.text(shape, tokens))
    began = time.perf_counter()
    loss = supervised_loss_of_output(functional.cross_entropy)
    operator = GGNOperator(model, [batch], supervised_forward, loss)
    found = _largest(operator, steps)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "parameters": operator.size, "residual": _residual(found)}
