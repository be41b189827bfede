"""The graph of a module: steps that each apply an operator, evaluated by JAX.

Nothing here needs PyTorch. Arguments of a step are numbers, strings, lists of them, and references
to earlier results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.arguments.refusals import Refused
from gnjax.networks.torch_modules.operators import OPERATORS

_RANDOM = frozenset(
    str.split(
        "bernoulli dropout multinomial native_dropout normal normal_functional rand randint "
        "rand_like randn randn_like randperm uniform"
    )
)
_PARTLY_IN_FLOAT32 = frozenset(["hardsigmoid"])  # PyTorch's derivative has 1 / 6 in float32


@dataclass(frozen=True)
class Ref:
    """The result of an earlier step, or an input of the program."""

    name: str


@dataclass(frozen=True)
class Step:
    """One operator, with the type of its result and the module that asks for it."""

    name: str
    operator: str  # a name in OPERATORS
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    dtype: str | None  # None where the result is no single array
    module: str

    @property
    def eps(self) -> float:
        """The eps of the coarsest floating format in which PyTorch computes this step.

        0 where there is none, as for integers.
        """
        dtypes = [self.dtype] if self.dtype else []
        dtypes += ["float32"] if self.operator in _PARTLY_IN_FLOAT32 else []
        inexact = [dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.inexact)]
        return max((float(jnp.finfo(dtype).eps) for dtype in inexact), default=0.0)


@dataclass(frozen=True)
class Program:
    """The steps of a module, and what its inputs are.

    Attributes:
      parameters: the path of each input that is a parameter.
      fixed: the path of each input that is a buffer or a frozen parameter.
      constants: inputs that are numbers of the module's own.
      samples: the inputs that are leaves of x, in order.
      results: references in place of the leaves of what the module returns.
    """

    parameters: Mapping[str, str]
    fixed: Mapping[str, str]
    constants: Mapping[str, np.ndarray]
    samples: tuple[str, ...]
    steps: tuple[Step, ...]
    results: Any

    def __call__(
        self, params: Mapping[str, Any], fixed: Mapping[str, Any], samples: Sequence[Any]
    ) -> Any:
        """The outputs of the module at the samples x, by one operator of JAX after the other.

        Args:
          params: the parameters, by their paths in the module.
          fixed: buffers and frozen parameters, by their paths.
          samples: the arrays of x in their order.
        """
        values: dict[str, Any] = {name: params[path] for name, path in self.parameters.items()}
        values.update({name: fixed[path] for name, path in self.fixed.items()})
        values.update({name: jnp.asarray(array) for name, array in self.constants.items()})
        values.update(zip(self.samples, samples, strict=True))
        with jax.numpy_rank_promotion("allow"):  # PyTorch's operators do, whatever the caller wants
            for step in self.steps:
                args, kwargs = filled((step.args, dict(step.kwargs)), values)
                try:
                    result = OPERATORS[step.operator](*args, **kwargs)
                except OverflowError as error:
                    msg = (
                        f"the operator {step.operator} (in {step.module}) has a number of 64 bits "
                        "in it, which JAX does not hold in 32-bit mode; call gnjax.enable_x64() "
                        "before making arrays"
                    )
                    raise Refused(msg) from error
                values[step.name] = typed(result, step.dtype)
        return filled(self.results, values)


def filled(tree: Any, values: Mapping[str, Any]) -> Any:
    """A tree of lists, tuples and dicts with each :class:`Ref` replaced by its value."""
    if isinstance(tree, Ref):
        return values[tree.name]
    if isinstance(tree, dict):
        return {key: filled(entry, values) for key, entry in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(filled(entry, values) for entry in tree)
    return tree


def typed(value: Any, dtype: str | None) -> Any:
    """The array in the dtype that PyTorch gives it, if JAX's mode has it; None leaves it."""
    if dtype is None:
        return value
    jax_dtype = jax.dtypes.canonicalize_dtype(jnp.dtype(dtype))
    array = jnp.asarray(value)
    return array if array.dtype == jax_dtype else array.astype(jax_dtype)


def check_operators(steps: Sequence[Step]) -> None:
    """Refuse a graph with operators of PyTorch that have no translation, named in the message."""
    unknown: dict[str, str] = {}
    for step in steps:
        if step.operator not in OPERATORS:
            unknown.setdefault(step.operator, step.module)
    if not unknown:
        return
    names = ", ".join(f"{name} (in {module})" for name, module in unknown.items())
    if _RANDOM.intersection(unknown):
        msg = (
            f"the module draws random numbers in evaluation mode: {names}; take the drawing out, "
            "as in torch.nn.functional.dropout(x, training=self.training), or draw once and keep "
            "the numbers in a buffer"
        )
        raise Refused(msg)
    msg = (
        f"gnjax.from_torch does not know these operators of PyTorch: {names}; put a module of "
        "other operators in the place of each, or write apply(params, x) with jax.numpy "
        "and give (apply, params)"
    )
    raise Refused(msg)
