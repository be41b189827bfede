"""Residual networks, built as torchvision's resnet18 and timm's resnet10t, beside torch.func."""

import numpy as np
import pytest

import gnjax
from gnjax.networks.network import differentiated

torch = pytest.importorskip("torch", reason="torch comes with gnjax[torch]")
nn, F = torch.nn, torch.nn.functional

pytestmark = [  # of torch.func
    pytest.mark.filterwarnings(f"ignore:.torch.jit:{kind}")
    for kind in ("DeprecationWarning", "FutureWarning")
]


def convolution(inputs, outputs, size, stride=1):
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut, whose own convolution stands behind an average or not."""

    def __init__(self, inputs, outputs, stride, *, averages):
        super().__init__()
        self.conv1, self.bn1 = convolution(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = convolution(outputs, outputs, 3), nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride > 1 and averages:
            pool = nn.AvgPool2d(2, stride, ceil_mode=True, count_include_pad=False)
            one = convolution(inputs, outputs, 1)
            self.downsample = nn.Sequential(pool, one, nn.BatchNorm2d(outputs))
        elif stride > 1:
            one = convolution(inputs, outputs, 1, stride)
            self.downsample = nn.Sequential(one, nn.BatchNorm2d(outputs))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.bn2(self.conv2(x))
        x += shortcut
        return F.relu(x, inplace=True)


class ResNet(nn.Module):
    """One wide convolution or three narrow ones, a maximum, blocks, a mean, a linear layer."""

    def __init__(self, widths, blocks, *, deep):
        super().__init__()
        first = widths[0]
        layers = [convolution(3, first, 7, 2)]
        if deep:
            pairs = [(3, 3, 2), (3, 4, 1), (4, first, 1)]
            layers = [convolution(i, o, 3, stride) for i, o, stride in pairs]
            norms = [[nn.BatchNorm2d(o), nn.ReLU(inplace=True)] for _, o, _ in pairs[:-1]]
            layers = [layers[0], *norms[0], layers[1], *norms[1], layers[2]]
        self.conv1, self.bn1 = nn.Sequential(*layers), nn.BatchNorm2d(first)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        made, inputs = [], first
        for stage, width in enumerate(widths):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                made.append(BasicBlock(inputs, width, stride, averages=deep))
                inputs = width
        self.layers = nn.Sequential(*made)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(inputs, 3)

    def forward(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x)), inplace=True))
        return self.fc(torch.flatten(self.avgpool(self.layers(x)), 1))


def made(**options):
    """The network in float64 with statistics as training leaves them."""
    torch.manual_seed(0)
    module = ResNet(**options).double()
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_(0, 0.3)
            norm.running_var.uniform_(0.5, 2)
            norm.weight.data.uniform_(0.5, 1.5)
    return module.eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"widths": (4, 6), "blocks": 2, "deep": False}, {"widths": (4, 6), "blocks": 1, "deep": True}],
    ids=["resnet18", "resnet10t"],
)
def test_hessian_and_kernel_are_those_of_torch_func(options):
    """Ten eigenvalues agree to 1e-10 of the largest, which is far above both roundings."""
    module = made(**options)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((4, 3, 19, 19)), np.array([0, 2, 1, 1])
    named = dict(module.named_parameters())
    sizes, theta = (
        [p.numel() for p in named.values()],
        nn.utils.parameters_to_vector(module.parameters()).detach(),
    )

    def outputs(v):
        parts = [t.view_as(p) for t, p in zip(v.split(sizes), named.values(), strict=True)]
        parts = dict(zip(named, parts, strict=True))
        return torch.func.functional_call(module, parts, (torch.from_numpy(x),))

    loss = lambda v: F.cross_entropy(outputs(v), torch.from_numpy(y))  # noqa: E731
    dense = torch.func.hessian(loss)(theta).numpy()
    values = np.linalg.eigvalsh((dense + dense.T) / 2)
    model = gnjax.from_torch(module)
    op = gnjax.hessian(model, x, y, loss="cross_entropy")
    v = rng.standard_normal(len(theta))
    np.testing.assert_allclose(op @ v, dense @ v, rtol=0, atol=1e-12 * np.abs(dense @ v).max())
    top = gnjax.eigenvalues(op, k=10)
    apart = np.abs(top.values - values[::-1][:10])
    assert apart.max() <= 1e-10 * values[-1]
    assert (apart <= top.errors + 1e-14 * values[-1]).all()
    jacobian = torch.func.jacrev(outputs)(theta).numpy().reshape(12, -1)
    kernel = gnjax.ntk(model, x)
    assert sum(differentiated(kernel.net).values()) < 0.2 * len(theta)  # scales of BatchNorm
    exact = jacobian @ jacobian.T
    np.testing.assert_allclose(kernel.as_matrix(), exact, rtol=0, atol=1e-12 * np.abs(exact).max())
