"""What arXiv 2402.16788 says of the Hessian's blocks, asked of small networks: figure T2."""

from __future__ import annotations

from collections.abc import Callable

from pandas import DataFrame

from sweeps import effects
from sweeps.claims import Claim, Verdict, elsewhere, not_testable
from sweeps.rows import where

PAPER = "arXiv 2402.16788"
TRANSFORMERS, OTHERS = {"gpt": "GPT", "vit": "ViT"}, {"cnn": "CNN", "mlp": "MLP"}


def _larger(column: str, transformers: dict[str, str]) -> Callable[[DataFrame], Verdict]:
    """Whether the distance of every transformer is above those of the CNN and of the MLP."""

    def check(frame: DataFrame) -> Verdict:
        of = {name: where(frame, panel="distance", network=name) for name in transformers | OTHERS}
        if not all(len(rows) for rows in of.values()):
            return not_testable("a network is missing")
        found = {
            f"{transformers[one]} over {OTHERS[other]}": effects.ratio(of[one], of[other], column)
            for one in transformers
            for other in OTHERS
        }
        return effects.decide(found, "mean distance between blocks,", above=1.0)

    return check


CLAIMS = (
    *(
        Claim(
            "T2",
            f"the spectra of H's blocks differ more in a {title} than in a CNN and an MLP",
            elsewhere(f'{PAPER}, abstract and Figure 3, "block heterogeneity", at initialisation'),
            _larger("distance", {name: title}),
        )
        for name, title in TRANSFORMERS.items()
    ),
    Claim(
        "T2",
        "in transformers the blocks' spectra differ more in shape as well",
        elsewhere(f"{PAPER}, Figure 3, whose spectra are divided by their 10th largest eigenvalue"),
        _larger("distance_shape", TRANSFORMERS),
    ),
)
