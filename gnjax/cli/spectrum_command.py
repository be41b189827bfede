"""``gnjax spectrum module:factory``: eigenvalues, kappa or the density of an operator of yours."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from gnjax.cli.factories import (
    MistakeError,
    add_arguments,
    factory_named,
    mistakes_name,
    problem,
    write_picture,
)
from gnjax.conditioning.condition_number import condition_number
from gnjax.diagnosis.picture import check_format
from gnjax.networks.losses.sample_losses import LOSSES
from gnjax.numerics import precision
from gnjax.numerics.answers.result import Result
from gnjax.operators.curvature import gauss_newton, hessian, ntk
from gnjax.operators.elsewhere.recognised import as_operator, is_matrix
from gnjax.operators.of_networks.hessian import NetworkHessian
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.operators.protocol import Operator
from gnjax.pictures.plot import plot
from gnjax.spectra.density import spectral_density
from gnjax.spectra.eigenvalues import eigenvalues
from gnjax.spectra.spectrum import Spectrum
from gnjax.spectra.watch import when_late

_MATRICES = ("gauss_newton", "hessian", "ntk")
_RETURNS = "an operator, a matrix, model, (model, x), (model, x, y) or (model, x, y, loss)"


def add_spectrum(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand ``spectrum`` with its arguments, among them those of a factory.

    Most options have no default here, so that :func:`run_spectrum` can refuse one that was given
    and has no meaning, such as --loss for a matrix. The help has the value used in brackets.
    """
    parser = commands.add_parser("spectrum", help="eigenvalues, kappa or density of a matrix")
    parser.set_defaults(run=run_spectrum)
    add_arguments(parser, _RETURNS)  # module:factory, whose help says what it may return; --data
    parser.add_argument("--matrix", choices=_MATRICES, help="of a model (gauss_newton)")
    parser.add_argument("--loss", choices=LOSSES, help="of a model (squared_error)")
    parser.add_argument("--k", type=int, help="how many eigenvalues (all)")
    parser.add_argument("--which", choices=("largest", "smallest"), help="with --k (largest)")
    parser.add_argument("--rtol", type=float, help="what iterations work towards")
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument("--kappa", action="store_true", help="the condition number instead")
    answer.add_argument("--density", action="store_true", help="the spectral density instead")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument("--json", action="store_true", help="print what Result.from_json reads")
    parser.add_argument("--out", type=Path, metavar="PICTURE", help="a png, pdf or svg")


def run_spectrum(parsed: argparse.Namespace) -> int:
    """Print what was asked for, and it alone to stdout; return 1 if it is not finished."""
    precision.enable_x64()
    with mistakes_name(parsed.factory):
        if parsed.out is not None:
            check_format(parsed.out)
        op = _operator(parsed)
        result = _result(parsed, op)
    if isinstance(op, NetworkGram | NetworkHessian) and not parsed.json:
        print(op)  # which matrix of which loss it is
    print(result.to_json() if parsed.json else result)
    if isinstance(result, Spectrum) and not parsed.json:
        print(f"{'eigenvalue':>24}  error")
        for value, error in zip(result.values, result.errors, strict=True):
            print(f"{value:24.16e}  {error:.2g}")
    if parsed.out is not None:
        write_picture(plot(result), parsed.out)
        print(f"picture: {parsed.out}", file=sys.stderr)
    if getattr(result, "finished", True) and getattr(result, "converged", True):
        return 0
    print("not finished: these are the best values so far", file=sys.stderr)
    return 1


def _operator(parsed: argparse.Namespace) -> Operator:
    """The operator that the factory returns, or the matrix of the model that it returns."""
    returned = factory_named(parsed.factory)()
    if is_matrix(returned):
        for name in ("matrix", "loss", "data", "samples"):
            if getattr(parsed, name) is not None:
                msg = f"it returns an operator, and --{name} is for a model; leave it out"
                raise MistakeError(msg)
        return as_operator(returned)
    loss: Any = parsed.loss or "squared_error"
    if isinstance(returned, tuple) and len(returned) == 4:
        if parsed.loss is not None:
            msg = "it returns a loss of its own; leave --loss out"
            raise MistakeError(msg)
        *returned, loss = returned
    model, x, y = problem(parsed, tuple(returned) if isinstance(returned, list) else returned)
    if parsed.matrix == "ntk":
        return ntk(model, x, y=y, loss=loss)
    if parsed.matrix == "hessian":
        if y is None:
            msg = "a Hessian needs targets; return (model, x, y)"
            raise MistakeError(msg)
        return hessian(model, x, y, loss=loss)
    return gauss_newton(model, x, y=y, loss=loss)


def _result(parsed: argparse.Namespace, op: Operator) -> Result:
    """The result that was asked for, with its progress on stderr."""
    progress = when_late()
    rtol = {} if parsed.rtol is None else {"rtol": parsed.rtol}
    if (parsed.kappa or parsed.density) and (parsed.k is not None or parsed.which is not None):
        msg = "--k and --which are for eigenvalues; leave them or --kappa and --density out"
        raise MistakeError(msg)
    if parsed.kappa:
        return condition_number(op, seed=parsed.seed, progress=progress, **rtol)
    if parsed.density:
        if rtol:
            msg = "--rtol is for eigenvalues and --kappa; leave it out"
            raise MistakeError(msg)
        return spectral_density(op, seed=parsed.seed, progress=progress)
    return eigenvalues(
        op, k=parsed.k, which=parsed.which, seed=parsed.seed, progress=progress, **rtol
    )
