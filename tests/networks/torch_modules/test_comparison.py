"""A translation that is not the module is refused, whatever the cause."""

import random
import sys
import threading
import warnings
from logging import root as root_logger

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.networks.torch_modules.operators import OPERATORS

torch = pytest.importorskip("torch", reason="torch comes with gnjax[torch]")
nn, F = torch.nn, torch.nn.functional

X = np.random.default_rng(0).standard_normal((4, 3))
IMAGES = np.random.default_rng(0).standard_normal((2, 2, 6, 6))


class Module(nn.Module):
    """A layer, and a forward that is given."""

    def __init__(self, forward):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 2, dtype=torch.float64)
        self.how = forward

    def forward(self, x):
        return self.how(self, x)


def scaled(rule, *args, **kwargs):
    return jax.tree.map(lambda a: a * 1.0001, rule(*args, **kwargs))


def detached(rule, *args, **kwargs):
    return jax.tree.map(jax.lax.stop_gradient, rule(*args, **kwargs))


def sequence(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*layers).double()


WRONG = {
    "linear": (scaled, lambda: sequence(nn.Linear(3, 2)), X),
    "tanh": (detached, lambda: sequence(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), X),
    "relu": (scaled, lambda: sequence(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), X),
    "gelu": (detached, lambda: sequence(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)), X),
    "convolution": (scaled, lambda: sequence(nn.Conv2d(2, 2, 3), nn.Flatten()), IMAGES),
    "max_pool2d_with_indices": (
        lambda rule, *args: (0.5 * rule(*args)[0], None),
        lambda: sequence(nn.Conv2d(2, 2, 3), nn.MaxPool2d(2), nn.Flatten()),
        IMAGES,
    ),
    "native_layer_norm": (
        lambda rule, *args: (scaled(lambda *a: rule(*a)[0], *args), None, None),
        lambda: sequence(nn.Linear(3, 4), nn.LayerNorm(4)),
        X,
    ),
    "_softmax": (detached, lambda: sequence(nn.Linear(3, 4), nn.Softmax(-1)), X),
    "embedding": (
        scaled,
        lambda: sequence(nn.Embedding(5, 2), nn.Flatten()),
        np.array([[0, 3], [4, 1]]),
    ),
    "scaled_dot_product_attention": (
        scaled,
        lambda: sequence(nn.TransformerEncoderLayer(4, 2, 5, batch_first=True)),
        X.reshape(1, 3, 4),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_rule_that_is_wrong_is_refused_by_name(name, monkeypatch):
    """Ten operators, wrong by 1e-4 or in their derivative alone."""
    breaks, module, x = WRONG[name]
    rule = OPERATORS[name]
    monkeypatch.setitem(OPERATORS, name, lambda *args, **kwargs: breaks(rule, *args, **kwargs))
    with pytest.raises(ValueError, match=rf"is not the module.*operator {name} \(in "):
        gnjax.ntk(gnjax.from_torch(module()), x)


class _Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def _in_inference_mode(self, x):
    with torch.inference_mode():
        held = self.layer(x)
    return self.layer(x) + held


def _clipped_weights(self, x):
    with torch.no_grad():
        self.layer.weight.clamp_(-0.3, 0.3)
    return self.layer(x)


def _with_a_hook(self, x):
    found = self.layer(x)
    found.register_hook(lambda gradient: 3 * gradient)
    return found * x[:, :1]


LOST = {
    "detach_": lambda self, x: self.layer(x) + (self.layer(x) * 2).detach_(),
    "inference mode": _in_inference_mode,
    "weights in place": _clipped_weights,
    "hook": _with_a_hook,
    "derivative by hand": lambda self, x: self.layer(x) + _Sign.apply(self.layer(x)),
}


@pytest.mark.parametrize("name", LOST)
def test_what_export_loses_is_refused(name):
    """The derivative of some parameter is named, and what there is to look for."""
    with pytest.raises(ValueError, match=r"derivative by layer\.\w+ differs.*torch\.export"):
        gnjax.ntk(gnjax.from_torch(Module(LOST[name])), X)


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def cancelling(start):
    """A chain that makes a rounding ``start`` times larger, though each of its steps is exact."""
    torch.manual_seed(0)
    return sequence(nn.Linear(3, 2), Applied(lambda x: (x + start) - start), nn.Tanh())


@pytest.mark.parametrize("start", [1e3, 1e5, 1e7, 1e9])
def test_rounding_that_the_module_amplifies_is_no_difference(start):
    kernel = gnjax.ntk(gnjax.from_torch(cancelling(start)), X).as_matrix()
    exact = gnjax.ntk(gnjax.from_torch(cancelling(0.0)), X).as_matrix()
    roundings = 10 * start * np.finfo(float).eps
    np.testing.assert_allclose(kernel, exact, rtol=0, atol=roundings * np.abs(exact).max())


def test_a_wrong_rule_is_refused_where_rounding_is_amplified(monkeypatch):
    rule = OPERATORS["linear"]
    monkeypatch.setitem(OPERATORS, "linear", lambda *args: scaled(rule, *args))
    with pytest.raises(ValueError, match=r"is not the module.*operator linear \(in "):
        gnjax.ntk(gnjax.from_torch(cancelling(1e7)), X)


def test_what_export_loses_is_not_blamed_on_an_operator_that_cancels():
    """The derivative of LayerNorm is 1e-5 of the numbers that it is the difference of."""
    lost = Applied(lambda x: x + (2 * x).detach_())
    module = sequence(nn.Linear(3, 2), lost, nn.LayerNorm(2), nn.LayerNorm(2))
    with pytest.raises(ValueError, match=r"derivative by 0\.bias differs.*torch\.export"):
        gnjax.ntk(gnjax.from_torch(module), X)


def test_a_tie_that_rounding_decides_is_named_so():
    """The two entries that LayerNorm gives have the same size, but for rounding."""
    over_largest = Applied(lambda x: x / (1 + torch.linalg.vector_norm(x, torch.inf, -1, True)))
    module = sequence(nn.Linear(3, 2), nn.LayerNorm(2), over_largest)
    with pytest.raises(ValueError, match=r"cannot be compared.*kink or of a tie"):
        gnjax.ntk(gnjax.from_torch(module), X)


def _times_product(self, x):
    wide = 70_000 * torch.ones(2, dtype=torch.int64)
    return self.layer(x) * (wide * wide % 7).to(x.dtype)


WIDE_INTEGERS = {
    "of a buffer": (lambda s, x: s.layer(x) * s.start / 1e9, r"from 3000000000 to 3000000007"),
    "of a remainder": (lambda s, x: s.layer(x) * (s.start % 7), r"operator remainder.*int32"),
    "of a product": (_times_product, r"operator mul .*4900000000"),
    "written down": (lambda s, x: s.layer(x) * (s.start - 3_000_000_000), r"operator sub "),
}


@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode:UserWarning")
@pytest.mark.parametrize("name", WIDE_INTEGERS)
def test_integers_that_jax_wraps_in_32_bits_are_named(name):
    forward, said = WIDE_INTEGERS[name]
    module = Module(forward)
    module.register_buffer("start", torch.tensor([3_000_000_000, 3_000_000_007]))
    gnjax.ntk(gnjax.from_torch(module), X)  # in 64 bits
    with jax.enable_x64(False), pytest.raises(ValueError, match=said + r".*enable_x64\(\)"):
        gnjax.ntk(gnjax.from_torch(module, dtype=jnp.float32), X.astype(np.float32))


def test_a_right_derivative_by_hand_is_taken():
    kernel = gnjax.ntk(gnjax.from_torch(Module(lambda s, x: _Twice.apply(s.layer(x)))), X)
    exact = gnjax.ntk(gnjax.from_torch(Module(lambda s, x: 2 * s.layer(x))), X)
    np.testing.assert_allclose(kernel.as_matrix(), exact.as_matrix(), rtol=1e-14)


@pytest.mark.parametrize(
    "draw",
    [random.random, lambda: np.random.rand(), lambda: torch.rand(()).item()],  # noqa: NPY002
    ids=["random", "numpy", "torch"],
)
def test_random_numbers_are_refused_and_the_next_one_of_the_caller_stays(draw):
    module = Module(lambda self, x: self.layer(x) * draw())
    random.seed(0), np.random.seed(0), torch.manual_seed(0)  # noqa: NPY002
    expected = random.random(), np.random.rand(), torch.rand(()).item()  # noqa: NPY002
    random.seed(0), np.random.seed(0), torch.manual_seed(0)  # noqa: NPY002
    with pytest.raises(ValueError, match=r"random numbers|does not know"):
        gnjax.ntk(gnjax.from_torch(module), X)
    assert (random.random(), np.random.rand(), torch.rand(()).item()) == expected  # noqa: NPY002


def test_every_operator_is_compared_and_functions_around_the_module_too(monkeypatch):
    """A rule that is wrong at a kink alone: the samples of the first operator do not meet it."""
    monkeypatch.setitem(OPERATORS, "relu", lambda x: jnp.where(x >= 0, x, 0.0))
    module = sequence(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2))
    nn.init.zeros_(module[0].bias)
    apply, params = gnjax.from_torch(module)
    at_kink = np.concatenate([np.zeros((1, 3)), X])
    for function in (apply, lambda p, x: 2 * apply(p, x)):
        gnjax.ntk((function, params), X)
        with pytest.raises(ValueError, match=r"operator relu \(in 1, ReLU\)"):
            gnjax.ntk((function, params), at_kink)


def test_the_callers_switches_stay_and_do_not_matter():
    module = sequence(nn.Linear(3, 2), nn.Tanh())
    expected = gnjax.ntk(gnjax.from_torch(module), X).as_matrix()
    with torch.no_grad():
        found = gnjax.ntk(gnjax.from_torch(module), X).as_matrix()
        assert not torch.is_grad_enabled()
    np.testing.assert_array_equal(found, expected)
    assert all(p.grad is None for p in module.parameters())


def test_threads_share_nothing_that_stays():
    before = sys.stderr, list(warnings.filters), root_logger.manager.disable
    refused = []

    def work(width):
        module = sequence(nn.Linear(3, width), nn.Tanh())
        gnjax.ntk(gnjax.from_torch(module), X)
        try:
            gnjax.ntk(gnjax.from_torch(Module(lambda s, x: x if x.sum() > 0 else s.layer(x))), X)
        except ValueError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=work, args=(width,)) for width in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert before == (sys.stderr, list(warnings.filters), root_logger.manager.disable)
    assert len(refused) == 2
