"""Figure C5: what paper B says of the number of samples and of the peak of the sharpness.

    python -m experiments.data_sharpness --config=configs/data_sharpness.py:laptop

smoke: seconds. laptop: bundled Fashion-MNIST, under a minute. paper: all of Fashion-MNIST at full
size. In panel a the samples of each class are a whole number, so that the shares are the same for
every n.
"""

from ml_collections import ConfigDict

PAPER_RATIOS = (("C5b", "n/d", 1.63, 6.97),)  # of Figures 1 and 2
PROFILES = ("smoke", "laptop", "paper")
STARTS = ("balanced", "pytorch_default")
EPOCHS = (0, 30, 100, 300, 1000, 3000, 10_000)
FITTED = "fitted"


def get_config(profile: str) -> ConfigDict:
    images = "fashion_mnist" if profile == "paper" else "fashion_mnist_5000"
    common = {
        "paper_ratios": PAPER_RATIOS,
        "first_seed": 0,
        "depth": 4,
        "width": 64,
        "sigma_x": 1.0,
        "start": 0.5,
        "rate": 0.01,
        "rtol": 1e-8,
    }
    side = {"smoke": 4, "laptop": 8, "paper": 28}[profile]
    over_samples: dict[str, object] = {
        "data": (FITTED, images),
        "side": side,
        "samples": (100, 200, 400, 800),
        "shares": (0.28, 0.46),
        "initializers": ("balanced",),
        "epochs": (10_000,),
        "seeds": 3,
    }
    along_training: dict[str, object] = {
        "data": (images,),
        "side": side,
        "samples": (500,),
        "shares": (0.1, 0.5, 0.9),
        "initializers": STARTS,
        "epochs": EPOCHS,
        "seeds": 3,
    }
    own: dict[str, tuple[dict[str, object], dict[str, object]]] = {
        "smoke": (
            {"samples": (100, 200), "seeds": 1},
            {"samples": (200,), "shares": (0.1, 0.5), "epochs": (0, 100, 1000), "seeds": 2},
        ),
        "laptop": ({}, {}),
        "paper": ({"samples": (1000, 2000, 5000, 10_000)}, {"samples": (5000,)}),
    }
    panels = {
        "over_samples": over_samples | own[profile][0],
        "along_training": along_training | own[profile][1],
    }
    return ConfigDict(common | {"width": 16 if profile == "smoke" else 64} | panels)
