"""Figure T3, beyond the papers: kappa of G in the metrics of optimisers, and a race between them.

    python -m experiments.optimizer_metrics --config=configs/optimizer_metrics.py:laptop

The claims are of arXiv 2510.09378, which has transformers of up to 1.5e8 parameters, batches that
are never seen twice, and SOAP and Muon as baselines; here are 1e3 parameters, full batches, and
Adam and Shampoo. The regimes are ours: more parameters than outputs (p > k n) for the GPT and the
MLP on few images, fewer for the MLP on many. All grids are round numbers and the same for every
metric.
"""

from ml_collections import ConfigDict

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")
RATES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
DAMPINGS = (10.0, 1.0, 0.1, 0.01, 0.001)
SHOWN = (0.1, 0.001)


def get_config(profile: str) -> ConfigDict:
    common = {"paper_ratios": PAPER_RATIOS, "first_seed": 0}
    sizes = {
        "smoke": {
            "gpt": _network(samples=4, outputs=4, length=3, width=4, depth=1),
            "mlp": _network(samples=6, outputs=10, width=4, depth=2),
            "mlp_many": _network(samples=20, outputs=10, width=4, depth=2),
            "race": _race(target=0.5, rates=(1.0, 0.1, 0.01), dampings=(0.1, 0.01), limit=20),
            "path": _path(stops=(0, 3), damping=0.1, dampings=(0.1, 0.01)),
            "seeds": 2,
        },
        "laptop": {
            "gpt": _network(samples=24, outputs=7, length=8, width=8, depth=1),
            "mlp": _network(samples=20, outputs=10, width=10, depth=3),
            "mlp_many": _network(samples=80, outputs=10, width=10, depth=3),
            "race": _race(target=0.1, rates=RATES, dampings=DAMPINGS, limit=1000),
            "path": _path(stops=(0, 20, 100), damping=0.1, dampings=SHOWN),
            "seeds": 4,
        },
        "paper": {
            "gpt": _network(samples=64, outputs=32, length=32, width=34, depth=2),
            "mlp": _network(samples=40, outputs=10, width=24, depth=3),
            "mlp_many": _network(samples=240, outputs=10, width=24, depth=3),
            "race": _race(target=0.1, rates=RATES, dampings=DAMPINGS, limit=3000),
            "path": _path(stops=(0, 20, 100, 500), damping=0.1, dampings=SHOWN),
            "seeds": 5,
        },
    }
    return ConfigDict(common | sizes[profile])


def _network(length: int = 0, **sizes: int) -> dict[str, int]:
    return sizes | {"length": length}


def _race(**settings: object) -> dict[str, object]:
    return settings | {"momentum": 0.9}


def _path(**settings: object) -> dict[str, object]:
    return settings | {"rate": 0.01}
