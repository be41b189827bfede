"""Read a config file and overrides from the command line."""

from __future__ import annotations

import ast
import difflib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict as ConfigDict  # a config of one's own takes it from here

from gnjax import data


class ConfigError(ValueError):
    """A config that cannot be used, and what to do about it."""


def load(argument: str) -> tuple[ConfigDict, str]:
    """The config and the profile that ``configs/name.py:profile`` names.

    A file that lists its ``PROFILES`` is asked for no other one.
    """
    path, _, profile = argument.rpartition(":")
    if not path or not profile:
        msg = f"--config={argument} must be FILE:PROFILE, as in configs/depth_sweep.py:laptop"
        raise ConfigError(msg)
    module = _module(Path(path))
    if profile not in getattr(module, "PROFILES", (profile,)):
        raise unknown_profile(profile, module.PROFILES)
    try:
        return module.get_config(profile), profile
    except KeyError as error:
        if error.args != (profile,):
            raise
        msg = f"{path} has no profile {profile!r}"
        raise ConfigError(msg) from error
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _module(path: Path) -> ModuleType:
    if not path.is_file():
        near = difflib.get_close_matches(path.stem, [p.stem for p in path.parent.glob("*.py")], n=1)
        hint = f"; did you mean {path.with_name(near[0])}.py?" if near else ""
        msg = f"there is no config file {path}{hint}"
        raise ConfigError(msg)
    spec = importlib.util.spec_from_file_location(f"config_{path.stem}", path)
    if spec is None or spec.loader is None:
        msg = f"{path} is not a Python file"
        raise ConfigError(msg)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_config"):
        msg = f"{path} does not define get_config(profile)"
        raise ConfigError(msg)
    return module


def unknown_profile(profile: str, known: Sequence[str]) -> ConfigError:
    near = difflib.get_close_matches(profile, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return ConfigError(f"there is no profile {profile!r}: choose {', '.join(known)}{hint}")


def is_at_hand(name: str) -> bool:
    """Whether a data set can be had without a download."""
    return data.state(name) != "not here"


def at_hand(name: str, otherwise: str) -> str:
    """A data set if it can be had without a download, or else the one to take in its place.

    Which one was taken stands in the table, in the caption and in the provenance.
    """
    return name if is_at_hand(name) else otherwise


def data_of(profile: str, published: str, bundled: str = "fashion_mnist_5000") -> str:
    """The published data set in the paper profile if it is at hand, else the bundled one."""
    return at_hand(published, bundled) if profile == "paper" else bundled


def override(config: ConfigDict, overrides: Sequence[str]) -> ConfigDict:
    """Apply ``field.field=value`` texts; a new value must have the type of the old one."""
    changed = config.copy_and_resolve_references()
    for text in overrides:
        path, equals, value = text.partition("=")
        if not equals:
            msg = f"--config.{text} needs a value, as in --config.{text}=VALUE"
            raise ConfigError(msg)
        parent, name = _find(changed, path)
        parent[name] = _value(parent[name], value, path)
    return changed


def _find(config: ConfigDict, path: str) -> tuple[ConfigDict, str]:
    """The innermost config and the field that a dotted path names.

    The error for an unknown path names the nearest field there is.
    """
    parent: Any = config
    *folders, last = path.split(".")
    for name in folders:
        parent = parent[name] if isinstance(parent, ConfigDict) and name in parent else None
        if not isinstance(parent, ConfigDict):
            break
    if isinstance(parent, ConfigDict) and last in parent:
        if isinstance(parent[last], ConfigDict):
            fields = ", ".join(f"{path}.{field}" for field in parent[last])
            msg = f"config.{path} is a group; set one of {fields}"
            raise ConfigError(msg)
        return parent, last
    known = _paths(config)
    by_last = {known_path.split(".")[-1]: known_path for known_path in known}
    near = difflib.get_close_matches(path, known, n=1)
    near = near or [by_last[n] for n in difflib.get_close_matches(last, by_last, n=1)]
    hint = f"did you mean config.{near[0]}?" if near else f"fields are {', '.join(known)}"
    msg = f"there is no field config.{path}; {hint}"
    raise ConfigError(msg)


def _paths(config: ConfigDict, prefix: str = "") -> list[str]:
    paths: list[str] = []
    for name, value in config.items():
        inner = isinstance(value, ConfigDict)
        paths += _paths(value, f"{prefix}{name}.") if inner else [prefix + name]
    return paths


def _value(old: Any, text: str, path: str) -> Any:
    """The text as a value of the type of ``old``."""
    if isinstance(old, str):
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    if isinstance(old, float) and type(value) is int:
        return float(value)
    if isinstance(old, tuple):
        value = tuple(value) if isinstance(value, tuple | list) else (value,)
        kind = type(old[0]) if old else object
        value = tuple(float(v) if kind is float and type(v) is int else v for v in value)
        if value and all(type(v) is kind for v in value):
            for entry in value:
                _check_count(min(old), entry, path)
            return value
        msg = f"config.{path} takes a list of {kind.__name__} such as {list(old)}, got {text!r}"
        raise ConfigError(msg)
    if type(value) is type(old):
        _check_count(old, value, path)
        return value
    msg = f"config.{path} takes {type(old).__name__} such as {old!r}, got {text!r}"
    raise ConfigError(msg)


def _check_count(old: Any, value: Any, path: str) -> None:
    """Refuse a negative integer where the profile has none: sizes, numbers of things, seeds."""
    if type(value) is int and value < 0 <= old:
        msg = f"config.{path} takes integers from 0 on, such as {old}, got {value}"
        raise ConfigError(msg)
