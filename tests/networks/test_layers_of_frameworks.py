"""The matrices of attention and of recurrent cells are found as the frameworks write them."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import gnjax
from gnjax.networks import layers
from gnjax.networks.model import apply_and_outputs, apply_and_params
from gnjax.networks.parameters import paths

_N, _T, _D = 2, 3, 4
X = np.random.default_rng(0).standard_normal((_N, _T, _D))


@pytest.fixture(autouse=True)
def _users_rely_on_rank_promotion():
    with jax.numpy_rank_promotion("allow"):
        yield


def _nnx_attention():
    keys = {"num_heads": 2, "in_features": _D, "decode": False, "rngs": nnx.Rngs(0)}
    return nnx.MultiHeadAttention(**keys)


def _linen_attention():
    module = nn.MultiHeadDotProductAttention(2)
    return module, jax.jit(module.init)(jax.random.key(0), X.astype(np.float32))


def _linen_einsum():
    class Heads(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Einsum((_D, 2, 3), "ntd,dhe->nthe")(x)

    return Heads(), jax.jit(Heads().init)(jax.random.key(0), X)


def _equinox_attention():
    eqx = pytest.importorskip("equinox")
    attention = eqx.nn.MultiheadAttention(2, _D, key=jax.random.key(0))

    class Model(eqx.Module):
        attention: eqx.nn.MultiheadAttention

        def __call__(self, x):
            return self.attention(x, x, x)

    return Model(attention)


def _haiku_attention():
    hk = pytest.importorskip("haiku")

    def forward(x):
        initial = hk.initializers.VarianceScaling()
        return hk.MultiHeadAttention(2, 2, w_init=initial)(x, x, x)

    model = hk.transform(forward)
    return model, jax.jit(model.init)(jax.random.key(0), X)


def _nnx_recurrent():
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.rnn = nnx.RNN(nnx.GRUCell(_D, 3, rngs=rngs))

        def __call__(self, x):
            return self.rnn(x)

    return Model(nnx.Rngs(0))


def _linen_recurrent():
    module = nn.RNN(nn.LSTMCell(3))
    return module, jax.jit(module.init)(jax.random.key(0), X.astype(np.float32))


def _haiku_recurrent():
    hk = pytest.importorskip("haiku")

    def forward(x):
        core = hk.GRU(3)
        return hk.dynamic_unroll(core, x, core.initial_state(len(x)), time_major=False)[0]

    model = hk.transform(forward)
    return model, jax.jit(model.init)(jax.random.key(0), X)


def _equinox_recurrent():
    eqx = pytest.importorskip("equinox")
    cell = eqx.nn.LSTMCell(_D, 3, key=jax.random.key(0))

    class Model(eqx.Module):
        cell: eqx.nn.LSTMCell

        def __call__(self, x):
            start = (jnp.zeros(3), jnp.zeros(3))
            return jax.lax.scan(lambda c, row: (self.cell(row, c), None), start, x)[0][0]

    return Model(cell)


def _linen_scanned():
    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            return x + nn.Dense(_D)(nn.MultiHeadDotProductAttention(2)(x)), None

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            keys = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
            return nn.scan(nn.remat(Block), length=2, **keys)()(x, None)[0]

    return Model(), jax.jit(Model().init)(jax.random.key(0), X)


def _haiku_stacked():
    hk = pytest.importorskip("haiku")

    def forward(x):
        return hk.experimental.layer_stack(2)(lambda x: jnp.tanh(hk.Linear(_D)(x)))(x)

    model = hk.transform(forward)
    return model, jax.jit(model.init)(jax.random.key(0), X)


MODELS = {
    "attention of NNX": (_nnx_attention, 4),
    "attention of Linen": (_linen_attention, 4),
    "einsum of Linen": (_linen_einsum, 1),
    "attention of Equinox": (_equinox_attention, 4),
    "attention of Haiku": (_haiku_attention, 4),
    "gated unit of NNX": (_nnx_recurrent, 2),
    "long memory of Linen": (_linen_recurrent, 8),
    "gated unit of Haiku": (_haiku_recurrent, 2),
    "long memory of Equinox": (_equinox_recurrent, 2),
    "scanned blocks of Linen": (_linen_scanned, 5),
    "stacked layers of Haiku": (_haiku_stacked, 1),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_matrix_is_in_a_known_layer(name):
    make, matrices = MODELS[name]
    apply, params = apply_and_params(make(), X)
    apply, _ = apply_and_outputs(apply, params, X)
    leaves, structure = jax.tree.flatten(params)
    found = layers.traced_layers(
        lambda leaves, x: apply(jax.tree.unflatten(structure, list(leaves)), x), leaves, X[:1]
    )
    known = {layer.leaf for layer in found.layers}
    named = dict(enumerate(paths(params)))
    lost = [named[leaf] for leaf in named if leaf not in known]
    assert all(name.rpartition("/")[2] in ("b", "bias") for name in lost), lost
    assert len(known) == matrices


def test_an_operator_and_a_diagnosis_say_what_is_differentiated():
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.norm = nnx.LayerNorm(_D, rngs=rngs)
            self.first = nnx.Linear(_D, 3, rngs=rngs)
            self.last = nnx.Linear(3, 2, rngs=rngs)

        def __call__(self, x):
            return self.last(jnp.tanh(self.first(self.norm(x))))

    model, x = Model(nnx.Rngs(0)), X[:, 0]
    op = gnjax.ntk(model, x)
    assert "18 of 31 parameters in known layers, 2 samples of 2 outputs" in repr(op)
    assert "31 parameters, 2 samples" in repr(gnjax.hessian(model, x, x[:, :2]))
    assert "12 parameters, 2 samples" in repr(gnjax.ntk(model, x, only="first/kernel"))
    found = gnjax.diagnose(model, x)
    names = {"norm/scale", "norm/bias", "first/bias", "last/bias"}
    assert set(found.differentiated) == names
    words = "structure of their layers: 3 called bias, norm/scale"
    assert words in " ".join(str(found).split())
    assert type(found).from_json(found.to_json()).differentiated == found.differentiated
    params = {"matrix": np.ones((_D, 2)), "offset": np.ones(2)}
    coupled = gnjax.ntk((lambda p, x: (x - x.mean(0)) @ p["matrix"] + p["offset"][None], params), x)
    assert coupled.net.coupled
    assert "8 of 10 parameters in known layers, 2 coupled samples" in repr(coupled)
