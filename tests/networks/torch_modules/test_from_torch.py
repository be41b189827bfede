"""Modules of PyTorch as their users write them, beside torch.func."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax

torch = pytest.importorskip("torch", reason="torch comes with gnjax[torch]")
nn, F = torch.nn, torch.nn.functional

pytestmark = [  # of torch.func
    pytest.mark.filterwarnings(f"ignore:.torch.jit:{kind}")
    for kind in ("DeprecationWarning", "FutureWarning")
]

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 3))
IMAGES = RNG.standard_normal((3, 2, 6, 6))


class Module(nn.Module):
    """A layer, and a forward that is given."""

    def __init__(self, forward=lambda self, x: self.layer(x)):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 2, dtype=torch.float64)
        self.how = forward

    def forward(self, x):
        return self.how(self, x)


def convolutional():
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    layers = nn.Conv2d(2, 4, 3), norm, nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    return nn.Sequential(*layers).double()


def of_flat(module, x):
    """The module in evaluation mode as a function of its vector of parameters, and this vector."""
    module.eval()
    named = dict(module.named_parameters())
    sizes = [p.numel() for p in named.values()]

    def function(v):
        parts = [t.view_as(p) for t, p in zip(v.split(sizes), named.values(), strict=True)]
        return torch.func.functional_call(
            module, dict(zip(named, parts, strict=True)), (torch.from_numpy(x),)
        )

    return function, nn.utils.parameters_to_vector(named.values()).detach()


def outputs(model, x):
    apply, params = model
    return np.asarray(jax.jit(apply)(params, x))


def test_spectra_are_those_of_torch_func():
    """Each is a few hundred roundings of 1e-16 from exact, relative to the largest."""
    module, y = convolutional(), np.array([0, 2, 1])
    function, theta = of_flat(module, IMAGES)
    model = gnjax.from_torch(module)
    jacobian = torch.func.jacrev(lambda v: function(v).ravel())(theta).numpy()
    singular = np.linalg.svd(jacobian, compute_uv=False)
    op = gnjax.ntk(model, IMAGES)
    np.testing.assert_allclose(
        gnjax.condition_number(op).value, (singular[0] / singular[-1]) ** 2, rtol=1e-10
    )
    loss = lambda v: F.cross_entropy(function(v), torch.from_numpy(y))  # noqa: E731
    hessian = np.linalg.eigvalsh(torch.func.hessian(loss)(theta).numpy())[::-1]
    found = gnjax.eigenvalues(gnjax.hessian(model, IMAGES, y, loss="cross_entropy"), k=10)
    np.testing.assert_allclose(
        np.sort(found.values)[::-1], hessian[:10], rtol=0, atol=1e-10 * hessian[0]
    )
    blocks = gnjax.block_spectra(gnjax.gauss_newton(model, IMAGES))
    last = np.linalg.svd(jacobian[:, -51:], compute_uv=False) ** 2 / len(IMAGES)  # 9 rows
    values = np.sort(blocks["5"].spectrum.values)[::-1]
    np.testing.assert_allclose(values[:9], last, rtol=0, atol=1e-12 * last[0])
    np.testing.assert_allclose(values[9:], 0, atol=1e-12 * last[0])


def test_layers_are_known_and_vectors_are_in_the_order_of_pytorch():
    module = convolutional()
    _, params = model = gnjax.from_torch(module)
    op = gnjax.gauss_newton(model, IMAGES)
    assert "120 of 135 parameters in known layers" in repr(op)  # all but biases and BatchNorm's
    assert list(params) == ["0", "1", "5"]
    vector = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    np.testing.assert_array_equal(op.ravel(params), vector)


def test_the_module_of_the_caller_stays_as_it_is():
    module = convolutional().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    apply, params = gnjax.from_torch(module)
    outputs((apply, params), IMAGES)
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    kept = outputs((apply, params), IMAGES)
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.zero_()
    np.testing.assert_array_equal(outputs((apply, params), IMAGES), kept)


def test_any_number_of_samples_goes_in():
    """One graph serves all sizes; a module that asks for the size has one for each."""
    for forward, graphs in (
        (lambda self, x: self.layer(x), 1),
        (lambda self, x: self.layer(x) + (1 if len(x) > 2 else 0), 3),
    ):
        module = Module(forward)
        apply, params = gnjax.from_torch(module)
        for n in (4, 1, 3, 4):
            expected = module(torch.from_numpy(X[:n])).detach().numpy()
            np.testing.assert_allclose(outputs((apply, params), X[:n]), expected, rtol=1e-14)
        assert len(apply.func.programs) == graphs


def test_parameters_have_the_dtype_that_is_asked_for():
    module = Module().float()
    apply, params = gnjax.from_torch(module)
    assert params["layer"]["weight"].dtype == jnp.float32
    assert apply(params, X).dtype == jnp.float32
    wide = gnjax.from_torch(module, dtype=jnp.float64)
    expected = module.double()(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(outputs(wide, X), expected, rtol=1e-14)


def test_numbers_of_half_the_bits_go_over():
    module = Module().to(torch.bfloat16)
    _, params = gnjax.from_torch(module)
    expected = module.layer.weight.detach().double().numpy()
    np.testing.assert_array_equal(params["layer"]["weight"].astype(jnp.float64), expected)


def test_shared_parameters_are_one():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5, 3, dtype=torch.float64)
            self.head = nn.Linear(3, 5, bias=False, dtype=torch.float64)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(torch.tanh(self.embed(tokens)))

    module, tokens = Tied(), np.array([[0, 3], [4, 1]])
    apply, params = model = gnjax.from_torch(module)
    assert jax.tree.map(np.shape, params) == {"embed": {"weight": (5, 3)}}
    function, theta = of_flat(module, tokens)
    expected = torch.func.jacrev(function)(theta).reshape(20, 15).numpy()
    jacobian = jax.jacrev(lambda p: apply(p, tokens))(params)["embed"]["weight"].reshape(20, 15)
    np.testing.assert_allclose(jacobian, expected, rtol=1e-12, atol=1e-14)
    assert " 15 parameters, " in repr(gnjax.gauss_newton(model, tokens))  # all in known layers


def test_what_requires_no_gradient_is_held_fixed():
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).double()
    module[0].requires_grad_(False)
    apply, params = gnjax.from_torch(module)
    assert list(params) == ["1"]
    expected = module(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(outputs((apply, params), X), expected, rtol=1e-14)
    with pytest.raises(ValueError, match="requires_grad_"):
        gnjax.from_torch(module.requires_grad_(False))


def test_what_is_detached_has_no_derivative():
    """The graph forgets ``torch.no_grad()``: its region must be cut off by hand."""

    def forward(self, x):
        found = self.layer(x)
        with torch.no_grad():
            scale = self.layer(x) * 2
        return found * scale + found.detach() ** 2

    module = Module(forward)
    apply, params = gnjax.from_torch(module)
    function, theta = of_flat(module, X)
    expected = torch.func.jacrev(function)(theta).reshape(8, 8).numpy()
    found = jax.jacrev(lambda p: apply(p, X).ravel())(params)["layer"]
    jacobian = np.concatenate([found["weight"].reshape(8, 6), found["bias"].reshape(8, 2)], 1)
    np.testing.assert_allclose(jacobian, expected, rtol=1e-13, atol=1e-14)


def test_inputs_reach_the_arguments_that_they_name():
    class Scaled(Module):
        def forward(self, x, scale=None):
            return self.layer(x) * scale

    module, scale = Scaled(), np.arange(1.0, 5.0)[:, None]
    expected = module(torch.from_numpy(X), torch.from_numpy(scale)).detach().numpy()
    apply, params = gnjax.from_torch(module)
    for x in ((X, scale), {"x": X, "scale": scale}):
        np.testing.assert_allclose(outputs((apply, params), x), expected, rtol=1e-14)
    whole = Module(lambda self, batch: self.layer(batch["x"]) * batch["scale"])
    found = outputs(gnjax.from_torch(whole), {"x": X, "scale": scale})
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_one_of_several_outputs_is_chosen():
    def forward(self, x):
        found = self.layer(x)
        return {"logits": found, "hidden": x * 2}

    module = Module(forward)
    expected = module.layer(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(outputs(gnjax.from_torch(module), X), expected, rtol=1e-14)
    hidden = gnjax.from_torch(module, output="hidden")
    np.testing.assert_allclose(outputs(hidden, X), 2 * X)
    both = gnjax.from_torch(module, output=lambda out: out["logits"] + out["hidden"][:, :2])
    np.testing.assert_allclose(outputs(both, X), expected + 2 * X[:, :2], rtol=1e-14)
    with pytest.raises(ValueError, match=r"output='lost'.*logits \(n, 2\), hidden \(n, 3\)"):
        gnjax.ntk(gnjax.from_torch(module, output="lost"), X)
    unnamed = Module(lambda self, x: (self.layer(x), x))
    with pytest.raises(ValueError, match=r"0 \(n, 2\), 1 \(n, 3\); say which"):
        gnjax.ntk(gnjax.from_torch(unnamed), X)
    np.testing.assert_allclose(outputs(gnjax.from_torch(unnamed, output=1), X), X)


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        (lambda self, x: torch.special.i0(self.layer(x)), r"i0 \(in Module\); put"),
        (lambda self, x: self.layer(x) if x.sum() > 0 else x, r"values of tensors.*torch\.where"),
        (lambda self, x: F.dropout(self.layer(x), 0.5), r"random numbers.*training=self\.training"),
        (lambda self, x: self.layer(x[:, 1:]), r"at an x of shape \(4, 3\)"),
    ],
    ids=["operator", "decision", "random", "shape"],
)
def test_what_has_no_graph_is_refused_by_name(forward, said, capfd):
    with pytest.raises(ValueError, match=said):
        gnjax.ntk(gnjax.from_torch(Module(forward)), X)
    assert capfd.readouterr().err == ""


def test_what_is_no_module_is_refused():
    with pytest.raises(ValueError, match=r"takes a torch\.nn\.Module; got dict"):
        gnjax.from_torch({})
