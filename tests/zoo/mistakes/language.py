"""What goes wrong with models of language and of sequences."""

from __future__ import annotations

import jax
import numpy as np
import optax

import gnjax
from tests.zoo import language
from tests.zoo.mistakes import case_of, ending_in, wrong

TOKENS, LABELS, V = language.TOKENS, language.LABELS, language.V


def integer_loss(f, y):
    return optax.softmax_cross_entropy_with_integer_labels(f, y)


GPT = {
    "labels in one row": (lambda m: wrong(m, y=LABELS.reshape(-1)), "one target a sample"),
    "labels as floats": (lambda m: wrong(m, y=LABELS + 0.0), "dtype float64; integer labels"),
    "a label too high": (lambda m: wrong(m, y=LABELS + 3), "labels go from 0 to 4"),
    "ignored labels of -100": (lambda m: wrong(m, y=-100 + 0 * LABELS), "and -1 says that"),
    "the loss forgotten": (lambda m: wrong(m, loss=...), "'cross_entropy' leaves out"),
    "another name": (lambda m: wrong(m, loss="softmax"), "is not one of squared_error"),
    "-1 as a class": (lambda m: wrong(m, loss=integer_loss), "-1 for the last class"),
    "a class too high": (
        lambda m: wrong(m, loss=integer_loss, y=LABELS % V + 3),
        "labels that name no output",
    ),
    "one-hot loss": (
        lambda m: wrong(m, loss=optax.softmax_cross_entropy),
        "for labels pass optax.softmax_cross_entropy_with_integer_labels",
    ),
    "tokens as floats": (lambda m: wrong(m, x=TOKENS + 0.0), "tokens are integers"),
    "a token too high": (lambda m: wrong(m, x=TOKENS + V), "token numbers past"),
    "one sequence": (lambda m: wrong(m, x=TOKENS[0], y=LABELS[0]), "one entry for each sample"),
    "a longer context": (lambda m: wrong(m, x=np.tile(TOKENS, 2)), "at an x of shape"),
    "y inside x": (lambda m: wrong(m, x=(TOKENS, LABELS), y=...), "several arguments of a module"),
}
BERT = {
    "no mask": (lambda m: wrong(m, x={"tokens": TOKENS}), "there is no entry 'mask'"),
    "a mask of integers": (
        lambda m: wrong(m, x=lambda x: {**x, "mask": 1 * x["mask"]}),
        "should be bool",
    ),
    "a mask too long": (
        lambda m: wrong(m, x=lambda x: {**x, "mask": np.ones((2, 4), bool)}),
        "x has the samples first",
    ),
    "a sample all masked": (
        lambda m: wrong(m, x=lambda x: {**x, "mask": x["mask"][:, :1] & [[True], [False]]}),
        "masks that leave a sample nothing",
    ),
    "weights of tokens": (lambda m: wrong(m, weights=np.ones((2, 3))), "one for each sample"),
    "a softmax at the end": (lambda m: wrong(m, model=ending_in(jax.nn.softmax)), "takes logits"),
    "x is a loader's maker": (lambda m: wrong(m, x=lambda x: iter), "in a builtin_function"),
}
SEQUENCES = {
    "scanned": (
        language.scanned,
        {
            "only= of other names": (lambda m: wrong(m, only="layers/*"), "leave no parameter of"),
            "a matrix of traced x": (
                lambda m: jax.jit(lambda x: wrong(m, x=x).as_matrix())(case_of(m).x),
                "inside",
            ),
        },
    ),
    "gru": (
        language.gru,
        {
            "an axis too many": (lambda m: wrong(m, y=np.ones((2, 1))), r"targets \(2,\) are"),
            "cross-entropy": (lambda m: wrong(m, loss="cross_entropy"), "binary_cross_entropy"),
            "complex": (lambda m: wrong(m, x=lambda x: x * 1j), "imaginary part as two"),
            "one sequence": (lambda m: wrong(m, x=lambda x: x[0], y=...), "goes in as x.None"),
        },
    ),
    "lstm": (
        language.lstm,
        {
            "no y": (lambda m: wrong(m, gnjax.hessian, y=...), "pass them as y"),
            "no y in batches": (
                lambda m: wrong(m, gnjax.hessian, x=lambda x: [(x, None)], y=...),
                "pass them as y",
            ),
            "the last step alone": (lambda m: wrong(m, y=np.ones((2, 2))), r"targets \(2, 3, 2"),
        },
    ),
}
MISTAKES = {"gpt": (language.gpt, GPT), "bert": (language.bert, BERT), **SEQUENCES}
