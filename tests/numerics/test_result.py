"""Results go through JSON bit by bit, show themselves briefly, and refuse other text."""

from __future__ import annotations

import dataclasses
import json
import math

import jax
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import gnjax
from gnjax import papers
from gnjax.numerics.answers.result import Result
from gnjax.numerics.answers.schema import inheriting

_NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


def _same(one, two):
    """Equal in type and in every bit, through all fields; numpy's float64 is Python's float."""
    if isinstance(one, Result):
        assert type(one) is type(two)
        for field in dataclasses.fields(one):
            _same(getattr(one, field.name), getattr(two, field.name))
    elif isinstance(one, np.ndarray):
        assert (one.shape, one.dtype) == (two.shape, two.dtype)
        assert one.tobytes() == two.tobytes()
    elif isinstance(one, tuple):
        assert len(one) == len(two)
        for first, second in zip(one, two, strict=True):
            _same(first, second)
    elif isinstance(one, float):
        assert isinstance(two, float)
        assert np.float64(one).tobytes() == np.float64(two).tobytes()
    else:
        assert type(one) is type(two)
        assert one == two


def _results():
    rng = np.random.default_rng(0)
    model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    x, y = rng.standard_normal((5, 3)), rng.standard_normal((5, 2))
    op = gnjax.gauss_newton(model, x)
    weights = [rng.standard_normal((4, 3)), rng.standard_normal((2, 4))]
    density = gnjax.spectral_density(op, probes=2, steps=5)
    yield gnjax.condition_number(op)
    yield gnjax.condition_number(np.zeros((2, 2)))  # nan and a floor
    yield gnjax.condition_number(np.diag([1.0, 1e-17]))  # an interval without an upper end
    yield gnjax.eigenvalues(gnjax.hessian(model, x, y), k=3, vectors=True)
    yield gnjax.eigenvalues(_callers())  # infinite errors
    yield density
    yield density.pdf(density.grid(20))
    yield gnjax.trace(op, probes=1)  # an infinite standard error
    yield gnjax.trace(op, method="exact")
    yield gnjax.solve(op, np.ones((26, 2)), damping=1.0)
    yield gnjax.logdet(op, damping=1.0)
    yield gnjax.inverse_diagonal(op, damping=1.0)
    yield gnjax.predictive_variance(op, gnjax.ntk(model, x), damping=1.0)
    yield gnjax.distance(op, gnjax.metrics.kfac(op, damping=0.0))
    yield gnjax.condition_number(op).certificate
    yield papers.rank_sensitivity(gnjax.eigenvalues(op))
    yield papers.bounds.linear(weights)
    yield papers.bounds.gaussian_init(4, 2, 9, 1.0, 1.0, 1.0, 1.0)
    yield gnjax.diagnose(model, x, y)


def _callers():
    class Callers:
        shape, dtype = (2, 2), np.dtype(float)

        def mv(self, v):
            return v

        def as_matrix(self):
            return np.eye(2)

    return Callers()


@pytest.fixture(scope="module")
def results():
    return list(_results())


def test_every_result_comes_back_from_json_in_every_bit(results):
    for result in results:
        text = result.to_json()
        json.loads(text, parse_constant=_refuse)  # no NaN and no Infinity, which JSON has not
        _same(type(result).from_json(text), result)


def _refuse(name):
    msg = f"{name} is not JSON"
    raise AssertionError(msg)


@example(values=np.array([[-0.0, np.inf, -np.inf, 5e-324]]), error=-math.inf)
@example(values=np.zeros((0, 2), np.float32), error=-0.0)
@given(
    values=arrays.arrays(
        st.sampled_from([np.float64, np.float32]),
        st.tuples(st.integers(0, 3), st.integers(0, 3)),
        elements=st.floats(width=32),
    ),
    error=_NUMBERS,
)
def test_any_numbers_come_back(values, error):
    """nan is the one with the usual bits: the others cannot be told from it in Python."""
    values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
    error = math.nan if math.isnan(error) else error
    result = gnjax.answers.Trace(error, abs(error), "exact", 3)
    _same(gnjax.answers.Trace.from_json(result.to_json()), result)
    spectrum = gnjax.answers.Spectrum(values, values, "dense", converged=False, vectors=values)
    _same(gnjax.answers.Spectrum.from_json(spectrum.to_json()), spectrum)


