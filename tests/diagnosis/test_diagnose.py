"""Diagnoses, every number against the one that numpy gives for the dense Jacobian."""

import dataclasses
import math
import sys
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import gnjax
from gnjax import papers
from gnjax.cli.main import main
from gnjax.data import standardise, whiten
from gnjax.diagnosis.classes import class_shares
from gnjax.diagnosis.diagnose import diagnose
from gnjax.diagnosis.remedies.suggestion import (
    HELPS,
    HURTS,
    SAME,
    UNKNOWN,
    Suggestion,
    block_condition,
)
from gnjax.models import MLP, LinearNet
from gnjax.models.linear import weights
from tests.precision import single_precision

_N, _WIDTHS = 12, (4, 6, 6, 3)


def _inputs(seed=0, n=_N, d=4):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.geomspace(5, 0.2, d)


def _mlp(**options):
    return MLP(_WIDTHS, activation="tanh", key=jax.random.key(1), **options)


@pytest.fixture(scope="module")
def targets():
    return np.random.default_rng(3).standard_normal((_N, 3))


@pytest.fixture(scope="module")
def found(targets):
    return diagnose(_mlp(), _inputs(), targets)


@pytest.fixture(scope="module")
def blocks():
    """J_l / sqrt(n) of every layer, by automatic differentiation alone."""
    apply, params = gnjax.functional(_mlp())
    leaves, tree = jax.tree.flatten(params)
    outputs = lambda every: apply(jax.tree.unflatten(tree, every), jnp.asarray(_inputs()))  # noqa: E731
    flat = [np.asarray(j).reshape(_N * 3, -1) for j in jax.jit(jax.jacrev(outputs))(leaves)]
    assert [j.shape[1] for j in flat] == [6, 24, 6, 36, 3, 18]  # biases come before kernels
    return [np.hstack(flat[i : i + 2]) / math.sqrt(_N) for i in (0, 2, 4)]


def _suggestion(found, start):
    return next(s for s in found.suggestions if s.name.startswith(start))


def _left_out(found, start):
    return next(s.reason for s in found.left_out if s.name.startswith(start))


def _kappa(model, x):
    return gnjax.condition_number(gnjax.gauss_newton(model, x, side="auto")).value


def test_kappa_is_that_of_the_gauss_newton_matrix(found):
    op = gnjax.gauss_newton(_mlp(), _inputs(), side="auto")
    assert found.condition == gnjax.condition_number(op)
    assert (found.parameters, found.samples, found.outputs) == (93, _N, 3)
    np.testing.assert_allclose(
        found.eigenvalues[[0, found.condition.rank - 1]],
        [found.condition.lambda_max, found.condition.lambda_min],
        rtol=1e-8,
    )


def test_shares_are_the_layers_terms_of_both_ends(found, blocks):
    values, vectors = np.linalg.eigh(sum(j @ j.T for j in blocks))
    assert values[0] > 1e-9 * values[-1]
    for layer, j in zip(found.layers, blocks, strict=True):
        top, bottom = (np.sum((j.T @ vectors[:, i]) ** 2) / values[i] for i in (-1, 0))
        np.testing.assert_allclose([layer.top, layer.bottom], [top, bottom], atol=1e-7)
    assert sum(layer.top for layer in found.layers) == pytest.approx(1, abs=1e-12)
    assert sum(layer.bottom for layer in found.layers) == pytest.approx(1, abs=1e-12)
    assert [layer.name for layer in found.layers] == ["dense1", "dense2", "dense3"]


def test_blocks_have_the_kappa_of_the_layer_alone(found, blocks):
    for layer, j in zip(found.layers, blocks, strict=True):
        sigma = np.linalg.svd(j, compute_uv=False)
        sigma = sigma[sigma > 1e-12 * sigma[0]]
        assert layer.block.rank == len(sigma)
        assert layer.block.value == pytest.approx((sigma[0] / sigma[-1]) ** 2, rel=1e-6)


