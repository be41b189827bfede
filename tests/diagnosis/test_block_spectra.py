"""Blocks against the dense Jacobian and Hessian of automatic differentiation, and numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.spatial.distance
from jax.flatten_util import ravel_pytree

import gnjax
from gnjax.numerics.certificate import Error, certificate
from gnjax.spectra.distance import jensen_shannon
from gnjax.spectra.spectrum import Spectrum
from tests.references import gauss_newton
from tests.zoo.language import gpt


def _mlp():
    model = gnjax.models.MLP((4, 6, 5, 3), activation="tanh", key=jax.random.key(1))
    apply, params = gnjax.functional(model)
    return apply, params, np.random.default_rng(2).standard_normal((7, 4)), apply


def _cnn():
    rng = np.random.default_rng(3)
    params = {
        "conv": {
            "kernel": rng.standard_normal((3, 3, 1, 2)),
            "bias": rng.standard_normal(2),
        },
        "head": {"kernel": rng.standard_normal((32, 3))},
    }

    def apply(p, x):
        dims = ("NHWC", "HWIO", "NHWC")
        h = jax.lax.conv_general_dilated(x, p["conv"]["kernel"], (1, 1), "VALID", None, None, dims)
        h = jnp.tanh(h + p["conv"]["bias"][None, None, None])
        return h.reshape(len(x), -1) @ p["head"]["kernel"] / 8

    return apply, params, rng.standard_normal((5, 6, 6, 1)), apply


def _transformer():
    case = gpt()
    apply, params = case.model
    params = jax.tree.map(lambda leaf: np.asarray(leaf, float), params)
    return apply, params, case.x, case.reference


CASES = {"mlp": _mlp, "cnn": _cnn, "transformer": _transformer}


def _layer(path):
    parts = [str(getattr(p, "key", getattr(p, "name", p))) for p in path]
    parts = parts[:-1] if parts[-1] == "value" else parts
    return "/".join(parts[:-1]) or parts[-1]


class Reference:
    """G = J^T J / n, and the indices of every layer, by automatic differentiation alone."""

    def __init__(self, kind):
        apply, params, self.x, plain = CASES[kind]()
        self.params = jax.device_put(params)
        self.model = apply, self.params
        self.plain, self.n = plain, len(self.x)
        self.matrix = gauss_newton(plain, self.params, self.x)
        owners = [
            name
            for path, leaf in jax.tree_util.tree_leaves_with_path(self.params)
            for name in [_layer(path)] * leaf.size
        ]
        self.groups = {name: np.flatnonzero(np.array(owners) == name) for name in set(owners)}

    def hessian(self, y):
        @jax.jit
        def hessian(params):
            flat, unravel = ravel_pytree(params)
            loss = lambda v: jnp.square(self.plain(unravel(v), self.x) - y).sum() / (2 * self.n)  # noqa: E731
            return jax.hessian(loss)(flat)

        return np.asarray(hessian(self.params))


_reference = functools.cache(Reference)


@pytest.fixture(scope="module", params=CASES)
def reference(request):
    return _reference(request.param)


def _agree(found, matrix, groups):
    assert {block.name for block in found.blocks} == set(groups)
    norm, inside = np.linalg.norm(matrix, 2), 0.0
    for block in found.blocks:
        own = groups[block.name]
        exact = np.linalg.eigvalsh(matrix[np.ix_(own, own)])[::-1]
        inside += np.sum(exact**2)
        assert block.parameters == len(own) == len(block.spectrum)
        assert np.abs(block.spectrum.values - exact).max() < 1e-10 * norm
        assert (np.abs(block.spectrum.values - exact) <= block.spectrum.errors + 1e-14 * norm).all()
        assert abs(block.trace - np.trace(matrix[np.ix_(own, own)])) < 1e-10 * norm
        if block.condition is not None and block.condition.resolved:
            kept = exact[block.condition.rank - 1]
            assert abs(block.condition.value - exact[0] / kept) < 1e-10 * (exact[0] / kept) ** 2
    share = 1 - inside / np.sum(matrix**2)
    assert abs(found.off_block_share - share) < 1e-10
    assert abs(found.off_block_share - share) <= found.off_block_error.value + 1e-14
    assert found.off_block_error.value < 1e-9


def _histogram(values, floor):
    """By numpy's histogram over edges at quarters of a decade, negative values on their own."""
    edges = np.arange(-20, 5, 0.25)
    sides = [np.log10(part) for part in (values[values > floor], -values[values < -floor])]
    return np.concatenate([np.histogram(side, edges)[0] for side in sides])


