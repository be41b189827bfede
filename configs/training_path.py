"""Figure 10: kappa and its bound while a three-layer linear network trains, whitened data.

    python -m experiments.training_path --config=configs/training_path.py:laptop

The paper has CIFAR-10 at 3 x 8 x 8, d = 192. With whitened inputs kappa depends on the data through
their rank, the labels and the order of the batches alone. Fashion-MNIST at 14 x 14 has d = 196.

smoke: seconds. laptop: the paper's sizes, 5000 epochs, two minutes on 2 cores. paper: kappa at
more epochs and for ten seeds.
"""

from ml_collections import ConfigDict

from sweeps.config import unknown_profile

PROFILES = ("smoke", "laptop", "paper")

# Appendix D: d = 192, k = 10, m = 500, n = 1000, batches of 256, rate 0.2 for 5000 epochs.
PAPER_RATIOS = (
    ("10", "d/k", 19.2, 19.2),
    ("10", "m/d", 500 / 192, 500 / 192),
    ("10", "n/d", 1000 / 192, 1000 / 192),
    ("10", "batch/n", 0.256, 0.256),
    ("10", "epochs x rate", 1000.0, 1000.0),
)


def get_config(profile: str) -> ConfigDict:
    if profile not in PROFILES:
        raise unknown_profile(profile, PROFILES)
    smoke = profile == "smoke"
    return ConfigDict(
        {
            "paper_ratios": PAPER_RATIOS,
            "data": "fashion_mnist_5000",
            "samples": 100 if smoke else 1000,
            "data_seed": 0,
            "side": 4 if smoke else 14,
            "depth": 3,
            "width": 40 if smoke else 500,
            "starts": ("kaiming_2", "kaiming_1", "pytorch", "xavier"),
            "seeds": {"smoke": 2, "laptop": 3, "paper": 10}[profile],
            "first_seed": 0,
            "epochs": 20 if smoke else 5000,
            "stops": {"smoke": 5, "laptop": 16, "paper": 40}[profile],
            "rtol": 1e-3,
            "dtype": "float32",
            "recipe": {
                "optimizer": "sgd",
                "rate": 0.2,
                "batch": 32 if smoke else 256,
                "loss": "mse",
                "momentum": 0.0,
                "decay": 0.0,
                "drop_after": 0,
                "drop": 1.0,
                "scale": 0.2,  # 2 / k: with k = 10 this is PyTorch's MSELoss, a mean over outputs
            },
        }
    )
