"""Every public name has a docstring with an example, and the examples run."""

import doctest
import inspect
import types

import jax
import numpy as np
import pytest

import gnjax
from gnjax import papers

_MODULES = {
    "gnjax": gnjax,
    "gnjax.data": gnjax.data,
    "gnjax.initializers": gnjax.initializers,
    "gnjax.metrics": gnjax.metrics,
    "gnjax.operators": gnjax.operators,
    "gnjax.models": gnjax.models,
    "gnjax.papers": papers,
    "gnjax.papers.balanced": papers.balanced,
    "gnjax.papers.bounds": papers.bounds,
}


def _public():
    """(name, object) of all classes and functions that a user may call by a public name."""
    for module, inside in _MODULES.items():
        for name in getattr(inside, "__all__", _defined(inside)):
            found = getattr(inside, name)
            if not isinstance(found, types.ModuleType):
                yield f"{module}.{name}", found


def _defined(module):
    """What a module without ``__all__`` defines itself and does not hide."""
    return [
        name
        for name, found in vars(module).items()
        if (inspect.isfunction(found) or inspect.isclass(found))
        and found.__module__ == module.__name__
        and not name.startswith("_")
    ]


_NAMES = dict(_public())


def test_there_are_many_public_names():
    assert len(_NAMES) > 90
    assert {"gnjax.condition_number", "gnjax.models.MLP", "gnjax.initializers.chain"} <= set(_NAMES)


@pytest.mark.parametrize("name", _NAMES)
def test_the_example_runs(name):
    text = inspect.getdoc(_NAMES[name]) or ""
    assert text, f"{name} has no docstring"
    assert ">>> " in text, f"{name} is public and has no example in its docstring"
    if ">>> import torch" in text:
        pytest.importorskip("torch", reason="torch comes with gnjax[torch]")
    known = {"gnjax": gnjax, "jax": jax, "np": np}
    example = doctest.DocTestParser().get_doctest(text, known, name, name, 0)
    said: list[str] = []
    failed, attempted = doctest.DocTestRunner().run(example, out=said.append)
    assert attempted > 0
    assert failed == 0, "".join(said)