def test_kappa_of_a_block_keeps_the_chance_that_the_error_of_the_jacobian_fails():
    error = gnjax.Error(1e-9, "probable", 0.25)
    kappa = block_condition(SimpleNamespace(factor_error=lambda: error), np.diag([2.0, 1.0]))
    assert kappa.certificate.failure == 0.25
    low, high = kappa.interval
    assert low <= (2 - 1e-9) ** 2 / (1 + 1e-9) ** 2 < (2 + 1e-9) ** 2 / (1 - 1e-9) ** 2 <= high


def test_sensitivity_is_the_derivative_of_log_kappa(found, blocks):
    step = 1e-4

    def log_kappa(scaled, factor):
        gram = sum((factor if i == scaled else 1) * j @ j.T for i, j in enumerate(blocks))
        return math.log(np.linalg.cond(gram))

    for i, layer in enumerate(found.layers):
        slope = (log_kappa(i, 1 + step) - log_kappa(i, 1 - step)) / (2 * step)
        assert layer.sensitivity == pytest.approx(slope, abs=1e-4)
    assert found.suspect == max(found.layers, key=lambda layer: layer.sensitivity)


@pytest.mark.parametrize(("factor", "converges"), [(0.99, True), (1.01, False)])
def test_gradient_descent_turns_at_the_largest_stable_rate(found, factor, converges):
    op = gnjax.gauss_newton(_mlp(), _inputs(), side="parameters")
    gram = np.asarray(op.as_matrix())
    start = np.random.default_rng(0).standard_normal(len(gram))
    step = np.eye(len(gram)) - factor * found.learning_rate * gram
    loss = lambda v: v @ gram @ v  # noqa: E731
    end = np.linalg.matrix_power(step, 1000) @ start
    assert (loss(end) < loss(start)) == converges


def test_the_best_rate_multiplies_both_ends_by_the_predicted_rate(found):
    ends = np.array([found.condition.lambda_max, found.condition.lambda_min])
    np.testing.assert_allclose(np.abs(1 - found.best_learning_rate * ends), found.rate, rtol=1e-9)
    assert found.rate**found.steps_per_decade == pytest.approx(0.1, rel=1e-6)


def test_sharpness_is_the_hessians_largest_eigenvalue(found, targets):
    apply, params = gnjax.functional(_mlp())
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    loss = lambda v: jnp.square(apply(unravel(v), _inputs()) - targets).sum() / (2 * _N)  # noqa: E731
    largest = np.linalg.eigvalsh(jax.jit(jax.hessian(loss))(flat))[-1]
    assert found.sharpness == pytest.approx(largest, rel=1e-8)
    assert found.hessian_learning_rate == pytest.approx(2 / largest, rel=1e-8)


def test_inputs_are_changed_as_said(found):
    white = _suggestion(found, "whitened")
    assert white.after.value == pytest.approx(
        _kappa(_mlp(), whiten(_inputs(), method="zca").inputs), rel=1e-6
    )
    assert white.before == found.condition
    standard = _suggestion(found, "standardised")
    assert standard.after.value == pytest.approx(_kappa(_mlp(), standardise(_inputs())), rel=1e-6)


def test_a_skip_goes_around_square_kernels(found):
    model = _mlp()
    model.dense2.kernel[...] += jnp.eye(6)
    skip = _suggestion(found, "skip connections")
    assert skip.after.value == pytest.approx(_kappa(model, _inputs()), rel=1e-6)


def test_a_rate_of_its_own_scales_the_layers_term(found, blocks):
    own = _suggestion(found, f"learning rate of {found.suspect.name}")
    index = found.layers.index(found.suspect)
    kappas = [
        np.linalg.cond(sum((s if i == index else 1) * j @ j.T for i, j in enumerate(blocks)))
        for s in (1 / 4, 1 / 16)
    ]
    assert own.after.value == pytest.approx(min(kappas), rel=1e-5)


def test_linear_chains_take_every_skip_and_another_width():
    """Whitened inputs and m just above d = k, where kappa falls steeply with the width (Eq 22)."""
    x = whiten(np.random.default_rng(0).standard_normal((15, 5))).inputs
    model = LinearNet(5, 5, depth=2, width=6, key=jax.random.key(0))
    found = diagnose(model, x)
    kappas = [
        gnjax.condition_number(papers.linear_gauss_newton(weights(model), skip=beta)).value
        for beta in (0.5, 0.5**0.5, 1.0)
    ]
    assert _suggestion(found, "skip").after.value == pytest.approx(min(kappas), rel=1e-6)
    wider = _suggestion(found, "twice the width")
    assert wider.verdict == HELPS
    assert wider.before.value != found.condition.value  # of fresh weights too


