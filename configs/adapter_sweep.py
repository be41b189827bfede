"""Figure T6, beyond the papers: kappa over p / (k n) for pruning, width and low-rank adapters.

    python -m experiments.adapter_sweep --config=configs/adapter_sweep.py:laptop

Adapters are those of arXiv 2106.09685 at every matrix; the regime is ours.

smoke: under a minute, most of it compilation. laptop: a minute and a half on 2 cores. paper: 128
samples and width 64, for a GPU, not timed.
"""

from ml_collections import ConfigDict

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    common = {
        "paper_ratios": PAPER_RATIOS,
        "data": "digits",
        "data_seed": 0,
        "outputs": 10,
        "first_seed": 0,
        "adam_rate": 0.01,
        "rates": (0.0, 0.5, 0.8, 0.9),
    }
    sizes = {
        "smoke": {
            "samples": 6,
            "length": 4,
            "gpt": _network(6, 1, (4,)),
            "mlp": _network(12, 3, (8,)),
            "rates": (0.0, 0.5),
            "ranks": (1, 3),
            "steps": 3,
            "seeds": 2,
        },
        "laptop": {
            "samples": 40,
            "length": 8,
            "gpt": _network(16, 2, (8, 10, 12)),
            "mlp": _network(40, 3, (12, 20, 28)),
            "ranks": (1, 2, 4, 8),
            "steps": 20,
            "seeds": 4,
        },
        "paper": {
            "samples": 128,
            "length": 32,
            "gpt": _network(64, 4, (16, 24, 32, 48)),
            "mlp": _network(128, 3, (32, 48, 64, 96)),
            "ranks": (1, 2, 4, 8, 16),
            "steps": 100,
            "seeds": 5,
        },
    }
    return ConfigDict(common | sizes[profile])


def _network(width: int, depth: int, widths: tuple[int, ...]) -> dict[str, object]:
    return {"width": width, "depth": depth, "widths": (*widths, width)}