def test_representations_are_short(results):
    for result in results:
        text = repr(result)
        assert text.startswith(f"<{type(result).__name__}: ")
        assert "\n" not in text
        assert len(text) < 600, text
        shown = result._repr_html_()
        assert shown.startswith("<table>")
        assert all(f">{field.name}<" in shown for field in dataclasses.fields(result))
        assert len(shown) < 20_000


def test_other_text_is_refused_in_a_sentence(results):
    kappa = results[0]
    refused = [
        ("no json", "not what to_json of a Trace wrote"),
        ("[1, 2]", "JSON of something else, not of a Trace"),
        (kappa.to_json(), "JSON of ConditionNumber, not of a Trace"),
        ('{"type": "Trace", "value": 1.0}', "not what to_json of a Trace wrote"),
        ('{"type": "Path"}', "no result of the type 'Path'"),
        ('{"value": 1.0}', "not what to_json of a Trace wrote"),
    ]
    for text, words in refused:
        with pytest.raises(ValueError, match=words):
            gnjax.answers.Trace.from_json(text)
    with pytest.raises(ValueError, match="a function cannot be written"):
        dataclasses.replace(kappa, method=math.sin and (lambda: None)).to_json()


def _agrees(plain, tree):
    """Whether ``to_dict`` says what JSON says, which is made by other code."""
    if isinstance(plain, dict):
        for name, part in tree.items():
            assert name == "type" or _agrees(plain[name], part)
    elif isinstance(plain, list):
        assert all(_agrees(*pair) for pair in zip(plain, tree, strict=True))
    elif isinstance(plain, np.ndarray):
        numbers = [float(number) for number in tree["array"]]
        np.testing.assert_array_equal(plain, np.reshape(numbers, tree["shape"]))
    elif isinstance(tree, dict):
        np.testing.assert_equal(plain, float(tree["float"]))
    else:
        assert (type(plain), plain) == (type(tree), tree)
    return True


@pytest.mark.parametrize("index", range(14))
def test_a_dict_has_every_field_and_the_evidence(results, index):
    result = results[index]
    plain = result.to_dict()
    _agrees(plain, json.loads(result.to_json()))
    certificate = getattr(result, "certificate", None)
    if certificate is not None:
        assert plain["certificate"]["kind"] == certificate.kind
        assert plain["certificate"]["failure"] == certificate.failure


@pytest.mark.parametrize("index", range(14))
def test_a_table_has_the_numbers_of_its_rows_and_the_evidence_in_each(results, index):
    result = results[index]
    frame, rows = result.to_pandas(), type(result)._rows
    if not rows:
        assert len(frame) == 1
    for name in rows:
        values = getattr(result, name)
        if isinstance(values, np.ndarray) and values.size:
            np.testing.assert_array_equal(frame[name].to_numpy(), values.ravel())
        elif isinstance(values, tuple):
            assert len(frame) == len(values)
    for name, value in vars(result).items():
        if isinstance(value, tuple) and value and isinstance(value[0], float):
            ends = frame.iloc[0][[f"{name}_low", f"{name}_high"]].to_numpy(float)
            np.testing.assert_array_equal(ends, value)
    if hasattr(result, "certificate"):
        assert set(frame["certificate_kind"]) == {result.certificate.kind}


def test_what_a_class_says_of_its_table_is_there():
    """Class: a field is renamed, and its column is lost."""
    for kind in inheriting(Result):
        for name in (*kind._rows, *kind._also):
            assert hasattr(kind, name) or name in {f.name for f in dataclasses.fields(kind)}, kind


def test_tables_of_blocks_layers_and_steps():
    model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    x, y = np.random.default_rng(0).standard_normal((5, 3)), np.zeros((5, 2))
    spectra = gnjax.block_spectra(model, x)
    frame = spectra.to_pandas().set_index("name")
    for block in spectra.blocks:
        row = frame.loc[block.name]
        assert row["condition_value"] == block.condition.value
        assert (row["condition_interval_low"], row["condition_interval_high"]) == (
            block.condition.interval
        )
        assert row["spectrum_certificate_kind"] == block.spectrum.certificate.kind
        assert row["trace"] == block.trace
    monitor = gnjax.Monitor(x, y, kappa=False)
    rows = [monitor(step, model, rate=0.1) for step in range(2)]
    frame = monitor.to_pandas()
    assert frame["sharpness_error"].tolist() == [row.sharpness_error for row in rows]
    assert frame["threshold"].tolist() == [20.0, 20.0]
    assert "kappa" not in frame
    indefinite = gnjax.block_spectra(gnjax.hessian(model, x, y)).to_pandas()
    assert len(indefinite) == 2
