"""Figure T2, beyond the papers: spectra of the Hessian's blocks of four small networks.

    python -m experiments.block_heterogeneity --config=configs/block_heterogeneity.py:laptop

The claim is of arXiv 2402.16788, which has networks of 1e7 to 1e9 parameters and measures blocks by
stochastic Lanczos; here H is formed, and the regime, 1e3 parameters, is ours.

smoke: under a minute, most of it compilation. laptop: two minutes on 2 cores, most of it
compilation. paper: 1e4 parameters, for a GPU, not timed.
"""

from ml_collections import ConfigDict

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    common = {"paper_ratios": PAPER_RATIOS, "data_seed": 0, "first_seed": 0}
    sizes = {
        "smoke": {
            "data": "digits",
            "side": 8,
            "outputs": 5,
            "length": 4,
            "samples": 6,
            "gpt": _size(4, 1),
            "vit": _size(4, 1),
            "cnn": _size(3, 2),
            "mlp": _size(5, 2),
            "seeds": 2,
        },
        "laptop": {
            "data": "digits",
            "side": 8,
            "outputs": 10,
            "length": 8,
            "samples": 48,
            "gpt": _size(8, 2),
            "vit": _size(8, 2),
            "cnn": _size(8, 3),
            "mlp": _size(12, 4),
            "seeds": 5,
        },
        "paper": {
            "data": "fashion_mnist_5000",
            "side": 14,
            "outputs": 32,
            "length": 32,
            "samples": 256,
            "gpt": _size(16, 4),
            "vit": _size(16, 4),
            "cnn": _size(20, 4),
            "mlp": _size(32, 5),
            "seeds": 5,
        },
    }
    return ConfigDict(common | sizes[profile])


def _size(width: int, depth: int) -> dict[str, int]:
    return {"width": width, "depth": depth}
