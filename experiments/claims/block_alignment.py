"""Whether the layers' blocks fail the whole curvature or nearly match it, of small networks: T7.

Two papers are said to disagree. arXiv 2602.00816 prints of the Hessian of language models that its
block-diagonal approximations have "order-one relative error and poor directional alignment". Only
its abstract was at hand, so that the norm and the two halves below are ours: the error is
||A - B||_F / ||A||_F, which is the root mean square of the error of products with Gaussian vectors
over that of the products, of order one from 1/2 on; and alignment is the cosine of the eigenvectors
of the largest eigenvalues, or of the steps, which is poor up to 1/2. arXiv 2510.09378 prints that
Gauss-Newton steps that ignore couplings between layers "nearly match" those that do not. It counts
steps to a loss, as Figure T3 does; asked here of a single step: it gains at least 9/10 of what the
whole step gains of the quadratic model, each at its best length.
"""

from __future__ import annotations

from typing import Any

from sweeps.claims import BEYOND, Claim, Source, elsewhere
from sweeps.comparisons import Compare

FAILING, MATCHING = "arXiv 2602.00816", "arXiv 2510.09378"
TITLES = {"gpt": "GPT", "mlp": "MLP"}
LARGE, POOR, NEARLY = 0.5, 0.5, 0.9  # numbers of our own
DAMPINGS = (0.1, 0.001)  # shares of the mean eigenvalue of G
_OF_STEPS = (
    "every layer makes the whole correction by itself: the best multiple of the blocks' step is"
    " 0.14 at the start, with 11 layers (0.38 to 0.43 with the MLP's 3), and no multiple of it is"
    " the whole step; after 100 steps the share is {}"
)
MECHANISMS = {
    "GPT: the top eigenvectors of H and of its layers' blocks have a cosine below 1/2": "one layer"
    " has 0.45 of the top eigenvector's squared length after 20 steps, and 0.33 at the start",
    "GPT: at damping 0.1 the blocks' step gains at least 9/10 of the step of G": _OF_STEPS.format(
        "0.79 (0.58, 1)"
    ),
    "GPT: at damping 0.001 the blocks' step gains at least 9/10 of the step of G": _OF_STEPS.format(
        "0.84 (0.75, 0.93)"
    ),
    "MLP: at damping 0.1 the steps of G and of its blocks have a cosine below 1/2": "so much"
    " damping turns both steps towards the gradient, with cosines of 0.37 and 0.45 at the start;"
    " with a hundredth of it these are 0.10 and 0.12, and that of the steps is 0.40 (0.30, 0.51)",
}


def _everywhere(panel: str, name: str, wanted: dict[str, object], **side: Any) -> Compare:
    """Whether the mean over the seeds lies on a side at every stop of the run."""
    return Compare(
        "value",
        {"panel": panel, **wanted},
        geometric=False,
        each="step",
        at="after {step} steps",
        name=name,
        missing="no such comparison in the table",
        **side,
    )


def _claim(network: str, statement: str, source: Source, check: Compare) -> Claim:
    """A claim of a paper, which is about transformers, and the same question about an MLP."""
    words = f"{TITLES[network]}: {statement}"
    own = source if network == "gpt" else BEYOND
    return Claim("T7", words, own, check, mechanism=MECHANISMS.get(words, ""))


def _of_curvature(network: str, matrix: str) -> tuple[Claim, ...]:
    wanted: dict[str, object] = {"network": network, "matrix": matrix}
    printed = matrix == "H"
    error, alignment = (
        elsewhere(f'{FAILING}, abstract, "{words}"; {ours}') if printed else BEYOND
        for words, ours in (
            ("order-one relative error", "the norm and the half are ours"),
            ("poor directional alignment", "the vectors and the half are ours"),
        )
    )
    return (
        _claim(
            network,
            f"without its layers' blocks {matrix} is at least half of it in Frobenius' norm",
            error,
            _everywhere("error", f"relative error of the blocks of {matrix}", wanted, above=LARGE),
        ),
        _claim(
            network,
            f"the top eigenvectors of {matrix} and of its layers' blocks have a cosine below 1/2",
            alignment,
            _everywhere(
                "eigenvector", f"cosine of top eigenvectors of {matrix}", wanted, below=POOR
            ),
        ),
    )


def _of_steps(network: str, damping: float) -> tuple[Claim, ...]:
    wanted: dict[str, object] = {"network": network, "matrix": "G", "damping": damping}
    matching = elsewhere(f'{MATCHING}, abstract, "nearly matches"; one step and 9/10 are ours')
    return (
        _claim(
            network,
            f"at damping {damping:g} the steps of G and of its blocks have a cosine below 1/2",
            BEYOND,
            _everywhere("step", "cosine of the steps", wanted, below=POOR),
        ),
        _claim(
            network,
            f"at damping {damping:g} the blocks' step gains at least 9/10 of the step of G",
            matching,
            _everywhere("decrease", "share of the decrease", wanted, above=NEARLY),
        ),
    )


CLAIMS = (
    *(claim for network in TITLES for matrix in "HG" for claim in _of_curvature(network, matrix)),
    *(claim for network in TITLES for damping in DAMPINGS for claim in _of_steps(network, damping)),
)
