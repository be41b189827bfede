"""T8: how kappa of linear networks on whitened inputs grows with depth, to 100 layers.

    python -m experiments.depth_law --config=configs/depth_law.py:laptop

Small networks, whose kappa is exact: 12 inputs and 3 outputs; 12 and 1, where the growth is no
exponential; and 4 and 4. Widths are from 1 to 100 times the number of inputs. No data are needed.
Hidden layers wider than d + k are replaced by smaller random ones, with which kappa has the same
distribution.

smoke: seconds. laptop: a minute. paper: more widths, two minutes.
"""

from ml_collections import ConfigDict

PROFILES = ("smoke", "laptop", "paper")
PAIRS = ((12, 3), (12, 1), (4, 4))


def get_config(profile: str) -> ConfigDict:
    own = {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]()
    return ConfigDict({"gain": 1.0, "first_seed": 0, **own})


def _smoke() -> dict[str, object]:
    return {"pairs": PAIRS[:2], "ratios": (1, 10), "depths": (2, 5, 10, 40), "seeds": 2}


def _laptop() -> dict[str, object]:
    depths = (2, 3, 5, 7, 10, 14, 20, 30, 40, 60, 80, 100)
    return {"pairs": PAIRS, "ratios": (1, 2, 10, 100), "depths": depths, "seeds": 10}


def _paper() -> dict[str, object]:
    return {**_laptop(), "ratios": (1, 2, 4, 10, 30, 100)}
