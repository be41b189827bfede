"""What every question about an operator owes, whatever it asks.

The questions stand in ``questions.py``, a line for each. What a question answers is tested in a
file of its own, beside matrices whose answer is known.
"""

from __future__ import annotations

import inspect
import json
import re
import warnings
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

import gnjax
from gnjax.numerics import precision
from gnjax.numerics.certificate import UNKNOWN
from tests.allocation import MEBIBYTE, at_most
from tests.compiled import compiled
from tests.contracts import questions
from tests.contracts.questions import OF_NETWORKS, QUESTIONS
from tests.precision import single_precision

ALL = QUESTIONS | OF_NETWORKS
MATRIX = np.diag([4.0, 3.0, 2.0, 1.0]) + 0.25
X = np.random.default_rng(0).standard_normal((30, 4))

of_a_matrix = pytest.mark.parametrize("ask", [q.ask for q in QUESTIONS.values()], ids=QUESTIONS)
of_a_network = pytest.mark.parametrize("ask", [q.ask for q in ALL.values()], ids=ALL)
OP_SECOND = {"trace_of"}  # f comes first
NOTHING_RANDOM = {"solve", "predictive_variance"}
functions = {q.function.__name__: q.function for q in QUESTIONS.values()}


def _network(p, x):
    return jnp.tanh(x @ p["w"] + p["b"][None]) @ p["v"]


def _plain(seed):
    """A function that is written down anew in every call, and parameters."""
    shapes = {"w": (4, 6), "b": (6,), "v": (6, 3)}
    rng = np.random.default_rng(seed)
    return (lambda p, x: _network(p, x)), {n: rng.standard_normal(s) for n, s in shapes.items()}


def _module(seed):
    return gnjax.models.MLP((4, 6, 3), activation="tanh", key=jax.random.key(seed))


def _gauss_newton(model):
    return gnjax.gauss_newton(model, X, loss="cross_entropy")


# --- its place and its arguments -----------------------------------------------------------------


OPERATORS = {"Operator", *gnjax.operators.__all__}


def test_every_public_function_of_an_operator_stands_in_the_table():
    """But for those that make another operator."""
    public = filter(inspect.isfunction, (getattr(gnjax, name) for name in gnjax.__all__))
    of_an_operator = (f for f in public if next(iter(inspect.signature(f).parameters), "") == "op")
    asked = {
        f.__name__
        for f in of_an_operator
        if inspect.signature(f).return_annotation not in OPERATORS
    }
    listed = {question.function.__name__ for question in ALL.values()}
    apart = sorted((asked | OP_SECOND) ^ listed)
    assert not apart, f"only one of gnjax/__init__.py and contracts/questions.py lists {apart}"


@pytest.mark.parametrize("name", functions)
def test_it_takes_a_seed_shows_progress_and_keeps_limits(name):
    parameters = inspect.signature(functions[name]).parameters
    for each in ("progress", "limits", *(["seed"] if name not in NOTHING_RANDOM else [])):
        assert parameters[each].kind == inspect.Parameter.KEYWORD_ONLY, each


@pytest.mark.parametrize("name", functions)
def test_it_says_how_it_is_written_for_a_model(name):
    """Class: a decorator ``one_operator`` that is forgotten."""
    if name in OP_SECOND:
        pytest.skip("what comes first is no operator")
    model, more = _plain(0), inspect.signature(functions[name]).parameters.values()
    others = [each for each in more if each.kind != inspect.Parameter.KEYWORD_ONLY][1:]
    words = rf"{name} takes one operator.* gnjax.{name}\(gnjax.gauss_newton\(model, x\)"
    for given in ((model, X), (X, model), (np.eye(3), 2)):
        with pytest.raises(TypeError, match=words):
            functions[name](*given, *others)


# --- what it refuses -----------------------------------------------------------------------------


@of_a_matrix
@pytest.mark.parametrize("size", [40_000, 10**9])
def test_a_matrix_beyond_the_limit_is_neither_copied_nor_scanned(ask, size):
    """It takes no memory, whatever its shape."""
    matrix = np.broadcast_to(1.0, (size, size))
    with (
        at_most(MEBIBYTE),
        pytest.raises(ValueError, match=r"limits allow 20,000 rows; pass limits"),
    ):
        ask(matrix)


@of_a_matrix
def test_the_limit_of_rows_is_the_callers(ask):
    few = gnjax.Limits(matrix_rows=3)
    assert ask(np.eye(3), limits=few)
    with pytest.raises(ValueError, match="a matrix of 4 rows"):
        ask(np.eye(4), limits=few)


@of_a_matrix
def test_an_asymmetric_matrix_is_refused(ask):
    """But for the exact trace of products, which is right for any matrix."""
    if ask is QUESTIONS["exact trace"].ask:
        pytest.skip("a trace needs no symmetry")
    for given in (np.triu(MATRIX), aslinearoperator(np.triu(MATRIX))):
        with pytest.raises(ValueError, match="symmetric"):
            ask(given)


