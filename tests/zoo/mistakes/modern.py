"""What goes wrong with transformers, mixers, convolutions and towers as they are trained."""

from __future__ import annotations

import numpy as np

from tests.zoo import modern
from tests.zoo.language import LABELS, TOKENS
from tests.zoo.mistakes import wrong

MISTAKES = {
    "rotary transformer": (
        modern.llama,
        {
            "labels shifted before": (lambda m: wrong(m, y=LABELS[:, 1:]), r"\(2, 3\) or targets"),
            "tokens in a dict": (
                lambda m: wrong(m, x={"input_ids": TOKENS}),
                "'dict' object has no attribute",
            ),
        },
    ),
    "encoder and decoder": (
        modern.translator,
        {
            "source alone": (lambda m: wrong(m, x=TOKENS), "arguments of a module"),
            "both in a dict": (
                lambda m: wrong(m, x=lambda x: {"source": x[0], "target": x[1]}),
                "arguments of a module",
            ),
            "both in a list": (lambda m: wrong(m, x=list), "arguments of a module"),
        },
    ),
    "mixer": (
        modern.mixer,
        {
            "larger images": (
                lambda m: wrong(m, x=lambda x: np.tile(x, (1, 2, 2, 1))),
                "at an x of shape",
            ),
            "channels first": (
                lambda m: wrong(m, x=lambda x: np.moveaxis(x, -1, 1)),
                "channels last",
            ),
        },
    ),
    "classes of pixels": (
        modern.pixel_classes,
        {
            "pixels in a row": (lambda m: wrong(m, y=np.zeros((2, 9), int)), r"labels \(2, 3, 3\)"),
            "ignored labels of 255": (lambda m: wrong(m, y=np.full((2, 3, 3), 255)), "and -1 says"),
            "a weight for each class": (
                lambda m: wrong(m, weights=np.ones(3)),
                "one for each sample or label",
            ),
        },
    ),
    "causal convolutions": (
        modern.wavenet,
        {"a channel in y": (lambda m: wrong(m, y=np.ones((2, 5, 1))), r"targets \(2, 5\)")},
    ),
    "two towers": (
        modern.two_towers,
        {
            "a user too high": (
                lambda m: wrong(m, x=lambda x: {**x, "user": x["user"] + 2}),
                "token numbers past the vocabulary",
            ),
            "users as floats": (
                lambda m: wrong(m, x=lambda x: {**x, "user": x["user"] + 0.0}),
                "tokens are integers",
            ),
            "ratings": (lambda m: wrong(m, y=np.array([1, 5, 3, 2])), "lie between 0 and 1"),
            "another entry": (
                lambda m: wrong(m, x=lambda x: {f"{name}s": leaf for name, leaf in x.items()}),
                "there is no entry '",
            ),
        },
    ),
    "contrastive": (
        modern.contrastive,
        {
            "batches of it": (lambda m: wrong(m, batch_size=2), "leave batch_size out"),
            "a weight for each pair": (lambda m: wrong(m, weights=np.ones((3, 3))), r"\(3,\)"),
        },
    ),
}
