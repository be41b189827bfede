"""Closed forms under BatchNorm and LayerNorm, against models, many digits and their ranks."""

from __future__ import annotations

import jax
import mpmath
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

import gnjax
from gnjax import papers
from gnjax.models.mlp import MLP, freeze_statistics, mlp_weights
from gnjax.operators import Factored
from gnjax.papers.closed_form import normalised
from tests import references

KINDS = ("batch", "frozen", "initial", "layer")


def _closed(kind: str, v: object, w: object, x: np.ndarray, epsilon: float) -> Factored:
    if kind == "layer":
        return normalised.layer_norm_gauss_newton(v, w, x, epsilon=epsilon)
    return normalised.batch_norm_gauss_newton(v, w, x, statistics=kind, epsilon=epsilon)


def _model(kind: str, sizes: tuple[int, int, int], seed: int, epsilon: float) -> MLP:
    """The library's network, in training mode, whose BatchNorm couples the samples.

    With the initial statistics it is in evaluation mode, as it was made.
    """
    norm = "layer" if kind == "layer" else "batch"
    key = jax.random.key(seed)
    model = MLP(sizes, activation="linear", bias=False, norm=norm, key=key)
    model.norm1.epsilon = epsilon
    model.eval() if kind == "initial" else model.train()
    return model


_jacobian = jax.jit(references.jacobian)