def test_what_cannot_be_measured_is_left_out_with_a_reason():
    model = LinearNet(4, 4, depth=2, width=4, skip=1.0, key=jax.random.key(0))
    found = diagnose(model, _inputs(n=3))
    assert "no chain of matrices" in _left_out(found, "skip")
    assert "chain of matrices" in _left_out(found, "twice the width")
    assert "give more samples than dimensions" in _left_out(found, "whitened")


def _certain(low, high, resolved=True):
    known = gnjax.condition_number(np.diag([4.0, 1.0]))
    return dataclasses.replace(
        known, value=low, interval=(low, high), at_rank=(low, high), resolved=resolved
    )


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ((100, 101), (10, 11), HELPS),
        ((10, 11), (100, 101), HURTS),
        ((100, 101), (99, 100), SAME),
        ((100, math.inf, False), (10, 11), HELPS),
        ((100, math.inf, False), (200, 201), UNKNOWN),
        ((100, 101), (10, math.inf, False), UNKNOWN),
    ],
)
def test_verdicts_follow_the_intervals(before, after, verdict):
    assert Suggestion("", _certain(*before), _certain(*after), "").verdict == verdict


def test_multiple_eigenvalues_count_with_all_their_eigenvectors():
    """f = A x + B x on k outputs: every eigenvalue k times, and both terms equal."""
    params = {"a": np.ones((4, 3)), "b": np.ones((4, 3))}
    found = diagnose((lambda p, x: x @ p["a"] + x @ p["b"], params), _inputs())
    for layer in found.layers:
        np.testing.assert_allclose([layer.top, layer.bottom], 0.5, rtol=1e-9)
    assert found.culprit is None
    assert "no layer stands out" in str(found)


def test_an_unresolved_kappa_is_reported_as_a_lower_bound():
    scales = np.logspace(0, -20, 41)[None]
    found = diagnose((lambda p, x: x * scales * p[None], np.ones(41)), np.ones((1, 1)))
    assert not found.condition.resolved
    assert "kappa >= " in str(found)
    assert "NOT RESOLVED" in str(found)
    assert "at least" in str(found)


def _rows(count):
    return gnjax.Limits(whole_rows=count, small_rows=count)


def test_large_matrices_keep_what_krylov_gives(found, tmp_path):
    large = diagnose(_mlp(), _inputs(), limits=_rows(2))  # a sample has three rows
    np.testing.assert_allclose(
        [layer.top for layer in large.layers], [layer.top for layer in found.layers], rtol=1e-5
    )
    assert large.eigenvalues is None
    assert large.culprit is None
    assert "not available" in str(large)
    assert "at most 2" in _left_out(large, "all remedies")
    gnjax.plot(large).savefig(tmp_path / "large.png")
    assert (tmp_path / "large.png").stat().st_size > 1000


def test_a_part_of_many_samples_is_measured(found, targets):
    kept = [0, 6, 11]  # three samples of three rows, at equal distances
    part = diagnose(_mlp(), _inputs(), targets, limits=_rows(10))
    alone = diagnose(_mlp(), _inputs()[kept], targets[kept])
    assert part.part == "3 of 12 samples"
    assert "measured on 3 of 12 samples" in str(part)
    assert part.condition == alone.condition
    assert (alone.part, found.part) == ("", "")
    assert part.learning_rate == pytest.approx(found.learning_rate, rel=2e-3)
    assert part.sharpness == pytest.approx(found.sharpness, rel=2e-3)


def _language_model():
    rng = np.random.default_rng(0)
    table, out = rng.standard_normal((5, 4)), rng.standard_normal((4, 5))
    apply = lambda p, x: jnp.tanh(p["table"][x]) @ p["out"]  # noqa: E731
    return (apply, {"table": table, "out": out}), rng.integers(0, 5, (3, 8))