def _distances_agree(found, matrix, groups):
    spectra = [np.linalg.eigvalsh(matrix[np.ix_(i, i)]) for i in map(groups.get, _names(found))]
    assert found.floor == pytest.approx(1e-12 * max(np.abs(s).max() for s in spectra), rel=1e-10)
    counts = [_histogram(values, found.floor) for values in spectra]
    exact = np.zeros_like(found.distances)
    for i, p in enumerate(counts):
        for j, q in enumerate(counts):
            exact[i, j] = scipy.spatial.distance.jensenshannon(p, q, base=2) if i != j else 0.0
    assert np.abs(found.distances - exact).max() < 1e-10
    assert (found.distance_errors < 1e-10).all()
    upper = np.triu_indices(len(exact), 1)
    assert found.mean_distance == pytest.approx(exact[upper].mean(), abs=1e-10)


def _names(found):
    return [block.name for block in found.blocks]


@pytest.mark.slow
def test_blocks_of_a_gauss_newton_matrix(reference):
    found = gnjax.block_spectra(reference.model, reference.x)
    assert found.method == "jacobian"
    _agree(found, reference.matrix, reference.groups)


def test_blocks_from_kernels(reference):
    """Two blocks, one of them wider than J is long, so that its kernel is formed and not its J."""
    names = sorted(reference.groups)
    small = min(names, key=lambda name: len(reference.groups[name]))
    rest = np.concatenate([reference.groups[name] for name in names if name != small])
    found = gnjax.block_spectra(
        reference.model,
        reference.x,
        by=lambda path: small if path.rpartition("/")[0] == small or path == small else "rest",
        limits=gnjax.Limits(factor_work=1.0),
    )
    assert found.method == "kernels"
    _agree(found, reference.matrix, {small: reference.groups[small], "rest": rest})


def test_distances_of_blocks(reference):
    found = gnjax.block_spectra(reference.model, reference.x)
    _distances_agree(found, reference.matrix, reference.groups)


def test_both_sides_and_the_ntk_have_the_same_blocks():
    mlp = _reference("mlp")
    found = gnjax.block_spectra(gnjax.linearised(gnjax.gauss_newton(mlp.model, mlp.x)))
    _agree(found, mlp.matrix, mlp.groups)
    found = gnjax.block_spectra(gnjax.gauss_newton(mlp.model, mlp.x, side="outputs"))
    _agree(found, mlp.matrix, mlp.groups)
    found = gnjax.block_spectra(gnjax.ntk(mlp.model, mlp.x))
    _agree(found, mlp.n * mlp.matrix, mlp.groups)


def test_blocks_of_a_hessian(reference):
    shape = jax.eval_shape(reference.model[0], reference.params, reference.x).shape
    y = np.random.default_rng(0).standard_normal(shape)
    found = gnjax.block_spectra(gnjax.hessian(reference.model, reference.x, y))
    assert found.method == "matrix"
    _agree(found, reference.hessian(y), reference.groups)