@of_a_matrix
def test_traced_numbers_are_refused_inside_of_jit_in_one_sentence(ask):
    with pytest.raises(ValueError, match="needs numbers, and some arrays are traced"):
        jax.jit(ask)(MATRIX)
    with pytest.raises(ValueError, match="needs numbers, and some arrays are traced"):
        jax.jit(lambda p: ask(_gauss_newton((_network, p))))(_plain(0)[1])


@of_a_matrix
def test_a_progress_that_is_no_function_is_refused(ask):
    with pytest.raises(ValueError, match="progress='yes' is neither True"):
        ask(MATRIX, progress="yes")


@of_a_matrix
@pytest.mark.parametrize("power", [-1030, -350, 350, 1000])
def test_squares_without_room_are_refused_in_one_sentence(ask, power):
    with pytest.raises(ValueError, match="power of two: kappa stays as it is"):
        ask(np.ldexp(MATRIX, power))


# --- what it answers -----------------------------------------------------------------------------


@of_a_matrix
def test_what_is_not_known_of_a_black_box_is_not_claimed(ask):
    assert ask(aslinearoperator(MATRIX)).certificate.kind == UNKNOWN
    assert ask(gnjax.as_operator(aslinearoperator(MATRIX), error=1e-9)).certificate.kind != UNKNOWN


def test_two_roads_of_one_question_agree():
    """Class: an interval that leaves out what random vectors, or another part, leave open."""
    found = {name: (q.function, q.ask(MATRIX)) for name, q in QUESTIONS.items()}
    pairs = [
        (name, other)
        for name, other in combinations(found, 2)
        if found[name][0] is found[other][0] and hasattr(found[name][1], "interval")
    ]
    assert pairs
    for name, other in pairs:
        (low, high), (low_there, high_there) = (found[n][1].interval for n in (name, other))
        assert low <= high_there, (name, other)
        assert low_there <= high, (name, other)


@of_a_network
def test_an_answer_can_be_saved_read_shown_and_asked_again(ask):
    answer = ask(_gauss_newton(_plain(0)))
    text = answer.to_json()
    json.loads(text, parse_constant=pytest.fail)  # no NaN and no Infinity, which JSON has not
    name = type(answer).__name__
    assert name in gnjax.answers.__all__, f"gnjax/answers.py does not list {name}"
    assert type(answer).from_json(text).to_json() == text
    assert ask(_gauss_newton(_plain(0))).to_json() == text
    assert re.match(rf"<{type(answer).__name__}: .{{,600}}$", repr(answer))
    assert answer._repr_html_().startswith("<table>")
    assert len(answer.to_pandas()) > 0


@of_a_matrix
def test_the_warning_of_32_bits_names_the_callers_line(ask):
    call = lambda: ask(MATRIX)  # noqa: E731
    precision._warn_single.cache_clear()
    with single_precision(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    said = [w for w in caught if "JAX is in 32-bit mode" in str(w.message)]
    here = call.__code__.co_filename, call.__code__.co_firstlineno
    assert [(w.filename, w.lineno) for w in said if w.filename != questions.__file__] in (
        [here],
        [],
    )
    assert len(said) == 1


# --- what it costs -------------------------------------------------------------------------------


@of_a_network
@pytest.mark.parametrize("model", [_plain, _module])
def test_new_weights_compile_nothing(model, ask):
    ask(_gauss_newton(model(0)))
    assert not compiled(lambda again: ask(_gauss_newton(again)), model(1))


# --- how it is watched ---------------------------------------------------------------------------


class _Calls:
    """A progress function that keeps what it is told and interrupts at some number of products."""

    def __init__(self, at=np.inf):
        self.at, self.done = at, []

    def __call__(self, done, expected):
        self.done.append(done)
        if done >= self.at:
            raise KeyboardInterrupt


@of_a_network
def test_watching_changes_no_number(ask):
    calls = _Calls()
    assert (
        ask(_gauss_newton(_plain(0)), progress=calls).to_json()
        == ask(_gauss_newton(_plain(0))).to_json()
    )
    assert calls.done == sorted(set(calls.done))


@of_a_network
def test_an_interrupted_answer_says_so_or_there_is_none(ask):
    whole, calls = _Calls(), _Calls(1)
    ask(_gauss_newton(_plain(0)), progress=whole)
    try:
        answer = ask(_gauss_newton(_plain(0)), progress=calls)
    except KeyboardInterrupt:
        return
    finished = answer.finished if hasattr(answer, "finished") else answer.converged
    assert finished == (calls.done == whole.done)  # nothing may be left to do


@of_a_network
def test_a_time_that_is_over_at_once_gives_no_answer_or_one_that_is_not_finished(ask):
    """What makes no products, as all eigenvalues of a small matrix, takes no notice of it."""
    whole = _Calls()
    ask(_gauss_newton(_plain(0)), progress=whole)
    said, made, finished = "limits allow", 0, True
    try:
        answer = ask(_gauss_newton(_plain(0)), limits=gnjax.Limits(whole_rows=1, seconds=1e-9))
        made = getattr(answer, "products", 0)
        finished = getattr(answer, "finished", True) and getattr(answer, "converged", True)
    except ValueError as refused:
        said = str(refused)
    assert "limits allow" in said
    assert not finished or made <= max(whole.done, default=0)
