"""``module:factory`` at the command line: the function, and the model with data that it makes."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flax.linen
from flax import nnx

from gnjax import data
from gnjax.data.datasets import unknown_name
from gnjax.networks.forms.frameworks import is_torch
from gnjax.networks.model import evaluated_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SAMPLES = 100


class MistakeError(ValueError):
    """A mistake that the user can correct in the call or in the factory."""


def add_arguments(parser: argparse.ArgumentParser, returns: str) -> None:
    """Add the arguments that name the factory and the data."""
    text = f"a function without arguments that returns {returns}"
    parser.add_argument("factory", metavar="module:factory", help=text)
    parser.add_argument("--data", type=known_name, metavar="NAME", help="inputs and labels")
    parser.add_argument("--samples", type=int, help=f"of --data ({_SAMPLES})")


def known_name(name: str) -> str:
    if name not in data.names():
        raise argparse.ArgumentTypeError(unknown_name(name))
    return name


def problem(parsed: argparse.Namespace, returned: Any) -> tuple[Any, Any, Any]:
    """The model with the inputs that the factory made, or with a data set's."""
    model, *data_returned = _parts(returned)
    if data_returned and (parsed.data is not None or parsed.samples is not None):
        msg = "it returns inputs of its own; leave --data and --samples out"
        raise MistakeError(msg)
    if data_returned:
        return model, data_returned[0], data_returned[1] if len(data_returned) > 1 else None
    if parsed.data is None:
        msg = "it returns no inputs; return (model, x) or name a data set with --data"
        raise MistakeError(msg)
    samples = _SAMPLES if parsed.samples is None else parsed.samples
    return model, *_fitting(model, data.load(parsed.data, samples=samples, seed=parsed.seed))


def factory_named(name: str, most: int = 0) -> Callable[..., Any]:
    """The function that ``module:factory`` names, sought in the working directory too.

    It may need at most so many arguments.
    """
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        msg = "write it as package.module:factory"
        raise MistakeError(msg)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except (ImportError, SyntaxError) as error:
        msg = f"{module_name} cannot be imported: {error}"
        raise MistakeError(msg) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        msg = f"{module_name} has no function {attribute}"
        raise MistakeError(msg)
    needed = needed_by(factory)
    if len(needed) > most:
        with_what = "with a path alone" if most else "without arguments"
        msg = f"it is called {with_what}, but it needs {', '.join(needed)}"
        raise MistakeError(msg)
    return factory


def needed_by(factory: Callable[..., Any]) -> list[str]:
    """The names of the arguments that a function needs."""
    return [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def write_picture(figure: Figure, path: Path) -> None:
    """Write the figure in the format of the suffix."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        msg = f"{path} cannot be written: {error}"
        raise MistakeError(msg) from error


def _parts(returned: Any) -> tuple[Any, ...]:
    """The parts of a factory's result: (model,), (model, x) or (model, x, y).

    A pair may also be a Linen or a functional model without x.
    """
    if isinstance(returned, nnx.Module):
        return (returned,)
    if not isinstance(returned, tuple) or len(returned) not in (2, 3):
        msg = f"it must return a model, (model, x) or (model, x, y), not {type(returned).__name__}"
        raise MistakeError(msg)
    first = returned[0]
    alone = callable(first) and not (isinstance(first, nnx.Module) or is_torch(first))
    if len(returned) == 2 and (alone or isinstance(first, flax.linen.Module)):
        return (returned,)
    return returned


def _fitting(model: Any, dataset: data.Dataset) -> tuple[Any, Any]:
    """Inputs in the first shape that the model takes, and labels where it has as many outputs."""
    shapes = [(-1,), dataset.shape, (*dataset.shape, 1)]
    refusals = []
    for shape in shapes:
        x = dataset.inputs.reshape(len(dataset.inputs), *shape)
        try:
            outputs = evaluated_model(model, x)[-1]
        except ValueError as error:
            refusals.append(str(error).splitlines()[0])
            continue
        return x, dataset.labels if outputs.shape[1] == dataset.classes else None
    msg = f"the model takes no form of {dataset.name}, the first being refused: {refusals[0]}"
    raise MistakeError(msg)
