"""C6: what pruned normalisations leave of a ResNet20: its size, its loss, where lambda_max lives.

    python -m experiments.dead_channels --config=configs/dead_channels.py:laptop

Dense networks of fewer filters, to compare losses at equal numbers of weights that can change an
output; the network of the live channels alone; lambda_max of J J^T with the tensors in which its
right vector lives, at several epsilons of BatchNorm.

smoke: seconds. laptop: 64 images of Fashion-MNIST and a quarter of the width. paper: the 1,000
images of CIFAR-10's part, of which one batch of 64 counts for lambda_max; a quarter of a minute of
one core for a lambda_max, one to ten minutes for a training.
"""

from ml_collections import ConfigDict

PROFILES = ("smoke", "laptop", "paper")
EVERY, KERNELS, SCATTERED = "every tensor", "kernels", "every tensor, ties at random"
EPSILONS = (1e-5, 1e-3, 1e-1)


def get_config(profile: str) -> ConfigDict:
    own = {"smoke": _smoke, "laptop": _laptop, "paper": _paper}[profile]()
    return ConfigDict({"first_seed": 0, **own})


def _arm(**changed: object) -> dict[str, object]:
    arm = {
        "what": "largest",
        "widths": (16,),
        "tensors": EVERY,
        "rates": (0.8,),
        "shrunk": False,
        "epsilons": EPSILONS,
        "epoch": 0,
        "seeds": 3,
    }
    return arm | changed


def _paper() -> dict[str, object]:
    losses = {"what": "losses", "epsilons": EPSILONS[:1], "epoch": 100}
    return {
        "data": "cifar10_part",
        "samples": 1000,
        "measured": 64,
        "batch": 64,
        "depth": 20,
        "side": 0,
        "arms": {
            "every": _arm(rates=(0.8, 0.6, 0.4, 0.0)),
            "ties": _arm(tensors=SCATTERED),
            "kernels": _arm(tensors=KERNELS),
            "filters": _arm(tensors=KERNELS, epsilons=EPSILONS[:1], seeds=10),
            "narrow": _arm(**losses, widths=(1, 2, 4, 8), rates=(0.0,)),
            "live": _arm(**losses, rates=(0.8, 0.6), shrunk=True),
            "ties_live": _arm(**losses, tensors=SCATTERED, shrunk=True),
            "after": _arm(shrunk=True, epoch=100),
        },
    }


def _laptop() -> dict[str, object]:
    wide = {"widths": (8,), "epsilons": EPSILONS[:2]}
    losses = {"what": "losses", "epsilons": EPSILONS[:1], "epoch": 100, "seeds": 1}
    return {
        "data": "fashion_mnist_5000",
        "samples": 64,
        "measured": 64,
        "batch": 16,
        "depth": 20,
        "side": 8,
        "arms": {
            "every": _arm(**wide, rates=(0.8, 0.0)),
            "ties": _arm(**wide, tensors=SCATTERED),
            "kernels": _arm(**wide, tensors=KERNELS),
            "filters": _arm(widths=(8,), tensors=KERNELS, epsilons=EPSILONS[:1], seeds=8),
            "narrow": _arm(**losses, widths=(1, 2, 4), rates=(0.0,)),
            "live": _arm(**losses, widths=(8,), shrunk=True),
            "ties_live": _arm(**losses, widths=(8,), tensors=SCATTERED, shrunk=True),
        },
    }


def _smoke() -> dict[str, object]:
    small = {"widths": (4,), "seeds": 1, "epsilons": EPSILONS[:2]}
    losses = {"what": "losses", "epsilons": EPSILONS[:1], "epoch": 1, "seeds": 1}
    return {
        "data": "fashion_mnist_5000",
        "samples": 8,
        "measured": 8,
        "batch": 4,
        "depth": 8,
        "side": 8,
        "arms": {
            "every": _arm(**small, rates=(0.6, 0.0)),
            "kernels": _arm(**small, tensors=KERNELS),
            "narrow": _arm(**losses, widths=(1,), rates=(0.0,)),
            "live": _arm(**losses, widths=(4,), rates=(0.6,), shrunk=True),
            "ties_live": _arm(**losses, widths=(4,), rates=(0.6,), tensors=SCATTERED, shrunk=True),
            "after": _arm(
                **{**small, "epsilons": EPSILONS[:1]}, rates=(0.6,), shrunk=True, epoch=1
            ),
        },
    }
