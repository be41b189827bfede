"""Figures 1, 13, 14, 15 and C4: networks pruned as paper A's published code prunes them.

    python -m experiments.pruning_arms --config=configs/pruning_arms.py:laptop

From that protocol one thing is changed at a time: every tensor is pruned or kernels alone, of the
scales of BatchNorm, which are all equal, the first ones are pruned or some at random, images are
cropped and flipped or not, J has all columns or those of the weights that are left, and BatchNorm
takes the statistics of batches of 64, of all samples, or its running averages.

smoke: under a minute, most of it compilation. laptop: 64 images of Fashion-MNIST and networks of a
quarter of the width. paper: the 1,000 images of CIFAR-10's part (gnjax.data.load says where it is
looked for). What is published was computed on a GPU: a training takes half a minute there, kappa
with the statistics of batches a minute and any other kappa a quarter of a minute. On a core kappa
takes 5 minutes, and hours with the statistics of batches.
"""

from ml_collections import ConfigDict

PROFILES = ("smoke", "laptop", "paper")
EVERY, KERNELS, SCATTERED = "every tensor", "kernels", "every tensor, ties at random"
PAPER_RATIOS = (
    *((figure, "p/(k n)", 5.4, 27.2) for figure in ("1, 14", "14")),
    ("15", "p/(k n)", 9.3, 46.7),
    ("13", "p/(k n)", 1.19, 11.9),
    *((figure, "batch/n", 0.064, 0.064) for figure in ("1, 14", "13", "14", "15")),
)
STOPS = (0, 20, 40, 60, 80, 100)
FEW_STOPS, FEW_RATES = (0, 20, 60, 100), (0.0, 0.2, 0.4, 0.6, 0.8)
TRANSFORMER_RATES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def get_config(profile: str) -> ConfigDict:
    own = {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]()
    return ConfigDict({"paper_ratios": PAPER_RATIOS, "first_seed": 0, **own})


def _arm(**changed: object) -> dict[str, object]:
    arm = {
        "network": "resnet20",
        "depth": 20,
        "width": 16,
        "side": 0,
        "tensors": EVERY,
        "augment": True,
        "rates": (0.0, 0.4, 0.8),
        "seeds": 3,
        "measured": 1,
        "stops": STOPS,
        "kappas": (),
        "at_start": (),
        "largest": (),
    }
    return arm | changed


def _paper() -> dict[str, object]:
    ends = (0, 100)
    every_way = (("batches", STOPS), ("plain batches", STOPS), ("running", STOPS))
    return {
        "data": "cifar10_part",
        "samples": 1000,
        "batch": 64,
        "arms": {
            "published": _arm(
                kappas=(("batches", ends), ("all", STOPS), ("running", (100,))),
                at_start=("all",),
                largest=every_way,
            ),
            "other_rates": _arm(rates=(0.2, 0.6), seeds=1, kappas=(("all", STOPS),)),
            "kernels": _arm(
                tensors=KERNELS, rates=(0.4, 0.8), kappas=(("all", STOPS),), at_start=("all",)
            ),
            "plain": _arm(augment=False, kappas=(("all", (100,)),)),
            "ties": _arm(
                tensors=SCATTERED,
                rates=(0.4, 0.8),
                kappas=(("all", ends),),
                largest=(("batches", ends),),
            ),
            "resnet32": _arm(
                network="resnet32", depth=32, rates=(0.0, 0.2, 0.4, 0.6, 0.8), seeds=1, measured=0
            ),
            "transformer": _arm(
                network="vit",
                depth=4,
                width=48,
                rates=TRANSFORMER_RATES,
                seeds=1,
                stops=tuple(range(0, 201, 20)),
                kappas=(("all", (0, 200)),),
            ),
            "few_resnet20": _few(kappas=(0, 20, 100)),
            "few_resnet32": _few(network="resnet32", depth=32, samples=64),
            "few_transformer": _few(
                kappas=(0, 20, 100, 200),
                network="vit",
                depth=4,
                width=48,
                samples=128,
                stops=(0, 20, 100, 200),
            ),
        },
    }


def _few(kappas: tuple[int, ...] = FEW_STOPS, **changed: object) -> dict[str, object]:
    """Kappa after these epochs, at five rates, from so few images that two cores compute it."""
    own = {"samples": 256, "stops": FEW_STOPS, **changed}
    return _arm(rates=FEW_RATES, seeds=1, kappas=(("all", kappas),), **own)


def _laptop() -> dict[str, object]:
    small = {"side": 8, "seeds": 2}
    narrow = {**small, "width": 4}
    ends = (("batches", (0, 100)), ("all", (0, 100)))
    return {
        "data": "fashion_mnist_5000",
        "samples": 64,
        "batch": 16,
        "arms": {
            "published": _arm(**narrow, kappas=ends),
            "kernels": _arm(**narrow, tensors=KERNELS, rates=(0.4, 0.8), kappas=ends),
            "plain": _arm(**narrow, augment=False),
            "resnet32": _arm(**narrow, network="resnet32", depth=32, kappas=(("all", (0, 100)),)),
            "transformer": _arm(
                side=8,
                seeds=1,
                network="vit",
                depth=2,
                width=16,
                rates=TRANSFORMER_RATES,
                stops=(0, 200),
                kappas=(("all", (0, 200)),),
            ),
        },
    }


def _smoke() -> dict[str, object]:
    small = {"depth": 8, "width": 2, "side": 8, "seeds": 1, "stops": (0, 1), "rates": (0.0, 0.8)}
    ends = (("batches", (0, 1)), ("all", (1,)))
    return {
        "data": "fashion_mnist_5000",
        "samples": 8,
        "batch": 4,
        "arms": {
            "published": _arm(**small, kappas=ends, largest=(("running", (1,)),)),
            "kernels": _arm(**{**small, "rates": (0.8,)}, tensors=KERNELS, kappas=ends),
            "resnet32": _arm(**small, network="resnet32"),
            "transformer": _arm(
                **{**small, "depth": 1, "width": 8}, network="vit", kappas=(("all", (0, 1)),)
            ),
        },
    }
