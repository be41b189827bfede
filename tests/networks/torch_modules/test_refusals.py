"""Modules that have no function of JAX: one sentence each, with what to do."""

import numpy as np
import pytest

import gnjax

torch = pytest.importorskip("torch", reason="torch comes with gnjax[torch]")
nn, F = torch.nn, torch.nn.functional

from torch.nn.utils import prune  # noqa: E402

from tests.networks.torch_modules.test_comparison import Module, X  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning",
    "ignore::DeprecationWarning",
    "ignore::UserWarning",  # of PyTorch
)


def _used(module):
    module(torch.ones(1, 3))
    return module


def _pruned():
    layer = nn.Linear(3, 2)
    prune.l1_unstructured(layer, "weight", 0.3)
    return _used(nn.Sequential(layer))


def _hooked():
    layer = nn.Linear(3, 2)
    layer.weight.register_hook(lambda gradient: 0 * gradient)
    return layer


def _complex():
    module = nn.Linear(3, 2)
    module.weight = nn.Parameter(torch.ones(2, 3, dtype=torch.complex64))
    return module


def _quantised():
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 2)), {nn.Linear})


MADE = {
    "meta": (lambda: nn.Linear(3, 2, device="meta"), r"weight has no numbers.*to_empty"),
    "script": (lambda: torch.jit.script(nn.Linear(3, 2)), r"torch\.jit; give the module"),
    "trace": (lambda: torch.jit.trace(nn.Linear(3, 2), torch.ones(2, 3)), r"torch\.jit"),
    "quantised": (_quantised, r"0 \(Linear\) has weights of few bits"),
    "pruned": (_pruned, r"prune\.remove.*mask="),
    "weight_norm": (
        lambda: _used(nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 2)))),
        r"torch\.nn\.utils\.parametrizations",
    ),
    "hook of a parameter": (_hooked, r"weight has a hook \(register_hook\)"),
    "complex": (_complex, r"weight is complex; keep its real"),
}


@pytest.mark.parametrize("name", MADE)
def test_modules_without_numbers_to_differentiate_by_are_refused(name):
    make, said = MADE[name]
    with pytest.raises(ValueError, match=said):
        gnjax.from_torch(make(), dtype=np.float64)


def _derivative_in_forward(self, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad((self.layer(x) ** 2).sum(), x, create_graph=True)[0]


def _mapped_derivative(self, x):
    return torch.func.vmap(torch.func.grad(lambda sample: (self.layer(sample) ** 2).sum()))(x)


def _branches(self, x):
    return torch.cond(x.sum() > 0, lambda a: a * 2, lambda a: a * 3, (self.layer(x),))


FORWARD = {
    "data": (lambda self, x: self.layer(x).data * self.layer(x), r"x\.detach\(\) for x\.data"),
    "derivative": (_derivative_in_forward, r"no derivatives \(torch\.autograd\.grad"),
    "mapped": (_mapped_derivative, r"no derivatives"),
    "cond": (_branches, r"torch\.cond \(in Module\)"),
    "dropout": (
        lambda self, x: F.scaled_dot_product_attention(*[self.layer(x)[None]] * 3, dropout_p=0.5)[
            0
        ],
        r"dropout_p=self\.dropout if self\.training",
    ),
    "shape": (lambda self, x: self.layer(x[:, 1:]), r"at an x of shape \(4, 3\)"),
}


@pytest.mark.parametrize("name", FORWARD)
def test_what_export_cannot_follow_is_refused(name, capfd):
    forward, said = FORWARD[name]
    with pytest.raises(ValueError, match=said) as refusal:
        gnjax.ntk(gnjax.from_torch(Module(forward)), X)
    assert "issue" not in str(refusal.value)
    assert capfd.readouterr().err == ""


def test_frequencies_of_tokens_are_refused():
    module = nn.Embedding(5, 2, scale_grad_by_freq=True)
    with pytest.raises(ValueError, match="scale_grad_by_freq=True"):
        gnjax.ntk(gnjax.from_torch(module), np.array([[0, 1], [1, 4]]))
