"""Figure T5, beyond the papers: sharpness along training, its edge of stability, and warm-up.

    python -m experiments.edge_of_stability --config=configs/edge_of_stability.py:laptop

The claims are of arXiv 2103.00065, 2207.14484 and 2406.09405, whose networks are larger; the regime
is ours. The rates are round numbers. Those of the MLP are small enough for its sharpness to start
below the threshold; those of the GPT span a decade, up to where Adam trains worse.

smoke: a minute, nearly all of it compilation. laptop: two minutes on one core, and one more where
two others are busy. paper: all 5000 images, an MLP of width 200 and a GPT of width 64, for a GPU,
not timed.
"""

from ml_collections import ConfigDict

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")
RATES = {"mlp_descent": (0.1, 0.2), "mlp_adam": (1e-3, 3e-3), "gpt_adam": (0.01, 0.03, 0.1)}


def get_config(profile: str) -> ConfigDict:
    common = {"paper_ratios": PAPER_RATIOS, "first_seed": 0}
    sizes = {
        "smoke": {
            "mlp": _network(samples=20, outputs=10, width=8, depth=2),
            "gpt": _network(samples=8, outputs=6, length=4, width=4, depth=1),
            **_runs(descent=(60, 20), adam=(60, 20), gpt=(60, 20), warmup=20),
            "seeds": 2,
        },
        "laptop": {
            "mlp": _network(samples=300, outputs=10, width=64, depth=3),
            "gpt": _network(samples=32, outputs=32, length=12, width=16, depth=1),
            **_runs(descent=(4000, 200), adam=(3000, 100), gpt=(300, 20), warmup=100),
            "seeds": 4,
        },
        "paper": {
            "mlp": _network(samples=5000, outputs=10, width=200, depth=3),
            "gpt": _network(samples=256, outputs=102, length=64, width=64, depth=4),
            **_runs(descent=(10000, 200), adam=(10000, 200), gpt=(3000, 100), warmup=500),
            "seeds": 4,
        },
    }
    return ConfigDict(common | sizes[profile])


def _network(length: int = 0, **sizes: int) -> dict[str, int]:
    return sizes | {"length": length}


def _runs(
    descent: tuple[int, int], adam: tuple[int, int], gpt: tuple[int, int], warmup: int
) -> dict[str, object]:
    """The runs of each network and optimiser; a pair has the steps, and those between two rows."""
    lengths = {"mlp_descent": descent, "mlp_adam": adam, "gpt_adam": gpt}
    return {
        name: {
            "rates": RATES[name],
            "warmups": (0, warmup) if name == "gpt_adam" else (0,),
            "steps": steps,
            "every": every,
        }
        for name, (steps, every) in lengths.items()
    }