@pytest.mark.slow
def test_some_tokens_of_a_long_sample_are_measured():
    model, x = _language_model()
    y = np.roll(x, -1, axis=1)
    limits = _rows(13)  # a token has four rows, a sample 32
    found = diagnose(model, x, y, loss="cross_entropy", limits=limits)
    kept = [0, 4, 7]
    rest = np.setdiff1d(np.arange(8), kept)
    labels = y[:1].copy()
    labels[:, rest] = -1  # do not count
    alone = gnjax.condition_number(gnjax.gauss_newton(model, x[:1], y=labels, loss="cross_entropy"))
    assert found.part == "3 of the 8 tokens of one sample"
    assert found.condition.value == pytest.approx(alone.value, rel=1e-9)


@pytest.mark.slow
def test_classes_have_their_terms_of_both_ends():
    x, y = _inputs(), np.random.default_rng(4).integers(0, 3, _N)
    found = diagnose(_mlp(), x, y, loss="cross_entropy")
    op = gnjax.gauss_newton(_mlp(), x, y=y, loss="cross_entropy")
    values, vectors = np.linalg.eigh(np.asarray(op.as_matrix()))
    last = -found.condition.rank
    for share in found.classes:
        own = y == int(share.name)
        part = gnjax.gauss_newton(_mlp(), x[own], y=y[own], loss="cross_entropy").as_matrix()
        part = np.asarray(part) * own.sum() / _N
        ends = [vectors[:, i] @ part @ vectors[:, i] / values[i] for i in (-1, last)]
        np.testing.assert_allclose([share.top, share.bottom], ends, atol=1e-6)
        assert (share.count, share.weight) == (own.sum(), pytest.approx(own.mean()))
    assert "of all labels" in str(found)


def test_many_classes_go_into_bands():
    rng = np.random.default_rng(0)
    jacobian, y = rng.standard_normal((200, 7)), rng.integers(0, 40, 200)
    vectors, _ = np.linalg.qr(rng.standard_normal((7, 7)))
    shares = class_shares(y, jacobian, vectors[:, :1], vectors[:, 1:2])
    assert [share.name for share in shares][0::4] == ["most frequent", "rarest"]
    assert sum(share.top for share in shares) == pytest.approx(1)
    assert sum(share.count for share in shares) == 200


def test_metrics_are_measured_as_preconditioned_operators(found):
    op = gnjax.gauss_newton(_mlp(), _inputs())
    damping = 1e-4 * found.condition.lambda_max
    for name, metric, options in (
        ("the metric diag(G)", "diagonal", {"damping": damping}),
        ("the metric of K-FAC", gnjax.metrics.kfac(op, damping=damping), {}),
    ):
        expected = gnjax.condition_number(gnjax.preconditioned(op, metric, **options))
        after = _suggestion(found, name).after
        assert after.value == pytest.approx(expected.value, rel=1e-6)


def test_a_layer_is_blamed_only_where_its_rate_was_measured_to_help(found):
    blamed = found.culprit
    own = _suggestion(found, f"learning rate of {found.suspect.name}")
    assert (blamed is not None) == (own.verdict == HELPS)
    without = dataclasses.replace(found, suggestions=())
    assert without.suspect is not None
    assert without.culprit is None
    assert "not the cause" in str(without)
    assert "contributes most to kappa" not in str(without)
    worse = dataclasses.replace(own, before=own.after, after=own.before)
    unhelpful = dataclasses.replace(found, suggestions=(worse,))
    assert unhelpful.culprit is None


def test_progress_counts_the_stages(capsys):
    seen = []
    diagnose(_mlp(), _inputs(), progress=lambda done, expected: seen.append((done, expected)))
    assert seen == [(done, 10) for done in range(1, 11)]
    diagnose(_mlp(), _inputs(), progress=True)
    assert "10/10 stages" in capsys.readouterr().err
    with pytest.raises(ValueError, match="progress=3 is neither True"):
        diagnose(_mlp(), _inputs(), progress=3)


def test_only_some_parameters(found):
    part = diagnose(_mlp(), _inputs(), only="dense2/*")
    assert [layer.name for layer in part.layers] == ["dense2"]
    block = next(layer.block for layer in found.layers if layer.name == "dense2")
    assert part.condition.value == pytest.approx(block.value, rel=1e-6)