def test_blocks_of_products():
    """Where there is room for the blocks and not for the matrix."""
    mlp = _reference("mlp")
    y = np.random.default_rng(0).standard_normal((7, 3))
    limits = gnjax.Limits(matrix_rows=len(mlp.matrix) - 1)
    found = gnjax.block_spectra(gnjax.hessian(mlp.model, mlp.x, y), limits=limits)
    assert found.method == "products"
    _agree(found, mlp.hessian(y), mlp.groups)


def test_more_outputs_than_parameters():
    """G itself is the smaller twin, and its off-diagonal part is summed directly."""
    model = lambda w, x: jnp.tanh(x @ w["a"]) @ w["b"], {"a": np.eye(2, 3), "b": np.ones((3, 2))}
    x = np.random.default_rng(1).standard_normal((20, 2))
    matrix = gauss_newton(*model, x)
    found = gnjax.block_spectra(model, x)
    _agree(found, matrix, {"a": np.arange(6), "b": np.arange(6, 12)})


def test_losses_batches_and_equal_samples():
    mlp = _reference("mlp")
    labels = np.array([0, 1, 2, 0, 1, 2, 0])
    op = gnjax.gauss_newton(mlp.model, mlp.x, y=labels, loss="cross_entropy")
    _agree(gnjax.block_spectra(op), np.asarray(op.as_matrix()), mlp.groups)
    batches = [(mlp.x[:4], np.zeros((4, 3))), (mlp.x[4:], np.zeros((3, 3)))]
    streamed = gnjax.block_spectra(gnjax.gauss_newton(mlp.model, batches))
    _agree(streamed, mlp.matrix, mlp.groups)
    assert streamed.method == "matrix"
    twice = gnjax.block_spectra(mlp.model, np.concatenate([mlp.x, mlp.x]))
    _agree(twice, mlp.matrix, mlp.groups)


def test_ways_to_make_blocks():
    mlp = _reference("mlp")
    names = lambda by: _names(gnjax.block_spectra(mlp.model, mlp.x, by=by))  # noqa: E731
    assert names("parameter")[:2] == ["dense1/bias", "dense1/kernel"]
    assert names(["dense1/*", "*"]) == ["*", "dense1/*"]
    assert names(lambda path: path[:5]) == ["dense"]
    assert names("module") == names("layer")  # layers that no module holds
    nested = (
        (lambda p, x: x @ p["a"]["q"]["w"] + x @ p["a"]["k"]["w"] + p["b"][None]),
        {
            "a": {"q": {"w": np.ones((4, 1))}, "k": {"w": np.ones((4, 1))}},
            "b": np.ones(1),
        },
    )
    assert _names(gnjax.block_spectra(nested, mlp.x[:, :4], by="module")) == ["a", "b"]
    only = gnjax.gauss_newton(mlp.model, mlp.x, only="dense2/*")
    assert _names(gnjax.block_spectra(only)) == ["dense2"]


def test_progress_counts_the_blocks(capsys):
    mlp = _reference("mlp")
    seen = []
    gnjax.block_spectra(mlp.model, mlp.x, progress=lambda *stage: seen.append(stage))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    gnjax.block_spectra(mlp.model, mlp.x, progress=True)
    assert "4/4 stages" in capsys.readouterr().err


def test_a_block_is_what_only_makes():
    mlp = _reference("mlp")
    block = gnjax.block_spectra(mlp.model, mlp.x)["dense2"].condition
    alone = gnjax.condition_number(gnjax.gauss_newton(mlp.model, mlp.x, only="dense2/*"))
    assert (block.rank, block.rank_source, block.resolved) == (alone.rank, alone.rank_source, True)
    assert block.value == pytest.approx(alone.value, rel=1e-9)


def test_a_small_block_has_its_own_error():
    """Not that of the whole Jacobian, beside which its eigenvalues would be nothing."""

    def model(w, x):
        return 1e10 * x @ w["large"] + 1e-10 * jnp.tanh(x @ w["small"])

    params = {"large": np.ones((3, 2)), "small": np.ones((3, 2))}
    x = np.random.default_rng(2).standard_normal((6, 3))
    found = gnjax.block_spectra((model, params), x)
    small = found["small"].condition
    alone = gnjax.condition_number(gnjax.gauss_newton((model, params), x, only="small"))
    assert small.resolved
    assert small.value == pytest.approx(alone.value, rel=1e-6)


