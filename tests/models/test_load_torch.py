"""load_torch: outputs are those that PyTorch stored, and weights that do not fit are refused."""

import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gnjax.models import MLP, VGG, ResNet, ViT, load_torch, safetensors
from tests.models import outputs

_KEY = jax.random.key(0)
_MODELS = {
    "resnet": lambda: ResNet(14, 4, width=2, key=_KEY),
    "resnet_zeros": lambda: ResNet(14, 4, width=2, shortcut="zeros", key=_KEY),
    "vgg": lambda: VGG(8, 4, filters=(3, 5), key=_KEY),
    "vit": lambda: ViT(8, 4, patch=4, width=6, depth=2, heads=2, key=_KEY),
}
_PAPERS = {  # from the usual names to those of the code that paper A used
    "resnet": [
        (r"^conv1\.", "conv1.0."),
        (r"^bn1\.", "conv1.1."),
        (r"(layer.*)\.conv1\.", r"\1.conv_bn_relu1.0."),
        (r"(layer.*)\.bn1\.", r"\1.conv_bn_relu1.1."),
        (r"(layer.*)\.conv2\.", r"\1.conv_bn2.0."),
        (r"(layer.*)\.bn2\.", r"\1.conv_bn2.1."),
        (r"\.shortcut\.", ".down_sampler."),
        (r"^linear\.", "fc."),
    ],
    "vgg": [(r"^features\.", "layers."), (r"^classifier\.", "fc1.")],
}


def _path(name):
    return Path(__file__).parents[1] / "fixtures" / f"torch_{name}.safetensors"


def _state(name):
    return safetensors.read_tensors(_path(name))


def _renamed(state, rules):
    found = {}
    for name, array in state.items():
        for pattern, new in rules:
            name = re.sub(pattern, new, name)
        found[name] = array
    return found


def _stored(name):
    """The images, channels last, and the outputs that the note in the file holds."""
    content = _path(name).read_bytes()
    length = int.from_bytes(content[:8], "little")
    note = json.loads(content[8 : 8 + length])["__metadata__"]
    images = np.array(json.loads(note["images"])).transpose(0, 2, 3, 1)
    return images, np.array(json.loads(note["outputs"]))


def _assert_outputs_are_torchs(model, name, rtol=1e-12):
    """Both compute in float64, some 15 layers deep with sums of at most 75 terms."""
    images, torchs = _stored(name)
    found = outputs(model, images)
    np.testing.assert_allclose(found, torchs, rtol=0, atol=rtol * np.abs(torchs).max())