def test_the_picture_of_many_layers_fits_a_page(found):
    layers = [dataclasses.replace(found.layers[i % 3], name=f"layers/{i}") for i in range(120)]
    many = dataclasses.replace(found, layers=tuple(layers))
    assert gnjax.plot(many).get_size_inches()[1] <= 9
    assert len(str(many).splitlines()) < 80


def test_the_report_fits_a_terminal(found):
    text = str(found)
    assert max(map(len, text.splitlines())) <= 80
    assert f"kappa = {found.condition.value:.6g}" in text
    assert f"2 / lambda_max(G) = {found.learning_rate:.4g}" in text
    for suggestion in found.suggestions:
        assert (suggestion.verdict == HELPS) != (
            f"({suggestion.verdict}): {suggestion.name[:9]}" in text
        )


def test_the_report_says_of_which_loss_it_is(found):
    """The default by its formula, as somebody who leaves it out may not know which is taken."""
    assert found.loss == found.to_dict()["loss"] == "squared_error"
    line = "  loss squared_error: |f - y|^2 / 2, which is taken where no loss is named"
    assert str(found).splitlines()[1] == line
    own = dataclasses.replace(found, loss="cube (a function)")
    assert str(own).splitlines()[1] == "  loss cube (a function)"


def test_a_best_rate_above_a_limit_is_said_to_be(found):
    """G may allow a rate at which the Hessian does not; without targets nobody knows."""

    def said(**fields):
        text = str(dataclasses.replace(found, **fields))
        return " ".join(text.split())

    limit = found.condition.lambda_max
    warned = f"that rate is above 2 / lambda_max(H) = {1 / limit:.4g}, from which on gradient"
    text = said(sharpness=2 * limit)
    assert f"{warned} descent on the model with H diverges" in text
    assert "take less" not in text  # a limit of a quadratic model is no order
    assert "facts about the quadratic models at these weights, and no orders" in text
    assert "that rate is above" not in said(sharpness=0.9 * limit)
    assert "lambda_max(H)" not in said(sharpness=-1.0)  # no limit, and nothing that is missing
    assert "needs targets" not in said(sharpness=-1.0)
    without = said(sharpness=None)
    assert "the limit by the Hessian, which may be lower, needs targets y" in without
    assert "above 2 / lambda_max(G) of all data" in said(whole_lambda_max=2 * limit)


def test_dead_models_have_nothing_to_diagnose():
    with pytest.raises(ValueError, match="no output depends on any parameter"):
        diagnose((lambda p, x: x * 0 * p["w"], {"w": jnp.ones(())}), np.ones((3, 2)))


def test_a_sequence_of_batches_is_refused():
    batches = [(_inputs(), None), (_inputs(1), None)]
    with pytest.raises(ValueError, match="a diagnosis is of one Jacobian; pass one batch"):
        diagnose(_mlp(), batches)


_MODULE = """
import jax.numpy as jnp
import numpy as np

X = np.random.default_rng(0).standard_normal((6, 3))
LINEAR = (lambda p, x: x @ p["w"], {"w": np.ones((3, 2))})
NUMBER = 7


def alone():
    return LINEAR


def with_inputs():
    return LINEAR, X


def with_targets():
    return LINEAR, X, np.zeros((6, 2))


def images():
    return lambda p, x: x.transpose(0, 3, 1, 2).mean((1, 2)) @ p, np.ones((8, 10))


def misfit():
    return LINEAR, X[:, :2]


def needy(width):
    return LINEAR


def wrong():
    return 7
"""