def _draw(seed: int, d: int, m: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """V and W."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, d)), rng.standard_normal((k, m))


def _samples(seed: int, n: int, d: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)) + 1.0


@settings(max_examples=15)
@given(
    kind=st.sampled_from(KINDS),
    sizes=st.sampled_from([(3, 8, 2), (4, 3, 5)]),
    n=st.sampled_from([5, 25]),
    epsilon=st.sampled_from([1e-5, 0.3]),
    seed=st.integers(0, 2**16),
)
def test_the_closed_form_is_that_of_the_model(
    kind: str, sizes: tuple[int, int, int], n: int, epsilon: float, seed: int
) -> None:
    """All non-zero eigenvalues beside those of 1/n J^T J with the whole batch differentiated."""
    x = _samples(seed, n, sizes[0])
    model = _model(kind, sizes, seed, epsilon)
    v, w = mlp_weights(model)
    if kind == "frozen":
        model = freeze_statistics(model, x)
    jacobian = _jacobian(*gnjax.functional(model), jax.device_put(x))
    whole = np.linalg.svd(jacobian, compute_uv=False) / n**0.5
    ours = np.linalg.svd(_closed(kind, v, w, x, epsilon).factor, compute_uv=False)
    size = max(len(whole), len(ours))
    whole, ours = (np.pad(s, (0, size - len(s))) for s in (whole, ours))
    np.testing.assert_allclose(ours, whole, rtol=0, atol=1e-11 * whole[0])


def test_and_that_of_the_engine_for_whole_batches() -> None:
    """``gnjax.gauss_newton`` on the model in training mode; its rank, found by a gap, too."""
    sizes, x = (4, 10, 3), _samples(0, 20, 4)
    model = _model("batch", sizes, 0, 1e-5)
    ours = gnjax.condition_number(_closed("batch", *mlp_weights(model), x, 1e-5))
    theirs = gnjax.condition_number(gnjax.gauss_newton(model, x, side="parameters"))
    assert ours.rank == theirs.rank == normalised.batch_norm_rank(4, 3, 10)
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-9)


@settings(max_examples=40)
@given(
    kind=st.sampled_from(KINDS[:-1]),
    d=st.integers(2, 6),
    k=st.integers(1, 5),
    m=st.integers(1, 9),
    seed=st.integers(0, 2**16),
)
def test_the_rank_under_batch_norm(kind: str, d: int, k: int, m: int, seed: int) -> None:
    """p less the directions that change nothing, counted by singular values.

    The numbers above the errors are those that theory says, whatever is narrow.
    """
    x = _samples(seed, 30, d)
    v, w = _draw(seed + 1, d, m, k)
    found = papers.rank_sensitivity(gnjax.eigenvalues(_closed(kind, v, w, x, 1e-5)))
    assert found.floor_rank == normalised.batch_norm_rank(d, k, m) <= m * (d + k + 2)


@settings(max_examples=40)
@given(
    d=st.sampled_from([3, 4]),
    extra=st.integers(1, 4),
    k=st.sampled_from([2, 3]),
    few=st.booleans(),
    epsilon=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 2**16),
)
def test_the_rank_under_layer_norm(
    d: int, extra: int, k: int, few: bool, epsilon: float, seed: int
) -> None:
    """At epsilon = 0 the scale of V changes nothing; else only while the b_j are arbitrary."""
    pairs = d * (d + 1) // 2
    x = _samples(seed, pairs if few else 3 * pairs, d)
    v, w = _draw(seed + 1, d, d + extra, k)
    op = _closed("layer", v, w, x, epsilon)
    sigma = np.linalg.svd(op.factor, compute_uv=False)
    expected = normalised.layer_norm_rank(d, k, d + extra, len(x), epsilon)
    assert (sigma > 1e-11 * sigma[0]).sum() == expected


def test_a_jacobian_has_no_higher_rank_than_rows() -> None:
    v, w = _draw(0, 3, 6, 2)
    op = _closed("layer", v, w, _samples(0, 5, 3), 0.1)
    found = papers.rank_sensitivity(gnjax.eigenvalues(op)).floor_rank
    assert found == normalised.layer_norm_rank(3, 2, 6, 5, 0.1) == 10


def test_unknown_statistics_are_refused() -> None:
    with pytest.raises(ValueError, match="batch, frozen, initial"):
        _closed("running", *_draw(0, 3, 6, 2), _samples(0, 5, 3), 0.1)


def test_the_rank_under_layer_norm_is_silent_for_narrow_networks() -> None:
    with pytest.raises(ValueError, match="m > d"):
        normalised.layer_norm_rank(5, 2, 5, 30, 1e-5)


def _exact_singular_values(kind: str, v: np.ndarray, w: np.ndarray, x: np.ndarray) -> list:
    """Of J / sqrt(n), in 60 digits, from J J^T with derivatives written out for sample and unit."""
    n, (m, d), k = len(x), v.shape, len(w)
    v, w, x = (mpmath.matrix(a.tolist()) for a in (v, w, x))
    epsilon = mpmath.mpf(1e-5)
    z = x * v.T  # (n, m)
    units = range(m) if kind == "layer" else range(n)
    columns = []

    def moments(j: int, i: int) -> tuple:
        """Mean and deviation that normalise z_ji."""
        if kind == "initial":
            return mpmath.mpf(0), mpmath.sqrt(1 + epsilon)
        values = [z[j, u] if kind == "layer" else z[u, i] for u in units]
        mean = sum(values) / len(values)
        return mean, mpmath.sqrt(sum((t - mean) ** 2 for t in values) / len(values) + epsilon)

    stats = [[moments(j, i) for i in range(m)] for j in range(n)]
    h = [[(z[j, i] - stats[j][i][0]) / stats[j][i][1] for i in range(m)] for j in range(n)]

    def normalised_moves(dz: list) -> list:
        """dN for a change dz (n, m) of V x."""
        if kind in ("frozen", "initial"):
            return [[dz[j][i] / stats[j][i][1] for i in range(m)] for j in range(n)]
        moved = []
        for j in range(n):
            moved.append([])
            for i in range(m):
                places = [(j, u) if kind == "layer" else (u, i) for u in units]
                mean = sum(dz[a][b] for a, b in places) / len(places)
                pull = sum(h[a][b] * dz[a][b] for a, b in places) / len(places)
                moved[j].append((dz[j][i] - mean - h[j][i] * pull) / stats[j][i][1])
        return moved

    for i in range(m):
        for a in range(d):
            dz = [[x[j, a] if u == i else mpmath.mpf(0) for u in range(m)] for j in range(n)]
            dn = normalised_moves(dz)
            columns.append(
                [sum(w[c, u] * dn[j][u] for u in range(m)) for j in range(n) for c in range(k)]
            )
        columns += [
            [h[j][i] if c == e else mpmath.mpf(0) for j in range(n) for c in range(k)]
            for e in range(k)
        ]
        columns.append([w[c, i] * h[j][i] for j in range(n) for c in range(k)])
        columns.append([w[c, i] for j in range(n) for c in range(k)])
    jacobian = mpmath.matrix(columns).T
    gram = jacobian * jacobian.T / n
    return sorted(
        (mpmath.sqrt(abs(t)) for t in mpmath.eigsy(gram, eigvals_only=True)), reverse=True
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spread", [1.0, 1e-5])
def test_singular_values_are_within_their_error_of_exact_ones(kind: str, spread: float) -> None:
    """Many digits from the stored weights, on samples of which one direction is 1e-5 of others."""
    rng = np.random.default_rng(3)
    v, w = rng.standard_normal((4, 3)), rng.standard_normal((2, 4))
    x = (rng.standard_normal((5, 3)) + 1) * np.array([1.0, 1.0, spread])
    op = _closed(kind, v, w, x, 1e-5)
    sigma = np.linalg.svd(op.factor, compute_uv=False)
    with mpmath.workdps(60):
        exact = _exact_singular_values(kind, v, w, x)
        size = min(len(sigma), len(exact))
        off = max(float(abs(mpmath.mpf(s) - t)) for s, t in zip(sigma[:size], exact, strict=False))
    assert off <= float(op.stored_error) + 1e-15 * sigma[0]
    assert float(op.stored_error) <= 1e-11 * sigma[0]


_V, _W, _X = np.ones((5, 3)), np.ones((2, 5)), np.eye(4, 3)


@pytest.mark.parametrize("call", ["batch", "layer"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x": _X.T}, "transpose it if samples are columns"),
        ({"w": _W.T}, "W has 2 columns but V has 5 rows"),
        ({"epsilon": -1e-5}, "must not be negative"),
        ({"epsilon": np.nan}, "finite number"),
        ({"v": np.full((5, 3), np.inf)}, "V contains NaN or Inf"),
        ({"x": np.zeros((0, 3))}, "x must be a non-empty matrix"),
    ],
)
def test_bad_input_is_refused(call: str, changes: dict, words: str) -> None:
    good = {"v": _V, "w": _W, "x": _X, "epsilon": 1e-5} | changes
    with pytest.raises(ValueError, match=words):
        _closed(call, **good)


def test_the_epsilon_of_the_models_is_the_default() -> None:
    """So that a closed form without options is the model's BatchNorm; flax's LayerNorm has 1e-6."""
    model = MLP((2, 3, 2), norm="batch", key=jax.random.key(0))
    assert isinstance(model.norm1, nnx.BatchNorm)
    assert model.norm1.epsilon == 1e-5


def test_no_rank_of_the_data_is_assumed() -> None:
    """A constant feature is left out, a copied one is not: rounding cannot tell that it is one."""
    v, w = _draw(0, 4, 6, 2)
    x = _samples(1, 12, 4)
    x[:, 1] = 0.1
    assert _closed("batch", v, w, x, 1e-5).factor.shape[0] == 2 * (3 + 1)
    x[:, 2] = x[:, 0]
    assert _closed("batch", v, w, x, 1e-5).factor.shape[0] == 2 * (3 + 1)
    assert _closed("batch", v, w, x[:3], 1e-5).factor.shape[0] == 2 * (2 + 1)
