"""``module:factory`` at the command line: the function, and the model with data that it makes."""

from __future__ import annotations

import argparse
import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flax.linen

from gnjax import data
from gnjax.data.datasets import unknown_name
from gnjax.networks.arguments.frameworks import is_equinox_state, is_haiku, is_torch
from gnjax.networks.model import is_model, is_module, output_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SAMPLES = 100


class MistakeError(ValueError):
    """A mistake that the user can correct in the call or in the factory."""


@contextmanager
def mistakes_name(factory: str) -> Iterator[None]:
    """A context that turns errors of a factory and its model into a MistakeError that names it."""
    try:
        yield
    except (ValueError, OSError) as error:
        msg = f"{factory}: {error}"
        raise MistakeError(msg) from error


def add_arguments(parser: argparse.ArgumentParser, returns: str) -> None:
    """Add the arguments that name the factory and the data."""
    text = f"a function without arguments that returns {returns}"
    parser.add_argument("factory", metavar="module:factory", help=text)
    parser.add_argument("--data", type=known_name, metavar="NAME", help="inputs and labels")
    parser.add_argument("--samples", type=int, help=f"of --data ({_SAMPLES})")


def known_name(name: str) -> str:
    """The name of a data set, for argparse, which prints the error for any other name."""
    if name not in data.names():
        raise argparse.ArgumentTypeError(unknown_name(name))
    return name


def problem(parsed: argparse.Namespace, returned: Any) -> tuple[Any, Any, Any]:
    """(model, x, y) from what a factory ``returned``, with the data of the call where it has none.

    y is None where there are no targets.
    """
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


def factory_named(name: str, max_arguments: int = 0) -> Callable[..., Any]:
    """The function that ``module:factory`` names, sought in the working directory too.

    It may need at most ``max_arguments`` arguments: none, or 1 for the path of a checkpoint.
    """
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        msg = "write it as package.module:factory"
        raise MistakeError(msg)
    if module_name.endswith(".py") or "/" in module_name or os.sep in module_name:
        path = Path(module_name)
        folder = f", in the folder {path.parent}" if path.parent != Path() else ""
        msg = f"name the module and not its file: write it as {path.stem}:{attribute}{folder}"
        raise MistakeError(msg)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except (ImportError, SyntaxError) as error:
        msg = f"{module_name} cannot be imported: {error}"
        raise MistakeError(msg) from error
    factory = _attribute(module, attribute)
    needed = needed_by(factory)
    if len(needed) > max_arguments:
        how = "with a path alone" if max_arguments else "without arguments"
        msg = f"it is called {how}, but it needs {', '.join(needed)}"
        raise MistakeError(msg)
    return factory


def _attribute(module: Any, attribute: str) -> Callable[..., Any]:
    """The function of a module; refuses a name that is not there, and what is no function."""
    name = module.__name__
    if not hasattr(module, attribute):
        functions = [own for own, value in vars(module).items() if callable(value)]
        near = difflib.get_close_matches(attribute, functions, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        msg = f"{name} has no function {attribute}{hint}"
        raise MistakeError(msg)
    factory = getattr(module, attribute)
    if not callable(factory) or is_module(factory):
        msg = (
            f"{name}.{attribute} is no function but of type {type(factory).__name__}; write a "
            f"function that returns it, as in: def make(): return {attribute}, x"
        )
        raise MistakeError(msg)
    return factory


def needed_by(factory: Callable[..., Any]) -> list[str]:
    """The names of the arguments of a function that have no default."""
    return [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def write_picture(figure: Figure, path: Path) -> None:
    """Write the figure to a file, in the format that its suffix names."""
    try:
        if path.exists() and not path.is_file():
            msg = f"{path} cannot be written: it is a folder, a pipe or a device"
            raise MistakeError(msg)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        msg = f"{path} cannot be written: {error}"
        raise MistakeError(msg) from error


def _parts(returned: Any) -> tuple[Any, ...]:
    """The parts of a factory's result: (model,), (model, x) or (model, x, y).

    A tuple may itself be a model, as (Linen module, variables), (function, parameters) or Equinox's
    (module, state). A module of PyTorch comes with its x, as :func:`_fitting` needs a model of JAX.
    """
    if type(returned) is not tuple and is_model(returned) and not is_torch(returned):
        return (returned,)
    if not isinstance(returned, tuple) or len(returned) not in (2, 3):
        msg = f"it must return a model, (model, x) or (model, x, y), not {type(returned).__name__}"
        raise MistakeError(msg)
    first, second, *_ = returned
    is_function = callable(first) and not is_module(first)
    is_linen = isinstance(first, flax.linen.Module)
    is_pair = len(returned) == 2 and (is_function or is_linen or is_equinox_state(second))
    return (returned,) if is_pair or is_haiku(first) else returned


def _fitting(model: Any, dataset: data.Dataset) -> tuple[Any, Any]:
    """(x, y) from a data set: its inputs in the first shape that the model takes, and its labels.

    The shapes of a sample are tried in this order: flat, that of the data set, and that with an
    axis of one channel. y is None where the model has not one output for each class.
    """
    shapes = [(-1,), dataset.shape, (*dataset.shape, 1)]
    refusals = []
    for shape in shapes:
        x = dataset.inputs.reshape(len(dataset.inputs), *shape)
        try:
            outputs = output_count(model, x)
        except ValueError as error:
            refusals.append(str(error).splitlines()[0])
            continue
        return x, dataset.labels if outputs == dataset.classes else None
    msg = f"the model takes no form of {dataset.name}, the first being refused: {refusals[0]}"
    raise MistakeError(msg)
