"""Figure T4, beyond the papers: blocks of G by class and by token, over their frequencies.

    python -m experiments.class_blocks --config=configs/class_blocks.py:laptop

The claims are of arXiv 2402.19449, whose text has 50,257 tokens; ours has 32 characters, whose
frequencies span a factor of 40, and the regime is ours. The rates are round numbers at which both
optimisers are stable; none was tuned.

smoke: under a minute, most of it compilation. laptop: a minute on 2 cores. paper: all 103
characters and a GPT of width 64, for a GPU, not timed.
"""

from ml_collections import ConfigDict

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    common = {"paper_ratios": PAPER_RATIOS, "first_seed": 0}
    sizes = {
        "smoke": _sizes(outputs=6, length=4, samples=20, width=4, depth=1, seeds=2, steps=20),
        "laptop": _sizes(outputs=32, length=8, samples=96, width=16, depth=1, seeds=5, steps=300),
        "paper": _sizes(
            outputs=102, length=64, samples=256, width=64, depth=4, seeds=5, steps=3000
        ),
    }
    return ConfigDict(common | sizes[profile])


def _sizes(steps: int, **sizes: int) -> dict[str, object]:
    rates = {"linear": (5.0, 0.05), "gpt": (0.3, 0.01)}
    return sizes | {
        name: {"steps": steps, "descent_rate": descent, "adam_rate": adam}
        for name, (descent, adam) in rates.items()
    }