def _float32():
    """The option of jax that these tests otherwise set to 64 bit."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(False)
    return jax.experimental.disable_x64()


class _Tensor:
    """What load_torch uses of a tensor that requires gradients and lies on some device."""

    def __init__(self, array, state="attached"):
        self.array, self.state = array, state

    def detach(self):
        return _Tensor(self.array, "detached")

    def cpu(self):
        return _Tensor(self.array, {"detached": "here"}.get(self.state, self.state))

    def is_floating_point(self):
        return self.array.dtype.kind == "f"

    def double(self):
        return _Tensor(self.array.astype(np.float64), self.state)

    def numpy(self):
        assert self.state == "here"
        return self.array


@pytest.mark.parametrize("name", _MODELS)
def test_a_file_gives_torchs_outputs(name):
    model = _MODELS[name]()
    loaded = load_torch(model, str(_path(name)))
    _assert_outputs_are_torchs(loaded, name)
    images, torchs = _stored(name)
    assert not np.allclose(outputs(model, images), torchs)  # it is filled as a copy
    for leaf in jax.tree.leaves(nnx.state(loaded)):
        assert leaf.dtype == np.float64 or not jnp.issubdtype(leaf.dtype, jnp.floating)


@pytest.mark.parametrize("name", _MODELS)
def test_a_state_dict_of_tensors_does_too(name):
    state = {f"module.{key}": _Tensor(array) for key, array in _state(name).items()}
    _assert_outputs_are_torchs(load_torch(_MODELS[name](), state), name)


@pytest.mark.parametrize("name", _PAPERS)
def test_the_names_of_the_papers_code_are_known(name):
    state = _renamed(_state(name), _PAPERS[name])
    assert not state.keys() & (_state(name).keys() - {"conv1.weight"})
    _assert_outputs_are_torchs(load_torch(_MODELS[name](), state), name)


def test_names_of_torchvision_are_known():
    state = _renamed(_state("resnet"), [(r"\.shortcut\.", ".downsample."), (r"^linear\.", "fc.")])
    _assert_outputs_are_torchs(load_torch(_MODELS["resnet"](), state), "resnet")


def test_attention_with_separate_heads():
    """Rows of the stacked projection: queries of head 0, of head 1, then keys, then values."""
    state = {}
    for name, array in _state("vit").items():
        before, stacked, kind = name.partition("qkv_projection.")
        if not stacked:
            state[name] = array
            continue
        parts = iter(np.split(array, 6))
        for part in ("query", "key", "value"):
            for head in range(2):
                state[f"{before}heads.{head}.{part}.{kind}"] = next(parts)
    _assert_outputs_are_torchs(load_torch(_MODELS["vit"](), state), "vit")
    with pytest.raises(ValueError, match=r"heads\.0\.key"):
        load_torch(ViT(8, 4, patch=4, width=6, depth=2, heads=3, key=_KEY), state)


@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
def test_a_float32_model_keeps_its_type():
    with _float32():
        loaded = load_torch(_MODELS["vgg"](), _path("vgg"))
        images, torchs = _stored("vgg")
        found = outputs(loaded, images.astype(np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, torchs, rtol=0, atol=1e-5 * np.abs(torchs).max())


def test_layers_of_the_sizes_of_the_papers_have_their_names():
    """ResNet20 of width 16: shapes of every array as the public implementation has them."""
    state = {"conv1.weight": (16, 3, 3, 3), "linear.weight": (10, 64), "linear.bias": (10,)}

    def norm(name, filters):
        for kind in ("weight", "bias", "running_mean", "running_var"):
            state[f"{name}.{kind}"] = (filters,)

    norm("bn1", 16)
    before = 16
    for stage, filters in ((1, 16), (2, 32), (3, 64)):
        for block in range(3):
            name = f"layer{stage}.{block}"
            state[f"{name}.conv1.weight"] = (filters, before, 3, 3)
            state[f"{name}.conv2.weight"] = (filters, filters, 3, 3)
            norm(f"{name}.bn1", filters)
            norm(f"{name}.bn2", filters)
            before = filters
    state = {name: np.full(shape, 0.5) for name, shape in state.items()}
    loaded = load_torch(ResNet(20, 10, shortcut="zeros", key=_KEY), state)
    for leaf in jax.tree.leaves(nnx.state(loaded, nnx.Param)):
        np.testing.assert_array_equal(leaf, 0.5)


def _without(state, *names):
    return {name: array for name, array in state.items() if name not in names}


_VGG = _state("vgg")


@pytest.mark.parametrize(
    ("model", "state", "words"),
    [
        (
            "vgg",
            _without(_VGG, "features.5.running_var", "classifier.bias") | {"extra": np.ones(2)},
            r"of this VGG: not found in state: classifier.bias, features.5.running_var; "
            r"in state and not used: extra\. Make",
        ),
        ("vgg", _VGG | {"features.0.bias": np.ones(4)}, r"features.0.bias .* \(4,\) in .* \(3,\)"),
        (
            "vgg",
            _VGG | {"classifier.weight": _VGG["classifier.weight"].T},
            r"classifier.weight has shape \(20, 4\) in place of \(4, 20\)",
        ),
        (
            "vgg",
            _VGG | {"features.4.weight": _VGG["features.4.weight"].transpose(2, 3, 1, 0)},
            r"features.4.weight has shape \(3, 3, 3, 5\) in place of \(5, 3, 3, 3\)",
        ),
        ("vgg", {}, "not found in state: .* and 6 more"),
        ("resnet_zeros", _path("resnet"), "not used: layer2.0.shortcut.0.weight, .* and 2 more"),
        ("resnet", _path("resnet_zeros"), "not found in state: layer2.0.shortcut.0.weight, .*"),
        ("vit", _path("vgg"), "not found in state: .*; in state and not used: "),
        ("vit", _state("vit") | {"norm.weight": np.ones(6)}, "not used: norm.weight"),
        (
            "vit",
            _without(_state("vit"), "encoder.blocks.1.attention.qkv_projection.bias"),
            "not found in state: encoder.blocks.1.attention.key.bias",
        ),
        ("vgg", {"epoch": 3, "state_dict": _VGG}, "epoch is int"),
        ("vgg", {"state_dict": _VGG, "epoch": 3}, r"checkpoint; pass state\['state_dict'\]"),
        ("vgg", _VGG | {"features.0.bias": np.ones(3, int)}, "features.0.bias is int64"),
        ("vgg", _VGG | {"module.features.0.bias": np.ones(3)}, "features.0.bias comes twice"),
        ("vgg", "weights.pt", "torch.load"),
        ("vgg", [1, 2], "state is list"),
    ],
)
def test_weights_that_do_not_fit_are_refused(model, state, words):
    made = _MODELS[model]()
    before = nnx.state(made)
    with pytest.raises(ValueError, match=words):
        load_torch(made, state)
    jax.tree.map(np.testing.assert_array_equal, before, nnx.state(made))


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="not MLP"):
        load_torch(MLP((2, 3), key=_KEY), {})
