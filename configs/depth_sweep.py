"""Figures 2a, 2b and 3: kappa over depth, whitened data, linear networks at initialisation.

    python -m experiments.depth_sweep --config=configs/depth_sweep.py:laptop

Data are whitened, so that kappa depends on them through their rank alone: bundled Fashion-MNIST
stands for MNIST. Networks with hidden layers wider than d + k are replaced by smaller random ones
whose kappa has the same distribution.

smoke: seconds. laptop: images of 20 x 20, 5 outputs and half the widths, which keeps d/k and m/d;
under a minute on 2 cores. paper: the paper's sizes at all depths and 20 seeds, half an hour.
"""

from collections.abc import Iterable

from ml_collections import ConfigDict

from sweeps.config import data_of

# MNIST has d = 784 pixels and k = 10. The paper states its widths for figures 19 and 21 alone,
# where they are about d, and does not state its factors c. Weights have variance 1 / fan-in, as in
# Appendix G and in the published code.
PAPER_RATIOS = (
    ("2a", "d/k", 78.4, 78.4),
    ("2a", "m/d", 1.0, 4.0),
    ("2b", "d/k", 78.4, 78.4),
    ("3", "d/k", 78.4, 78.4),
    ("3", "m/d", 1.0, 4.0),
)
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    panels = {"smoke": _smoke, "laptop": _laptop, "paper": _paper}
    return ConfigDict(
        {
            "paper_ratios": PAPER_RATIOS,
            "data": data_of(profile, "mnist"),
            "samples": 500 if profile == "smoke" else 0,
            "data_seed": 0,
            "outputs": 5 if profile == "laptop" else 10,
            "gain": 1.0,
            "initializer": "kaiming_normal",
            "rtol": 1e-3,
            "first_seed": 0,
            **panels[profile](),
        }
    )


def _panel(
    depths: Iterable[int],
    seeds: int,
    side: int = 0,
    widths: tuple[int, ...] = (),
    multipliers: tuple[int, ...] = (),
) -> dict[str, object]:
    return dict(
        depths=tuple(depths), seeds=seeds, side=side, widths=widths, multipliers=multipliers
    )


def _smoke() -> dict[str, object]:
    depths = (2, 3, 4)
    return {
        "fixed_width": _panel((2, 3, 4, 5), 2, 8, widths=(100, 150)),
        "slow_growth": _panel(depths, 2, 8, multipliers=(40,)),
        "slow_reference": _panel(depths, 2, 8, widths=(80,)),
        "fast_growth": _panel(depths, 2, 8, multipliers=(100,)),
        "many_seeds": _panel((2, 3, 4, 5), 3, 8, widths=(100,)),
        "narrow": _panel((2, 4), 2, 8, widths=(20,)),
    }


def _laptop() -> dict[str, object]:
    """Half the paper's sizes at fewer depths and seeds."""
    depths = (2, 4, 6, 8, 10)
    return {
        "fixed_width": _panel(depths, 3, 20, widths=(510, 765, 1020, 1530)),
        "slow_growth": _panel(depths, 3, 20, multipliers=(255, 357)),
        "slow_reference": _panel(depths, 3, 20, widths=(510,)),
        "fast_growth": _panel((2, 3, 4, 6, 10), 5, 20, multipliers=(1530, 3060)),
        "many_seeds": _panel(depths, 5, 20, widths=(510,)),
        "narrow": _panel((2, 4, 6, 8), 3, 20, widths=(51, 153, 255)),
    }


def _paper() -> dict[str, object]:
    depths = range(2, 11)
    return {
        "fixed_width": _panel(depths, 3, widths=(1000, 1500, 2000, 3000)),
        "slow_growth": _panel(depths, 3, multipliers=(100, 200, 500, 700)),
        "slow_reference": _panel(depths, 3, widths=(1000,)),
        "fast_growth": _panel(depths, 20, multipliers=(1000, 3000, 6000)),
        "many_seeds": _panel(depths, 20, widths=(1000,)),
        "narrow": _panel((2, 4, 6, 8), 10, widths=(100, 300, 500)),
    }
