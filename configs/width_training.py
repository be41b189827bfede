"""Figures 9 and 18: kappa of one-hidden ReLU networks of growing width while they train.

    python -m experiments.width_training --config=configs/width_training.py:laptop

smoke: seconds. laptop: 95 handwritten digits of 64 pixels, which keeps the paper's p / (k n) and
n / d, minutes on 2 cores; the paper's learning rates are those of MNIST, and on Fashion-MNIST,
whose mean image is twice as bright, they make ReLU units dead. paper: MNIST, a kernel of
10,000 x 10,000 for each kappa; an hour and a half of one core for each reading, and three to ten
minutes for each spectrum.

Readings. published: what the published code does where it can be read, the mean square error, no
biases and batches in the order of the file. cross_entropy and biases change one thing each.
shuffled, in the paper profile: cross-entropy, biases that start at 0, 1,000 drawn images in drawn
batches and training in float32.
"""

from ml_collections import ConfigDict

# Widths 15 to 500 of 784 inputs, n = 1000, k = 10, batches of 64, 100 epochs at 0.3 or 0.5.
PAPER_RATIOS = (
    ("9", "p/(k n)", 1.59, 1.59),
    ("9", "n/d", 1.28, 1.28),
    ("9", "batch/n", 0.064, 0.064),
    ("18", "p/(k n)", 1.19, 39.8),
    ("18", "n/d", 1.28, 1.28),
    ("18", "batch/n", 0.064, 0.064),
    ("18", "epochs x rate", 30.0, 50.0),
)
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    smoke, paper = profile == "smoke", profile == "paper"
    readings = {name: READINGS[name] for name in READINGS if paper or name != "shuffled"}
    return ConfigDict(
        {
            "paper_ratios": PAPER_RATIOS,
            "readings": " ".join(readings),
            "data": "mnist" if paper else "digits",
            "samples": {"smoke": 20, "laptop": 95, "paper": 1000}[profile],
            "widths": (20, 50) if smoke else (15, 20, 50, 100, 200, 500),
            "narrow_widths": (15, 20),
            "narrow_rate": 0.3,
            "rate": 0.5,
            "batch": {"smoke": 8, "laptop": 6, "paper": 64}[profile],
            "spectrum_width": 20,
            "initializer": "xavier_normal",
            "first_seed": 0,
            "seeds": {"smoke": 1, "laptop": 3, "paper": 3}[profile],
            "spectrum_seeds": {"smoke": 1, "laptop": 3, "paper": 1}[profile],
            "epochs": 4 if smoke else 100,
            "every": 2 if smoke else 10,
            **readings,
        }
    )


def _reading(
    loss: str,
    biases: str = "none",
    *,
    shuffled: bool = False,
    data_seed: int = -1,
    dtype: str = "float64",
) -> dict[str, object]:
    """``data_seed`` -1 takes the first samples of the file, another one draws them."""
    scale = 0.2 if loss == "mse" else 1.0  # 2 / k: PyTorch's MSELoss is a mean over outputs
    return dict(
        loss=loss, scale=scale, biases=biases, shuffled=shuffled, data_seed=data_seed, dtype=dtype
    )


READINGS = {
    "published": _reading("mse"),
    "cross_entropy": _reading("cross_entropy"),
    "biases": _reading("mse", biases="normal"),
    "shuffled": _reading(
        "cross_entropy", biases="zero", shuffled=True, data_seed=0, dtype="float32"
    ),
}
