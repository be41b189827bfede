"""Figure C4, beyond the papers: what makes the valley of kappa over the pruning rate.

    python -m experiments.pruning_causes --config=configs/pruning_causes.py:laptop

A VGG5 with the printed recipe and the sizes of figure 16, and variants that change one thing each.
smoke: seconds of training, most of it compilation. laptop: 64 images of Fashion-MNIST, about five
minutes of one core. paper: the paper's VGG5 on CIFAR-10, for a GPU.
"""

from ml_collections import ConfigDict

from sweeps.config import unknown_profile

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")
VARIANTS = (
    "printed short_steps no_momentum long_steps no_decay no_drop alike first_norms batch_statistics"
)


def get_config(profile: str) -> ConfigDict:
    if profile not in PROFILES:
        raise unknown_profile(profile, PROFILES)
    recipe = {
        "optimizer": "sgd",
        "rate": 0.1,
        "batch": 16,
        "loss": "cross_entropy",
        "momentum": 0.9,
        "decay": 1e-4,
        "drop_after": 100,
        "drop": 0.1,
        "scale": 1.0,
    }
    common = {
        "paper_ratios": PAPER_RATIOS,
        "variants": VARIANTS,
        "data": "fashion_mnist_5000",
        "data_seed": 0,
        "samples": 64,
        "side": 16,
        "depth": 5,
        "width": 8,
        "rates": (0.0, 0.4, 0.8),
        "seeds": 4,
        "first_seed": 0,
        "epochs": 120,
        "recipe": recipe,
    }
    own = {
        "smoke": {
            "variants": "printed first_norms",
            "samples": 8,
            "width": 2,
            "rates": (0.0, 0.4),
            "seeds": 1,
            "epochs": 1,
            "recipe": recipe | {"batch": 4},
        },
        "laptop": {},
        "paper": {
            "data": "cifar10",
            "samples": 1000,
            "side": 0,
            "width": 32,
            "epochs": 200,
            "recipe": recipe | {"batch": 64},
        },
    }
    return ConfigDict(common | own[profile])