def _spectrum(values, errors):
    known = certificate(Error(0.0, reason="given"))
    return Spectrum(np.array(values), np.array(errors), "given", known)


def test_the_distance_of_known_histograms():
    one, far = _spectrum([2.0, 2.0], [0.0, 0.0]), _spectrum([50.0], [0.0])
    assert jensen_shannon(one, one, 0.0)[0] == jensen_shannon(one, one, 0.0)[1].value == 0.0
    assert jensen_shannon(one, far, 0.0)[0] == 1.0
    half = _spectrum([50.0, 2.0], [0.0, 0.0])
    middle = -(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25)) - 0.5
    assert jensen_shannon(one, half, 0.0)[0] == pytest.approx(middle**0.5, abs=1e-14)
    negative = _spectrum([-2.0], [0.0])
    assert jensen_shannon(one, negative, 0.0)[0] == 1.0
    assert np.isnan(jensen_shannon(one, _spectrum([1e-3], [0.0]), 1e-2)[0])


def test_the_distance_has_the_error_of_its_eigenvalues():
    """Wherever the true eigenvalues lie within their errors, the interval holds their distance."""
    rng = np.random.default_rng(5)
    widest = 0.0
    for _ in range(200):
        values = [10 ** rng.uniform(-3, 3, size) for size in rng.integers(2, 30, 2)]
        errors = [v * 10 ** rng.uniform(-6, 0.3, len(v)) for v in values]
        known = [_spectrum(v, e) for v, e in zip(values, errors, strict=True)]
        true = [
            _spectrum(v + e * rng.uniform(-1, 1, len(v)), np.zeros(len(v)))
            for v, e in zip(values, errors, strict=True)
        ]
        found, error = jensen_shannon(*known, 1e-2)
        exact, _ = jensen_shannon(*true, 1e-2)
        if not (np.isnan(found) or np.isnan(exact)):
            assert abs(found - exact) <= error.value
            widest = max(widest, abs(found - exact) / error.value)
    assert widest > 0.1  # the errors do move distances here


def test_results_are_saved_drawn_and_shown():
    mlp = _reference("mlp")
    found = gnjax.block_spectra(mlp.model, mlp.x)
    again = gnjax.answers.BlockSpectra.from_json(found.to_json())
    assert np.array_equal(again.distances, found.distances)
    assert again["dense1"].condition == found["dense1"].condition
    assert "3 blocks" in str(found)
    assert "dense2" in str(found)
    assert "off the blocks" in gnjax.plot(found).axes[0].get_title(loc="left")


