"""One thing wrong with each model of the zoo, and the sentence that a user then reads."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState

import gnjax
from tests.zoo import images, language, others

TOKENS, LABELS, V = language.TOKENS, language.LABELS, language.V


@cache
def _case(made):
    return made()


def _wrong(made, call=gnjax.gauss_newton, *, model=lambda model: model, **changed):
    """The call of a case with something changed; ``model`` and ``x`` may be functions of its own.

    An option that is ``...`` is left out.
    """
    case = _case(made)
    x = changed.pop("x", case.x)
    options = {name: v for name, v in {**case.options, **changed}.items() if v is not ...}
    return call(model(case.model), x(case.x) if callable(x) else x, **options)


def _with_nan(model):
    apply, params = gnjax.functional(model)
    leaves, structure = jax.tree.flatten(params)
    return apply, jax.tree.unflatten(structure, [leaf * jnp.nan for leaf in leaves])


def _ending_in(last):
    """The same model with one function more at its end."""

    def changed(model):
        apply, params = gnjax.functional(model)
        return lambda p, x: last(apply(p, x)), params

    return changed


def _with_params(**others):
    return lambda model: (lambda p, x: model[0](p, x), {**model[1], **others})


def _linen(model=lambda *pair: pair, **options):
    module, variables, _, x, known = images._normed()
    return gnjax.gauss_newton(model(module, variables), x, **{**known, **options})


def _train_state(module, variables):
    """Without the statistics of BatchNorm."""
    params = variables["params"]
    state = TrainState.create(apply_fn=module.apply, params=params, tx=optax.sgd(0.1))
    return gnjax.functional(state, train=False)


def _training(module, variables):
    keys = {"dropout": jax.random.key(3)}
    return gnjax.functional((module, variables), train=True, rngs=keys, mutable=["batch_stats"])


def _iterated(model):
    """The fixed point by a loop that ends when nothing moves any more."""

    def apply(p, x):
        def step(z):
            return jnp.tanh(z @ p["w"] + x)

        def moves(z):
            return jnp.abs(z - step(z)).max() > 1e-9

        return jax.lax.while_loop(moves, step, jnp.zeros_like(x)) @ p["head"]

    return apply, model[1]


def _equinox(name):
    return getattr(pytest.importorskip("equinox"), name)


def _haiku(model, made):
    x = _case(made).x
    return gnjax.ntk(model(*images.haiku_parts(x)), x)


def _integer_loss(f, y):
    return optax.softmax_cross_entropy_with_integer_labels(f, y)


def _misspelt_loss(f, y):
    return optax.l2_loss(f["values"], y["value"])


def _mean_over_samples(f, y):
    return optax.l2_loss(f, y).mean(axis=1)


GPT = {
    "labels in one row": (lambda m: _wrong(m, y=LABELS.reshape(-1)), "one target a sample"),
    "labels as floats": (lambda m: _wrong(m, y=LABELS + 0.0), "dtype float64; integer labels"),
    "a label too high": (lambda m: _wrong(m, y=LABELS + 3), "labels go from 0 to 4"),
    "ignored labels of -100": (lambda m: _wrong(m, y=-100 + 0 * LABELS), "and -1 says that"),
    "the loss forgotten": (lambda m: _wrong(m, loss=...), "'cross_entropy' leaves out"),
    "another name": (lambda m: _wrong(m, loss="softmax"), "is not one of squared_error"),
    "-1 as a class": (lambda m: _wrong(m, loss=_integer_loss), "-1 for the last class"),
    "a class too high": (
        lambda m: _wrong(m, loss=_integer_loss, y=LABELS % V + 3),
        "labels that name no output",
    ),
    "one-hot loss": (
        lambda m: _wrong(m, loss=optax.softmax_cross_entropy),
        "does not take one sample",
    ),
    "tokens as floats": (lambda m: _wrong(m, x=TOKENS + 0.0), r"x\.astype\(int\)"),
    "a token too high": (lambda m: _wrong(m, x=TOKENS + V), "token numbers past"),
    "one sequence": (lambda m: _wrong(m, x=TOKENS[0], y=LABELS[0]), "one entry for each sample"),
    "a longer context": (lambda m: _wrong(m, x=np.tile(TOKENS, 2)), "parameters were made for"),
    "y inside x": (lambda m: _wrong(m, x=(TOKENS, LABELS), y=...), "targets do not go there"),
}
BERT = {
    "no mask": (lambda m: _wrong(m, x={"tokens": TOKENS}), "there is no entry 'mask'; give a"),
    "a mask of integers": (
        lambda m: _wrong(m, x=lambda x: {**x, "mask": 1 * x["mask"]}),
        r"mask\.astype\(bool\)",
    ),
    "a mask too long": (
        lambda m: _wrong(m, x=lambda x: {**x, "mask": np.ones((2, 4), bool)}),
        "the first axis of x counts samples",
    ),
    "a sample all masked": (
        lambda m: _wrong(m, x=lambda x: {**x, "mask": x["mask"][:, :1] & [[True], [False]]}),
        "masks that leave a sample nothing",
    ),
    "weights of tokens": (lambda m: _wrong(m, weights=np.ones((2, 3))), "one for each sample"),
    "a softmax at the end": (lambda m: _wrong(m, model=_ending_in(jax.nn.softmax)), "takes logits"),
    "x is a loader's maker": (lambda m: _wrong(m, x=lambda x: iter), "in a builtin_function"),
}
SEQUENCES = {
    "scanned": (
        language.scanned,
        {
            "only= of other names": (lambda m: _wrong(m, only="layers/*"), "leave no parameter of"),
            "traced": (lambda m: jax.jit(lambda x: _wrong(m, x=x))(_case(m).x), "traced by jax"),
        },
    ),
    "gru": (
        language.gru,
        {
            "an axis too many": (lambda m: _wrong(m, y=np.ones((2, 1))), r"targets \(2,\) are"),
            "cross-entropy": (lambda m: _wrong(m, loss="cross_entropy"), "binary_cross_entropy"),
            "complex": (lambda m: _wrong(m, x=lambda x: x * 1j), "imaginary part as two"),
            "one sequence": (lambda m: _wrong(m, x=lambda x: x[0], y=...), "goes in as x.None"),
        },
    ),
    "lstm": (
        language.lstm,
        {
            "no y": (lambda m: _wrong(m, gnjax.hessian, y=...), "pass them as y"),
            "no y in batches": (
                lambda m: _wrong(m, gnjax.hessian, x=lambda x: [(x, None)], y=...),
                "pass them as y",
            ),
            "the last step alone": (lambda m: _wrong(m, y=np.ones((2, 2))), r"targets \(2, 3, 2"),
        },
    ),
}
IMAGES = {
    "vit": (
        images.vit,
        {
            "channels first": (
                lambda m: _wrong(m, x=lambda x: np.moveaxis(x, -1, 1)),
                "channels last",
            ),
            "labels from 1 on": (lambda m: _wrong(m, y=np.array([1, 2, 3])), "from 0 to 2"),
            "training": (
                lambda m: _wrong(m, model=lambda _: images.ViT(None, nnx.Rngs(0))),
                r"model\.eval",
            ),
            "another keyword": (
                lambda m: _wrong(
                    m, model=lambda _: gnjax.functional(images.ViT(None, nnx.Rngs(0)), train=False)
                ),
                r"gnjax\.functional\(model, name=value\)",
            ),
            "NaN": (lambda m: _wrong(m, model=_with_nan), "before the training diverged"),
            "the class": (lambda m: _wrong(m, model=lambda _: images.ViT), "a model is"),
        },
    ),
    "unet": (
        images.unet,
        {
            "swapped": (lambda m: _wrong(m, model=lambda pair: pair[::-1]), "starts with dict"),
            "the module alone": (lambda m: _wrong(m, model=lambda pair: pair[0]), "got UNet"),
            "no channel in y": (lambda m: _wrong(m, y=np.ones((2, 4, 4))), r"4, 4, 1\) are needed"),
            "masks to 255": (
                lambda m: _wrong(m, y=255 * np.ones((2, 4, 4, 1)), loss="binary_cross_entropy"),
                "lie between 0 and 1",
            ),
            "an odd size": (lambda m: _wrong(m, x=np.ones((2, 5, 5, 1))), "made for"),
            "params to apply": (
                lambda m: _wrong(m, model=lambda pair: (pair[0].apply, pair[1]["params"])),
                r"in place of \(module\.apply, params\)",
            ),
        },
    ),
    "batch norm": (
        None,
        {
            "no keyword": (lambda _: _linen(), "keywords of its call"),
            "has_aux of a plain model": (
                lambda _: _linen(lambda *m: gnjax.functional(m, train=False), has_aux=True),
                "leave has_aux out",
            ),
            "statistics as parameters": (
                lambda _: _linen(lambda m, v: (m.apply, v)),
                "differentiated like parameters",
            ),
            "part of a mask": (
                lambda _: _linen(lambda *m: gnjax.functional(m, train=False), mask={"a": 1}),
                r"at BatchNorm_0/bias it has no entry, and \(4,\) is needed",
            ),
            "batches in training": (
                lambda _: _linen(_training, has_aux=True, batch_size=1),
                "splits the samples",
            ),
            "a train state without them": (lambda _: _linen(_train_state), "statistics included"),
        },
    ),
}
OTHER_FRAMEWORKS = {
    "equinox autoencoder": (
        images.equinox_autoencoder,
        {
            "mapped": (lambda m: _wrong(m, model=jax.vmap), "got function"),
            "partitioned": (
                lambda m: _wrong(
                    m, model=lambda model: _equinox("partition")(model, _equinox("is_array"))
                ),
                "goes in alone",
            ),
            "y flat": (lambda m: _wrong(m, y=np.ones((3, 4))), r"targets \(3, 2, 2\)"),
            "a filter of NNX": (lambda m: _wrong(m, only=nnx.Param), "by a pattern of the path"),
        },
    ),
    "equinox logistic regression": (
        images.equinox_logistic,
        {
            "labels of -1 and 1": (lambda m: _wrong(m, y=np.array([1, -1, 1])), r"\(y \+ 1\) // 2"),
            "a weight for each class": (lambda m: _wrong(m, weights=[1.0, 2.0]), "one for each"),
            "weights in a dict": (lambda m: _wrong(m, weights={0: 1.0}), "must be one array"),
        },
    ),
    "haiku resnet": (
        images.haiku_resnet,
        {
            "no keyword": (lambda m: _haiku(lambda *parts: parts, m), "keywords of its call"),
            "no state": (lambda m: _haiku(lambda *parts: parts[:2], m), "params, state"),
            "apply": (lambda m: _haiku(lambda t, p, _: (t.apply, p), m), "goes in as .transformed"),
        },
    ),
    "haiku mlp, huber loss": (
        images.haiku_mlp,
        {
            "no y": (lambda m: _wrong(m, y=...), "second argument, and none came"),
            "one target for all": (lambda m: _wrong(m, y=np.ones((3, 1))), "would be stretched"),
            "a loss of the batch": (
                lambda m: _wrong(m, loss=_mean_over_samples),
                "called for every sample by itself",
            ),
            "apply": (
                lambda m: _wrong(m, gnjax.ntk, model=lambda pair: (pair[0].apply, pair[1])),
                "goes in as .transformed, params",
            ),
        },
    ),
}
OTHERS = {
    "graphs": (
        others.graphs,
        {
            "a list of two arrays": (lambda m: _wrong(m, x=list), "give a tuple or a dict"),
            "a list of graphs": (
                lambda m: _wrong(m, x=lambda x: list(zip(*x, strict=True))),
                "stack x to arrays",
            ),
            "one adjacency": (
                lambda m: _wrong(m, x=lambda x: (x[0], x[1][0])),
                "same number of samples first",
            ),
            "nodes alone": (lambda m: _wrong(m, x=lambda x: x[0]), "several arguments of a module"),
        },
    ),
    "one graph": (
        others.one_graph,
        {
            "batches of it": (lambda m: _wrong(m, batch_size=2), "leave batch_size out"),
            "a generator": (
                lambda m: _wrong(m, x=lambda x: (pair for pair in [(x, None)]), y=...),
                "passed over once only",
            ),
        },
    ),
    "mixture of experts": (
        others.experts,
        {
            "a name": (lambda m: _wrong(m, model=_with_params(kind="moe")), "is of type str"),
            "a number": (lambda m: _wrong(m, model=_with_params(top_k=1)), "has dtype int"),
            "x first": (
                lambda m: _wrong(m, model=lambda pair: (lambda x, p: pair[0](p, x), pair[1])),
                "with the parameters first",
            ),
            "a vector": (
                lambda m: gnjax.ntk((lambda p, x: x @ p, np.ones((3, 3))), np.ones(3)),
                "single sample; give x.None",
            ),
        },
    ),
    "deep equilibrium": (
        others.deq,
        {
            "a loop of any length": (lambda m: _wrong(m, model=_iterated), "custom_vjp"),
            "a root at zero": (
                lambda m: _wrong(m, model=_ending_in(lambda f: jnp.sqrt(f * 0))),
                "derivative of the model",
            ),
            "numpy": (lambda m: _wrong(m, model=_ending_in(np.tanh)), "jax.numpy in place of"),
            "kappa of a Hessian": (
                lambda m: gnjax.condition_number(_wrong(m, gnjax.hessian)),
                "gnjax.eigenvalues gives",
            ),
            "kappa of a model": (
                lambda m: gnjax.condition_number(_case(m).model),
                r"such as gnjax\.gauss_newton\(model, x\)",
            ),
        },
    ),
    "lora": (
        others.lora,
        {
            "a layer's type": (lambda m: _wrong(m, only=nnx.Linear), "no type of NNX variables"),
            "one pattern of two": (
                lambda m: _wrong(m, only=["*lora_a", "*lora_x"]),
                "'.lora_x' chooses no parameter",
            ),
            "a function of two": (
                lambda m: _wrong(m, only=lambda path, leaf: True),
                "the path of a parameter, one string",
            ),
        },
    ),
    "two heads": (
        others.two_heads,
        {
            "a loss of one array": (lambda m: _wrong(m, loss="cross_entropy"), "returns 2; pass a"),
            "another entry": (lambda m: _wrong(m, loss=_misspelt_loss), "no entry 'values'"),
            "weights of each": (lambda m: _wrong(m, weights={"class": 1}), "must be one array"),
            "a label too high": (
                lambda m: _wrong(m, y={"class": np.array([0, 1, 5]), "value": np.ones(3)}),
                "the loss is NaN",
            ),
        },
    ),
    "spectrum inside": (
        others.spectrum_inside,
        {
            "complex outputs": (lambda m: _wrong(m, model=_ending_in(jnp.fft.fft)), "modulus"),
            "batches in dicts": (
                lambda m: _wrong(m, x=lambda x: [{"x": x, "y": x}], y=...),
                r"a batch is a pair \(x, y\)",
            ),
            "batches of three": (
                lambda m: _wrong(m, x=lambda x: [(x, x, x)], y=...),
                "got tuple of 3",
            ),
        },
    ),
}
MADE = {"gpt": (language.gpt, GPT), "bert": (language.bert, BERT), **SEQUENCES, **IMAGES}
MADE |= {**OTHER_FRAMEWORKS, **OTHERS}
MISTAKES = {
    f"{model}: {name}": (made, call, words)
    for model, (made, found) in MADE.items()
    for name, (call, words) in found.items()
}


@pytest.fixture(autouse=True)
def _users_rely_on_rank_promotion():
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_in_one_sentence_that_says_what_to_do(mistake):
    made, call, words = MISTAKES[mistake]
    with pytest.raises(ValueError, match=words) as refusal:
        call(made)
    text = str(refusal.value)
    assert "\n" not in text
    assert 40 < len(text) < 600
    assert Path(refusal.traceback[-1].path).is_relative_to(Path(gnjax.__file__).parent)


def _leaving_out(f, y):
    return jnp.where(y < 0, 0, _integer_loss(f, jnp.maximum(y, 0)))


NO_MISTAKES = {
    "a loss of its own that leaves out -1": (
        lambda: _wrong(language.gpt, loss=_leaving_out),
        lambda: _wrong(language.gpt),
        2.0,  # over 2 samples, not over the 4 labels that count
    ),
    "log-probabilities": (
        lambda: _wrong(language.bert, model=_ending_in(jax.nn.log_softmax)),
        lambda: _wrong(language.bert),
        1.0,
    ),
    "labels of -1, 0 and 1": (
        lambda: _wrong(images.equinox_logistic, y=np.array([1, -1, 0])),
        lambda: _wrong(
            images.equinox_logistic, y=np.array([1, 1, 0]), weights=np.array([1.0, 0.0, 0.5])
        ),
        1.0,
    ),
    "a default that is no target": (
        lambda: _wrong(images.haiku_mlp, y=..., loss=lambda f, scale=3.0: scale * optax.l2_loss(f)),
        lambda: _wrong(images.haiku_mlp, y=..., loss="squared_error"),
        3.0,
    ),
}


@pytest.mark.parametrize("name", NO_MISTAKES)
def test_what_only_looks_like_a_mistake_is_taken(name):
    """Products with G, beside those of the same matrix asked for in other words."""
    call, other, factor = NO_MISTAKES[name]
    op, known = call(), other()
    v = np.random.default_rng(0).standard_normal(op.shape[0])
    expected = factor * np.asarray(known.mv(v))
    np.testing.assert_allclose(op.mv(v), expected, atol=1e-12 * np.linalg.norm(expected), rtol=0)
