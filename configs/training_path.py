"""Figure 10: kappa and its bounds while a three-layer linear network trains, whitened data.

    python -m experiments.training_path --config=configs/training_path.py:laptop

The paper has CIFAR-10 at 3 x 8 x 8, d = 192. Its published code takes the first 1000 images, every
fourth pixel, whitens them to U V^T, so that X^T X = I, draws weights by Xavier and takes batches as
they stand. Which values the pixels have does not stand there: less the mean of each colour, and in
[0, 1] as they are, are two readings. Two more have Sigma = I. kappa depends on the data through
their rank, the labels and the scale of the inputs.

smoke: seconds. laptop: Fashion-MNIST, every second pixel, d = 196; a few minutes on 2 cores. paper:
CIFAR-10 where a part of it is at hand; ten starts of the published code's settings and three of
the others, as the paper has; ten minutes on one core.
"""

from ml_collections import ConfigDict

from sweeps.config import is_at_hand

PROFILES = ("smoke", "laptop", "paper")
PRINTED_STOPS = (0, 50, 100, 200, 600, 1000, 1500, 2000, 2900, 3000)  # in the authors' notebook

# Appendix D: d = 192, k = 10, m = 500, n = 1000, batches of 256, rate 0.2 for 5000 epochs.
PAPER_RATIOS = (
    ("10", "d/k", 19.2, 19.2),
    ("10", "m/d", 500 / 192, 500 / 192),
    ("10", "n/d", 1000 / 192, 1000 / 192),
    ("10", "batch/n", 0.256, 0.256),
    ("10", "epochs x rate", 1000.0, 1000.0),
)


def get_config(profile: str) -> ConfigDict:
    smoke = profile == "smoke"
    colours = profile == "paper" and is_at_hand("cifar10_part")
    return ConfigDict(
        {
            "paper_ratios": PAPER_RATIOS,
            "data": "cifar10_part" if colours else "fashion_mnist_5000",
            "samples": 100 if smoke else 1000,
            "step": 4 if colours else 7 if smoke else 2,
            "depth": 3,
            "width": 40 if smoke else 500,
            "readings": _seeds(profile, colours),
            "first_seed": 0,
            "epochs": 20 if smoke else 5000,
            "stops": {"smoke": 5, "laptop": 16, "paper": 24}[profile],
            "printed_stops": () if smoke else PRINTED_STOPS,
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


def _seeds(profile: str, colours: bool) -> dict[str, int]:
    """How many starts each reading has; grey images have no means of colours to subtract."""
    others = dict.fromkeys(
        ("published_raw", "sigma_xavier", "sigma_kaiming"), 2 if profile == "smoke" else 3
    )
    return {"published": 10, **others} if colours else others