@pytest.fixture
def user_module(tmp_path, monkeypatch):
    """A module of the user's in the working directory."""
    (tmp_path / "users_own.py").write_text(_MODULE)
    (tmp_path / "broken_own.py").write_text("def factory(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "users_own"
    sys.modules.pop("users_own", None)


def test_shell_diagnoses_and_draws(user_module, tmp_path, capsys):
    out = tmp_path / "pictures" / "mine.svg"
    assert main(["diagnose", f"{user_module}:with_targets", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "lambda_max(H)" in printed
    assert f"picture: {out}" in printed
    assert b"<svg" in out.read_bytes()


def test_shell_shapes_data_as_the_model_takes_it(user_module, capsys):
    arguments = ["--data", "digits", "--samples", "9"]
    assert main(["diagnose", f"{user_module}:images", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "9 samples, 10 outputs" in printed
    assert "lambda_max(H)" in printed  # ten outputs, ten classes: the labels are the targets


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["users_own"], "write it as package.module:factory"),
        (["no_such_module:f"], "no_such_module cannot be imported"),
        (["broken_own:factory"], "broken_own cannot be imported"),
        (["users_own:missing"], "has no function missing"),
        (["users_own:NUMBER"], "NUMBER is no function but of type int"),
        (["users_own:needy"], "it needs width"),
        (["users_own:wrong"], "not int"),
        (["users_own:alone"], "name a data set with --data"),
        (["users_own:alone", "--data", "digits"], "takes no form of digits"),
        (["users_own:with_inputs", "--data", "digits"], "inputs of its own"),
        (["users_own:with_inputs", "--out", "picture.xyz"], "does not end in .png"),
        (["users_own:misfit"], "at an x of shape (6, 2)"),
    ],
)
def test_shell_names_a_mistake_in_one_line(user_module, capsys, arguments, said):
    assert main(["diagnose", *arguments]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""
    assert "Traceback" not in printed.err


def test_layers_have_the_ranks_that_their_blocks_have():
    """A sample that is there twice leaves kappa of a layer resolved, as in block_spectra."""
    x = np.random.default_rng(0).standard_normal((8, 4))
    x[7] = x[0]
    model = MLP((4, 6, 3), activation="tanh", key=jax.random.key(0))
    alone = gnjax.block_spectra(model, x)
    diagnosis = diagnose(model, x)
    assert "without curvature: 3 combinations of outputs" in " ".join(str(diagnosis).split())
    for layer, block in zip(diagnosis.layers, alone.blocks, strict=True):
        assert (layer.name, layer.block.rank) == (block.name, block.condition.rank)
        assert layer.block.resolved == block.condition.resolved
        assert layer.block.value == pytest.approx(block.condition.value, rel=1e-6)


def test_an_empty_parameter_changes_nothing():
    """Between two others, and at the end, in the direction that rescales weights as well."""
    rng = np.random.default_rng(1)
    x, a, z = (rng.standard_normal(shape) for shape in ((4, 3), (3, 3), (3, 2)))
    model = lambda p, x: jnp.tanh(x @ p["a"]) @ p["z"]  # noqa: E731
    without = gnjax.diagnose((model, {"a": a, "z": z}), x)
    for name in ("m", "zz"):
        found = gnjax.diagnose((model, {"a": a, "z": z, name: np.zeros((0, 3))}), x)
        assert found.rescaling == pytest.approx(without.rescaling, rel=1e-9)


@pytest.fixture(scope="module")
def stepped(targets):
    """Parameters after ten steps of Adam, the optimiser and its state, and P by its formula."""
    apply, params = gnjax.functional(_mlp())
    loss = lambda p: jnp.square(apply(p, _inputs()) - targets).sum() / (2 * _N)  # noqa: E731
    optimizer, beta = optax.adam(0.05), 0.9
    state = optimizer.init(params)
    gradient_of = jax.jit(jax.grad(loss))
    for _ in range(10):
        update, state = optimizer.update(gradient_of(params), state, params)
        params = optax.apply_updates(params, update)
    nu, count = (np.asarray(a) for a in (ravel_pytree(state[0].nu)[0], state[0].count))
    root = np.sqrt(0.999 * nu / (1 - 0.999 ** (count + 1))) + 1e-8  # the next nu, at g = 0
    flat, unravel = ravel_pytree(params)
    hessian = np.asarray(jax.jit(jax.hessian(lambda v: loss(unravel(v))))(flat))
    share = (1 - beta) / (1 - beta ** (count + 1))  # of the next gradient in the mean of gradients
    return (apply, params), optimizer, state, root, hessian, share


def test_the_optimisers_limit_is_that_of_its_own_recursion(stepped, targets):
    """lambda_max by numpy from Adam's formula, and 38 / rate for P without rate and mean."""
    model, optimizer, state, root, hessian, share = stepped
    found = diagnose(model, _inputs(), targets, optimizer_state=state, optimizer=optimizer)
    largest = np.linalg.eigvalsh(hessian / np.sqrt(root[:, None] * root[None]))[-1]
    assert found.preconditioned == pytest.approx(0.05 * share * largest, rel=1e-3)
    assert found.preconditioned_threshold == pytest.approx(3.8, rel=1e-6)
    # after many steps the share is 1 - b1 = 0.1, and 3.8 / (0.1 rate) = 38 / rate
    limit_without_rate = found.preconditioned_threshold / (0.05 * share)
    assert limit_without_rate == pytest.approx(38 / 0.05 * 0.1 / share, rel=1e-6)
    assert found.rate_to_limit == pytest.approx(3.8 / found.preconditioned, rel=1e-6)
    text = " ".join(str(found).split())
    assert f"= {found.preconditioned:.4g} for the metric P of its next update" in text
    assert "unstable from 3.8 on, on the quadratic model with P held fixed" in text
    own = _suggestion(found, "the metric of your optimiser")
    scaled = gnjax.preconditioned(gnjax.gauss_newton(model, _inputs()), state, optimizer=optimizer)
    assert own.after.value == pytest.approx(gnjax.condition_number(scaled).value, rel=1e-2)


def test_an_optimiser_says_why_it_has_no_limit(stepped, targets):
    model, optimizer, state, *_ = stepped
    first = diagnose(
        model, _inputs(), targets, optimizer_state=optimizer.init(model[1]), optimizer=optimizer
    )
    assert first.preconditioned is None
    assert "no limit: the optimiser has made no step yet" in str(first)
    assert "no step yet" in _left_out(first, "the metric of your optimiser")
    guessed = diagnose(model, _inputs(), optimizer_state=state)  # and no targets: G
    assert guessed.preconditioned > 0
    assert guessed.preconditioned_threshold is guessed.rate_to_limit is None
    text = " ".join(str(guessed).split())
    assert "lambda_max(P^-1/2 G P^-1/2)" in text
    assert "is not known: pass optimizer= beside its state" in text
    with pytest.raises(ValueError, match="pass optimizer_state= beside optimizer="):
        diagnose(model, _inputs(), optimizer=optimizer)
    above = dataclasses.replace(first, preconditioned=7.6, preconditioned_threshold=3.8, without="")
    assert "above its limit, by a factor of 2" in str(above)


def test_float64_comes_first_where_float32_decides_what_is_resolved():
    """Inputs whose scales go down to 1e-9: the same call in float64 has kappa."""
    x = _inputs() * np.geomspace(1, 1e-9, 4)
    apply, params = gnjax.functional(_mlp())
    single = lambda tree: jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), tree)  # noqa: E731
    params, x = single(params), np.asarray(x, np.float32)
    with single_precision(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "JAX is in 32-bit mode")
        found = diagnose((apply, params), x)
    assert found.dtype == "float32"
    assert not found.condition.resolved
    with gnjax.x64():
        wide = diagnose((apply, params), x)
    assert (wide.dtype, wide.in_float64) == ("float64", None)
    assert wide.condition.resolved
    assert found.in_float64.value == pytest.approx(wide.condition.value, rel=1e-9)
    assert found.condition.value <= wide.condition.value
    remedies = str(found).partition("what would help")[2].splitlines()[1:]
    assert remedies[0].strip().startswith("the same weights in float64: kappa")
    assert "with gnjax.x64(): gnjax.diagnose(..)" in " ".join(str(found).split())
    assert "same weights in float64" not in str(wide)
    unmeasured = str(dataclasses.replace(found, in_float64=None))
    assert "the same weights in float64: it was not measured" in unmeasured


def test_a_lower_bound_that_falls_is_no_refusal(found):
    """Between two lower bounds nothing is decided, and the report does not say that it is."""
    before, after = _certain(1e9, math.inf, False), _certain(1e6, math.inf, False)
    own = Suggestion(f"learning rate of {found.suspect.name}", before, after, "")
    text = " ".join(str(dataclasses.replace(found, suggestions=(own,))).split())
    assert "does not help here" not in text
    assert f"cannot be told: {own.name}" in text
    assert "the lower bound fell 1e+03 times and no upper one is known" in text
    assert "it cannot be told whether it is the cause of kappa" in text