def _shown(result):
    """Each kappa as text and picture show it, and all of the text and of the picture."""
    axes = gnjax.plot(result).axes[-1]
    labels = [label.get_text() for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    return str(result), "\n".join([*labels, axes.get_xlabel()])


@pytest.mark.parametrize("ask", [gnjax.block_spectra, gnjax.diagnose])
def test_a_kappa_at_an_assumed_rank_is_marked_wherever_it_is_shown(ask):
    """Class: kappa of a layer looks certain where its rank is a guess from a gap."""
    x = np.random.default_rng(0).standard_normal((12, 3))
    params = {"a": np.ones((3, 2)), "b": np.ones((3, 2))}
    twice = x.copy()
    twice[:, 2] = twice[:, 0] + 1e-9 * x[:, 1]  # one eigenvalue in 1e18 of the others, or zero

    def model(p, inputs):
        return inputs["x"] @ p["a"] + inputs["twice"] @ p["b"]

    inputs = {"x": x, "twice": twice}
    blocks = gnjax.block_spectra((model, params), inputs)
    known, guessed = (blocks[name].condition for name in ("a", "b"))
    assert known.resolved
    assert guessed.bounded
    assert not guessed.resolved
    marked, bare = f"{guessed.value:.3g}*", f"{known.value:.3g}"
    for text in _shown(ask((model, params), inputs)):
        assert "* at an assumed rank" in text
        assert f"{bare}*" not in text
        assert marked in text or f"{guessed.value:.6g}*" in text
    for text in _shown(ask((model, params), {"x": x, "twice": x**3})):
        assert "*" not in text


def test_targets_go_in_by_position_as_everywhere():
    mlp = _reference("mlp")
    y = np.arange(len(mlp.x)) % 2
    found = gnjax.block_spectra(mlp.model, mlp.x, y, loss="cross_entropy", labels=y)
    expected = gnjax.block_spectra(mlp.model, mlp.x, y=y, loss="cross_entropy", labels=y)
    assert found.to_json() == expected.to_json()


def test_what_cannot_be_split_is_refused():
    mlp = _reference("mlp")
    op = gnjax.gauss_newton(mlp.model, mlp.x)
    for call, words in (
        (lambda: gnjax.block_spectra(gnjax.dense(np.eye(2))), "of a network"),
        (lambda: gnjax.block_spectra(op, by="head"), "none of 'layer', 'module' and"),
        (lambda: gnjax.block_spectra(op, by=["dense1/*"]), "is no name"),
        (lambda: gnjax.block_spectra(op, loss="cross_entropy"), "loss: these belong to a model"),
        (lambda: gnjax.block_spectra(op, mlp.x), "x: these belong to a model, and an operator"),
        (lambda: gnjax.block_spectra(mlp.model), r"give x too, as block_spectra\(model, x\)"),
        (lambda: gnjax.block_spectra(op)["dense9"], "there is no block 'dense9'"),
        (
            lambda: gnjax.block_spectra(gnjax.linearised(gnjax.ntk(mlp.model, mlp.x))),
            "side='parameters'",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.parametrize("make", ["gauss_newton", "hessian", "labels"])
@pytest.mark.parametrize("exponent", [-145, -100, 100, 145])
def test_outputs_far_from_one_have_the_same_share_outside_of_the_blocks(make, exponent):
    """The squares of the entries of G are of the size of the outputs to the fourth."""
    rng = np.random.default_rng(0)
    x, y, labels = rng.standard_normal((6, 3)), rng.standard_normal((6, 2)), np.arange(6) % 2
    params = {"one": rng.standard_normal((3, 4)), "two": rng.standard_normal((4, 2))}

    def found(scale):
        model = (lambda p, x: scale * (jnp.tanh(x @ p["one"]) @ p["two"]), params)
        if make == "labels":
            return gnjax.block_spectra(model, x, labels=labels)
        op = gnjax.hessian(model, x, scale * y) if make == "hessian" else None
        return gnjax.block_spectra(*((op,) if op is not None else (model, x)))

    near, far = found(1.0), found(2.0**exponent)
    assert far.off_block_share == pytest.approx(near.off_block_share, rel=1e-12)
    assert abs(far.off_block_share - near.off_block_share) <= far.off_block_error.value < 1e-9
    for one, other in zip(near.blocks, far.blocks, strict=True):
        values = np.ldexp(other.spectrum.values, -2 * exponent)
        assert values == pytest.approx(one.spectrum.values, abs=1e-12 * one.spectrum.values[0])


def test_matrices_that_underflow_are_refused():
    x = np.random.default_rng(0).standard_normal((6, 3))
    model = (
        lambda p, x: 1e-160 * (x @ p["one"]) @ p["two"],
        {"one": np.ones((3, 4)), "two": np.ones((4, 2))},
    )
    with pytest.raises(ValueError, match="power of two"):
        gnjax.block_spectra(model, x)
