"""Figure 10: kappa and its bound while a three-layer linear network trains, whitened data.

    python -m experiments.training_path --config=configs/training_path.py:laptop

smoke: seconds. laptop: photograph patches, minutes on 2 cores. paper: CIFAR-10, for a GPU.
"""

from ml_collections import ConfigDict

from sweeps.config import unknown_profile

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    if profile not in PROFILES:
        raise unknown_profile(profile, PROFILES)
    smoke, paper = profile == "smoke", profile == "paper"
    return ConfigDict(
        {
            "paper_ratios": PAPER_RATIOS,
            "data": "cifar10" if paper else "photo_patches",
            "samples": 100 if smoke else 1000,
            "data_seed": 0,
            "side": 2 if smoke else 8,
            "depth": 3,
            "width": 40 if smoke else 500,
            "initializers": ("kaiming_normal", "xavier_normal"),
            "gain": 2.0,
            "seeds": 2 if smoke else 3,
            "epochs": {"smoke": 20, "laptop": 1000, "paper": 5000}[profile],
            "stops": {"smoke": 5, "laptop": 18, "paper": 40}[profile],
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
