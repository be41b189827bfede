"""The public functions spell one argument one way, in one order, and state what they return."""

import inspect
import typing

import pytest

import gnjax
from gnjax import papers

_POSITIONAL = ("model", "op", "x", "x2", "y")
_KEYWORDS = (
    *("loss", "side", "weights", "has_aux", "coupled", "only", "mask", "batch_size"),
    *("seed", "progress", "limits"),
)
_DEFAULTS = {
    "y": {None, inspect.Parameter.empty},  # an empirical Fisher has none without targets
    "loss": {"squared_error"},
    "side": {"parameters", "outputs"},  # a kernel is that of the outputs
    "weights": {None},
    "has_aux": {False},
    "coupled": {None},
    "only": {None},
    "mask": {None},
    "batch_size": {None},
    "seed": {0},
    "progress": {None},
    "limits": {gnjax.Limits()},
}
_TREES = {"diagonal_of", "shampoo_factors"}  # return trees like the caller's


def _public():
    for room in (gnjax, gnjax.metrics, gnjax.operators, papers):
        for name in room.__all__:
            function = getattr(room, name)
            if inspect.isfunction(function):
                yield name, function
    yield "Monitor", gnjax.Monitor.__init__


_FUNCTIONS = dict(_public())


def _parameters(name):
    parameters = dict(inspect.signature(_FUNCTIONS[name]).parameters)
    parameters.pop("self", None)
    return parameters


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_arguments_come_in_one_order_with_one_default(name):
    parameters = _parameters(name)
    for order in (_POSITIONAL, _KEYWORDS):
        places = [order.index(argument) for argument in parameters if argument in order]
        assert places == sorted(places)
    for argument, parameter in list(parameters.items())[1:]:  # the first is its subject
        if argument in _KEYWORDS:
            assert parameter.kind == inspect.Parameter.KEYWORD_ONLY, argument
        if argument in _DEFAULTS:
            assert parameter.default in _DEFAULTS[argument], argument


def test_every_argument_of_the_lists_is_one_of_a_public_function():
    arguments = {argument for name in _FUNCTIONS for argument in _parameters(name)}
    assert arguments >= {*_POSITIONAL, *_KEYWORDS}


def test_targets_follow_the_inputs():
    """But for a kernel between two sets of samples, where those of the second follow."""
    for name in _FUNCTIONS:
        arguments = list(_parameters(name))
        if {"x", "y"} <= set(arguments) and name != "ntk":
            assert arguments.index("y") == arguments.index("x") + 1, name


def test_what_may_take_long_shows_progress_within_limits():
    """As every question about an operator does (tests/contracts/test_questions.py)."""
    assert {"progress", "limits", "seed"} <= set(_parameters("diagnose"))
    assert {"progress", "limits"} <= set(_parameters("block_spectra"))


@pytest.mark.parametrize("name", sorted(set(_FUNCTIONS) - _TREES - {"Monitor"}))
def test_the_return_type_is_stated(name):
    annotation = inspect.signature(_FUNCTIONS[name]).return_annotation
    assert annotation not in ("Any", typing.Any, inspect.Signature.empty)


_ROOMS = {
    "gnjax": gnjax,
    "gnjax.answers": gnjax.answers,
    "gnjax.data": gnjax.data,
    "gnjax.metrics": gnjax.metrics,
    "gnjax.models": gnjax.models,
    "gnjax.operators": gnjax.operators,
    "gnjax.papers": papers,
}


def test_no_public_name_stands_twice():
    """A reader who meets a name knows in which room it is."""
    names = [name for room in _ROOMS.values() for name in room.__all__]
    assert not {name for name in names if names.count(name) > 1}


@pytest.mark.parametrize("room", _ROOMS)
def test_a_room_has_the_names_that_it_lists(room):
    assert not [name for name in _ROOMS[room].__all__ if not hasattr(_ROOMS[room], name)]


def test_answers_are_found_where_they_stood_before():
    for name in ("ConditionNumber", "Diagnosis", "MonitorRow", "Spectrum", "Trace"):
        assert getattr(gnjax, name) is getattr(gnjax.answers, name)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kfac", "gnjax.metrics.kfac"),
        ("NetworkGram", "gnjax.operators.NetworkGram"),
        ("bounds", "gnjax.papers.bounds"),
    ],
)
def test_a_name_that_moved_says_where_it_is(old, new):
    with pytest.raises(AttributeError, match=f"it is {new} now"):
        getattr(gnjax, old)
