"""The graph of a torch.nn.Module, by ``torch.export``."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any

from gnjax.networks.forms.refusals import RAISED, Refused, told
from gnjax.networks.torch_modules.arrays import torch

Forward = Callable[[Any, Sequence[Any]], list[Any]]
"""(module, the leaves of x) to the tensors that count."""

_WHOLE = ("adaptive_avg_pool2d", "detach", "linear", "matmul", "scaled_dot_product_attention")
"""Operators that are kept where PyTorch would take them apart.

Layers stay what they are; a mean over an image whose channels are last would become a matter of the
layout in memory (``as_strided``), and a detach nothing.
"""

_SAMPLES = 3  # of the example: sizes 0 and 1 are special to torch.export


def exported(
    module: Any, forward: Forward, example: Callable[[int | None], list[Any]]
) -> tuple[Any, bool]:
    """The exported program of a module, and whether it is for any number of samples.

    A module that asks how many samples there are, or whose shapes fix it, gets a program for the
    number at hand. ``example`` makes the leaves of x for a number of samples, None for that.
    """
    try:
        program = _export(module, forward, example(_SAMPLES), any_size=True)
        if _is_for_any_size(program):
            return program, True
    except Refused:
        raise
    except RAISED:
        pass  # what is wrong beside the number of samples is told below
    try:
        return _export(module, forward, example(None), any_size=False), False
    except torch().fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode as error:
        msg = (
            "the module decides by the values of tensors which operators it applies, so that it "
            f"has no one graph ({told(error)}); write such a decision with torch.where"
        )
        raise Refused(msg) from error


def _export(module: Any, forward: Forward, leaves: Sequence[Any], *, any_size: bool) -> Any:
    class Whole(torch().nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, leaves: Sequence[Any]) -> list[Any]:
            results = forward(self.module, leaves)
            _check_derivatives(results)
            return results

    sizes = {0: torch().export.Dim.DYNAMIC} if any_size else None
    shapes = ([sizes for _ in leaves],)
    with _quiet():
        arguments = (list(leaves),)
        program = torch().export.export(Whole(), arguments, dynamic_shapes=shapes, strict=False)
        _cut_where_no_grad(program)
        rules = torch().export.default_decompositions()
        for name in _WHOLE:
            rules.pop(getattr(torch().ops.aten, name).default, None)
        return program.run_decompositions(rules)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence PyTorch's warnings about its own insides, and about an attempt that is repeated."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _is_for_any_size(program: Any) -> bool:
    """Whether nothing is assumed of the number of samples but that it is at least 2."""
    asserted = any(
        getattr(node.target, "name", str)() == "aten::_assert_scalar"
        for node in program.graph.nodes
        if node.op == "call_function"
    )
    ranges = program.range_constraints.values()
    return not asserted and all(r.lower <= 2 and str(r.upper) == "int_oo" for r in ranges)


def _cut_where_no_grad(program: Any) -> None:
    """Put a detach behind what is computed under ``torch.no_grad()``, which the graph forgets."""
    for node in list(program.graph.nodes):
        under = node.target is torch().ops.higher_order.wrap_with_set_grad_enabled
        if not under or node.args[0]:
            continue
        for result in list(node.users):
            with program.graph.inserting_after(result):
                detached = program.graph.call_function(torch().ops.aten.detach.default, (result,))
            detached.meta = dict(result.meta)
            result.replace_all_uses_with(
                detached, delete_user_cb=lambda user, detached=detached: user is not detached
            )
            program.graph_signature.replace_all_uses(result.name, detached.name)


def _check_derivatives(tensors: Sequence[Any]) -> None:
    """Refuse derivatives that somebody wrote by hand: the graph has operators alone."""
    custom_node = torch().autograd.function.BackwardCFunction
    names = sorted(
        {
            type(node).__name__.removesuffix("Backward")
            for node in _backward(tensors)
            if isinstance(node, custom_node)
        }
    )
    if names:
        msg = (
            f"the module has derivatives written by hand, in the torch.autograd.Function "
            f"{', '.join(names)}, which torch.export does not pass on; write the function with "
            "operators of PyTorch, or write apply(params, x) with jax.numpy and jax.custom_vjp"
        )
        raise Refused(msg)


def _backward(tensors: Sequence[Any]) -> Iterator[Any]:
    """The nodes of the backward graph."""
    waiting = [tensor.grad_fn for tensor in tensors]
    visited: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        waiting.extend(before for before, _ in node.next_functions)
        yield node
