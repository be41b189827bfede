"""Figures 2a, 2b and 3: kappa over depth, whitened data, linear networks at initialisation.

    python -m experiments.depth_sweep --config=configs/depth_sweep.py:laptop

smoke: seconds. laptop: bundled Fashion-MNIST, about two minutes on 2 cores. paper: MNIST at full
size, widths up to 10,000; hours on 2 cores, and 20 GB for the widest cells.
"""

from collections.abc import Iterable

from ml_collections import ConfigDict

from sweeps.config import unknown_profile

PAPER_RATIOS = ()
PROFILES = ("smoke", "laptop", "paper")


def get_config(profile: str) -> ConfigDict:
    if profile not in PROFILES:
        raise unknown_profile(profile, PROFILES)
    common = {
        "paper_ratios": PAPER_RATIOS,
        "data": "mnist" if profile == "paper" else "fashion_mnist_5000",
        "samples": 0,
        "data_seed": 0,
        "outputs": 10,
        "gain": 2.0,
        "initializer": "kaiming_normal",
        "rtol": 1e-3,
    }
    return ConfigDict(common | {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]())


def _panel(
    depths: Iterable[int],
    seeds: int,
    *,
    side: int = 0,
    widths: tuple[int, ...] = (),
    multipliers: tuple[int, ...] = (),
) -> dict[str, object]:
    return {
        "depths": tuple(depths),
        "seeds": seeds,
        "side": side,
        "widths": tuple(widths),
        "multipliers": tuple(multipliers),
    }


def _smoke() -> dict[str, object]:
    return {
        "samples": 500,
        "fixed_width": _panel((2, 3, 4, 5), 2, side=8, widths=(100, 150)),
        "slow_growth": _panel((2, 3, 4), 2, side=8, multipliers=(40,)),
        "slow_reference": _panel((2, 3, 4), 2, side=8, widths=(80,)),
        "fast_growth": _panel((2, 3, 4), 2, side=8, multipliers=(100,)),
        "many_seeds": _panel((2, 3, 4, 5), 3, side=8, widths=(100,)),
    }


def _laptop() -> dict[str, object]:
    return {
        "fixed_width": _panel((2, 4, 6, 8, 10), 3, widths=(1000, 1500, 2000)),
        "slow_growth": _panel((2, 4, 6, 8, 10), 3, side=14, multipliers=(100, 150, 200)),
        "slow_reference": _panel((2, 4, 6, 8, 10), 3, side=14, widths=(300,)),
        "fast_growth": _panel((2, 3, 4, 6, 8), 3, side=8, multipliers=(100, 200, 300)),
        "many_seeds": _panel((2, 4, 6, 8, 10), 4, widths=(1000,)),
    }


def _paper() -> dict[str, object]:
    depths = range(2, 11)
    return {
        "fixed_width": _panel(depths, 3, widths=(1000, 1500, 2000, 3000)),
        "slow_growth": _panel(depths, 3, multipliers=(100, 150, 200)),
        "slow_reference": _panel(depths, 3, widths=(1000,)),
        "fast_growth": _panel(depths, 3, multipliers=(300, 500, 1000)),
        "many_seeds": _panel(depths, 20, widths=(1000,)),
    }
