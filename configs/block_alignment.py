"""Figure T7, beyond the papers: the layers' diagonal blocks beside the whole curvature.

    python -m experiments.block_alignment --config=configs/block_alignment.py:laptop

arXiv 2602.00816 compares the Hessian with its blocks in language models of up to 1e11 parameters,
and arXiv 2510.09378 takes Gauss-Newton steps with and without couplings between layers in
transformers of up to 1.5e8; here are 1e3 parameters, so that every angle has an error. Networks,
samples, rate and dampings are those of Figure T3; none was tuned.

smoke: half a minute, most of it compilation. laptop: under a minute of processor time. paper: 2e4
parameters, for a GPU, not timed.
"""

from ml_collections import ConfigDict

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")
DAMPINGS = (0.1, 0.001)


def get_config(profile: str) -> ConfigDict:
    common = {"paper_ratios": PAPER_RATIOS, "first_seed": 0, "dampings": DAMPINGS}
    sizes = {
        "smoke": {
            "gpt": _network(samples=4, outputs=4, length=3, width=4, depth=1),
            "mlp": _network(samples=6, outputs=10, width=4, depth=2),
            "path": _path(0, 3),
            "seeds": 2,
        },
        "laptop": {
            "gpt": _network(samples=24, outputs=7, length=8, width=8, depth=1),
            "mlp": _network(samples=20, outputs=10, width=10, depth=3),
            "path": _path(0, 20, 100),
            "seeds": 4,
        },
        "paper": {
            "gpt": _network(samples=64, outputs=32, length=32, width=34, depth=2),
            "mlp": _network(samples=40, outputs=10, width=24, depth=3),
            "path": _path(0, 20, 100, 500),
            "seeds": 5,
        },
    }
    return ConfigDict(common | sizes[profile])


def _network(length: int = 0, **sizes: int) -> dict[str, int]:
    return sizes | {"length": length}


def _path(*stops: int) -> dict[str, object]:
    return {"rate": 0.01, "stops": stops}
