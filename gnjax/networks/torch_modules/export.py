"""The graph of a torch.nn.Module, by ``torch.export``."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gnjax.networks.arguments.refusals import RAISED, Refused, first_line
from gnjax.networks.torch_modules.arrays import torch

_Forward = Callable[[Any, Sequence[Any]], list[Any]]
"""(module, the tensors of x) to the tensors that count as outputs."""

_WHOLE = (
    *("adaptive_avg_pool2d", "detach", "linear", "matmul", "scaled_dot_product_attention"),
    *("hardsigmoid", "hardswish", "linalg_vector_norm", "log_sigmoid", "sinc", "softplus"),
    "std.correction",
)
"""Operators that are kept where PyTorch would take them apart.

Layers stay what they are; a mean over an image whose channels are last would become a matter of the
layout in memory (``as_strided``), and a detach nothing. The parts of the others have another
derivative in places: at a kink, at a vector of zeros, or where a part overflows.
"""

_LOGGERS = ("_subclasses.fake_tensor", "fx.experimental.symbolic_shapes", "export._trace")
_ONE_AT_A_TIME = threading.RLock()  # torch.export keeps what it does in variables of its module
_SAMPLES = 3  # of the example: sizes 0 and 1 are special to torch.export


def exported(
    module: Any, forward: _Forward, example: Callable[[int | None], list[Any]]
) -> tuple[Any, bool]:
    """The program that ``torch.export`` makes of a module, and whether it takes any batch size.

    Where the operators depend on the number of samples, the program is for the number at hand.
    ``example`` makes tensors like those of x for a number of samples; None for the one at hand.
    """
    try:
        program = _export(module, forward, example(_SAMPLES), any_size=True)
        if _is_for_any_size(program):
            return program, True
    except Refused:
        raise
    except RAISED:
        pass  # an error that has another cause than the number of samples comes again below
    try:
        return _export(module, forward, example(None), any_size=False), False
    except Refused:
        raise
    except torch().fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode as error:
        msg = (
            "the module decides by the values of tensors which operators it applies, so that it "
            f"has no one graph ({first_line(error)}); write such a decision with torch.where"
        )
        raise Refused(msg) from error
    except RAISED as error:
        forward(copy.deepcopy(module), example(None))  # if x is wrong, this raises the error
        msg = (
            "torch.export cannot write down the operators of this module, which PyTorch runs: "
            f"{first_line(error).partition('. ')[0]}; take out of forward whatever is no operator "
            "of tensors: write x.detach() for x.data, and no derivatives (torch.autograd.grad, "
            "torch.func)"
        )
        raise Refused(msg) from error


def _export(module: Any, forward: _Forward, leaves: Sequence[Any], *, any_size: bool) -> Any:
    """The program of ``forward(module, leaves)`` by ``torch.export``.

    With ``any_size`` the first axis of the tensors ``leaves`` may have any length.
    """

    class Whole(torch().nn.Module):  # type: ignore[misc]
        """The module with ``forward`` around it, as torch.export takes modules only."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, leaves: Sequence[Any]) -> list[Any]:
            try:
                return forward(self.module, leaves)
            except RAISED as error:
                raise _InForwardError(error) from error

    sizes = {0: torch().export.Dim.DYNAMIC} if any_size else None
    shapes = ([sizes for _ in leaves],)
    with _ONE_AT_A_TIME, _unlogged():
        arguments = (list(leaves),)
        try:
            program = torch().export.export(Whole(), arguments, dynamic_shapes=shapes, strict=False)
        except _InForwardError as error:  # what the module has raised, and not torch.export
            raise error.cause from None
        _cut_where_no_grad(program)
        decompositions = torch().export.default_decompositions()
        for whole in _WHOLE:
            name, _, overload = whole.partition(".")
            operator = getattr(getattr(torch().ops.aten, name), overload or "default")
            decompositions.pop(operator, None)
        return program.run_decompositions(decompositions)


class _InForwardError(Exception):
    """An error inside of forward, to which PyTorch cannot add the graph, as it would print that."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__()
        self.cause = cause

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "partial_fx_graph":
            super().__setattr__(name, value)


@contextmanager
def _unlogged() -> Iterator[None]:
    """A context in which messages that ``torch.export`` logs in this thread are dropped."""
    own = threading.get_ident()
    loggers = [logging.getLogger(f"torch.{name}") for name in _LOGGERS]

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != own

    for logger in loggers:
        logger.addFilter(is_of_others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_of_others)


def _is_for_any_size(program: Any) -> bool:
    """Whether an exported program assumes nothing of the number of samples, except n >= 2.

    torch.export writes such assumptions as assertions in the graph and as ranges of sizes.
    """
    asserted = any(
        getattr(node.target, "name", str)() == "aten::_assert_scalar"  # a function has no name()
        for node in program.graph.nodes
        if node.op == "call_function"
    )
    ranges = program.range_constraints.values()
    unbounded = all(r.lower <= 2 and str(r.upper) == "int_oo" for r in ranges)  # up to infinity
    return not asserted and unbounded


def _cut_where_no_grad(program: Any) -> None:
    """Put a detach behind what is computed under ``torch.no_grad()``, which the graph forgets.

    The detached tensor takes the place of each result, also among the outputs of the program.
    """
    for node in list(program.graph.nodes):
        sets_grad = node.target is torch().ops.higher_order.wrap_with_set_grad_enabled
        if not sets_grad or node.args[0]:  # the first argument says whether it is enabled
            continue
        for result in list(node.users):
            with program.graph.inserting_after(result):
                detached = program.graph.call_function(torch().ops.aten.detach.default, (result,))
            detached.meta = dict(result.meta)
            result.replace_all_uses_with(
                detached, delete_user_cb=lambda user, detached=detached: user is not detached
            )
            program.graph_signature.replace_all_uses(result.name, detached.name)
