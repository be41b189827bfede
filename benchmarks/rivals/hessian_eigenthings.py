"""hessian-eigenthings: Hessian eigenvalues by its Lanczos method with reorthogonalisation."""

from __future__ import annotations

import torch
from hessian_eigenthings import EigenResult, HessianOperator, lanczos, supervised_loss

from benchmarks.rivals import harness, torch_models


def hessian(case: harness.Case, options: harness.Options) -> harness.Answer:
    """The largest eigenvalues, in the fewest steps that reach the residual."""
    torch.set_num_threads(options.threads)
    loss = supervised_loss(torch.nn.CrossEntropyLoss())
    operator = HessianOperator(torch_models.network(case), [torch_models.data(case)], loss)

    def solve(steps: int) -> EigenResult:
        return lanczos(
            operator,
            k=harness.EIGENVALUES,
            max_iter=steps,
            reorthogonalize=True,
            which="LA",
            seed=0,
        )

    def residual(steps: int) -> float:
        found = solve(steps)
        return float(found.residuals.max() / found.eigenvalues.max())

    steps = harness.fewest_steps(residual)
    seconds, found = options.timed(lambda: solve(steps))
    arrays = {"values": found.eigenvalues.numpy(), "vectors": found.eigenvectors.numpy().T}
    return harness.Answer(seconds, arrays, products=steps, note="fewest steps, found beforehand")


if __name__ == "__main__":
    harness.answer("hessian-eigenthings", {"hessian": hessian}, ("torch",))
