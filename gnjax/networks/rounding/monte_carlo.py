"""Monte Carlo arithmetic: a function evaluated with every rounding replaced by a random one.

Every floating point result is multiplied by 1 + u or 1 - u, at random, where u is the largest
relative error of one rounding in the dtype of that result (Parker 1997). The spread of a few
evaluations shows how much rounding can do to the value of the function: also where two ways to
compute it share their rounding errors, where sums cancel, and where a part of a float64 model works
in float32 or bfloat16.

What is perturbed:

- Operations that are exact (copies, reshapes, gathers, comparisons, maxima, conversions to a wider
  type, integers and booleans): nothing.
- Sums, differences, products, quotients and square roots: the result, by u, but where it is exact,
  as a position times 4, or a count of ones (``gnjax.networks.rounding.exact``).
- Sums of many terms (matrix products, convolutions, sums over axes): the terms as well, because the
  rounding of partial sums remains where the sum itself cancels. XLA adds the terms of a matrix
  product one after the other in long runs, so that its error grows with the square root of their
  number. K terms that are all equal are rounded in one direction, and err by more: on a CPU by up
  to K u / 4 in small matrix products, by K u / 5 in scatter-adds, and by 15 u in sums over axes.
  That is not seen here, but only where different programs are compared
  (:mod:`gnjax.networks.rounding.formed`).
- Elementary functions: the result, by 4 u, because XLA computes them to a few units only.
- Functions with a relative error that grows in their tails (erfc, exp2, cosh, sinh): the operand by
  2 u as well.
- log1p and atanh: the result, by 128 u, because XLA's log1p errs by 240 u near -0.41.
- Everything else (special functions, decompositions of matrices, library calls, whatever cannot be
  entered): the operands by 8 u and the results by 32 u. A call that is less accurate than that is
  not seen to be.
- Eigenvalues, singular values and the like: every entry of the matrix also by u times its largest
  entry, because LAPACK errs relative to the norm of the matrix. In a graded matrix, with entries of
  very different sizes, that is far more than any small entry.

Underflow counts as well: XLA takes a number below the smallest normal one for zero, so that such a
number, and a zero that is a product of numbers so small, moves by the smallest normal one.

Calls, loops and branches are entered. Constants and arguments count as exact. A while loop takes as
many steps as it does without random roundings. Equal terms that a loop adds one by one are rounded
in one direction, too; its steps are counted (``Loops``).

The arithmetic goes one operation after the other: in one program, where every result is moved, XLA
compiles a perceptron for a second and a transformer for a minute.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from gnjax.networks.equations.control_flow import (
    LOOPS,
    MOST_STEPS,
    chosen,
    step_counts,
    while_loop,
)
from gnjax.networks.jaxprs import ALL_CALLS, equations, evaluate, inexact, variables
from gnjax.networks.rounding.exact import exact_entries, is_exact_sum
from gnjax.networks.rounding.numpy_operations import in_host, result_by_numpy, scan_by_steps
from gnjax.networks.rounding.random_signs import Loops, RandomSigns
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import by_numpy, on_host
from gnjax.numerics.rounding import added, unit_roundoff, with_lost

_AT_ONCE = 3e7  # the most numbers that the vectors of one evaluation write
# By how many u the operands and the results of functions are moved.
_ELEMENTARY, _TAILS, _LOGARITHM, _OTHER = (0.0, 4.0), (2.0, 4.0), (0.0, 128.0), (8.0, 32.0)
_RUN = 8.0  # a sum of K terms is perturbed like 1 + sqrt(K) / 8 roundings, see the tests

_EXACT = frozenset(
    str.split("""
    abs all_gather all_to_all argmax argmin broadcast broadcast_in_dim bitcast_convert_type ceil
    clamp complex concatenate conj copy copy_p copysign cummax cummin device_put dynamic_slice
    dynamic_update_slice empty expand_dims floor full gather imag iota max min name neg nextafter
    optimization_barrier pad ppermute real reduce_max reduce_min reduce_window_max
    reduce_window_min rem reshape rev round scatter scatter-max scatter-min scatter_max scatter_min
    select_and_gather_add select_n sharding_constraint sign slice sort split squeeze stop_gradient
    tile top_k transpose
    """)
)
_DECISIONS = frozenset(
    [
        "ceil",
        "floor",
        "max",
        "min",
        "reduce_max",
        "reduce_min",
        "rem",
        "round",
        "sign",
        "sort",
        "top_k",
    ]
)
_BASIC = frozenset(str.split("add add_any div integer_pow mul sqrt square sub"))
_SUMS = frozenset(
    str.split("""
    conv_general_dilated cumsum dot_general psum reduce_sum reduce_window_sum scatter-add
    scatter_add select_and_scatter_add
    """)
)
_BY_NORM = frozenset(str.split("eig eigh hessenberg schur svd tridiagonal"))
_CONTRACTIONS = ("dot_general", "conv_general_dilated")
_FUNCTIONS = {
    **dict.fromkeys(
        str.split("""
        acos acosh asin asinh atan atan2 cbrt cos erf exp expm1 log logistic rsqrt sin tan tanh
        """),
        _ELEMENTARY,
    ),
    **dict.fromkeys(("cosh", "erfc", "exp2", "sinh"), _TAILS),
    **dict.fromkeys(("atanh", "log1p"), _LOGARITHM),
}


def products_and_changes(
    product: Partial,
    rng: np.random.Generator,
    vectors: Sequence[Any],
    batches: Sequence[Sequence[Any]] = ((),),
    *,
    work: float = 0.0,
    loops: Loops | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield for each v the sum of ``product(v, *batch)`` over batches, and its random change.

    The change is how far the same sum in Monte Carlo arithmetic differs from it. One operation goes
    after the other. The sum is rounded once, in the end, and the change has that rounding. ``rng``
    draws the random signs. Several vectors go together where they are small: ``work`` is about how
    many numbers are written for all vectors and one batch. ``loops`` gets what the loops may lose.
    """
    # Groups of two sizes would need two sets of compiled operations, so that their count divides.
    fewest = int(min(len(vectors), work / _AT_ONCE + 1))
    groups = next(n for n in range(fewest, len(vectors) + 1) if len(vectors) % n == 0)
    size = len(vectors) // groups
    for start in range(0, len(vectors), size):
        group = np.stack([on_host(v) for v in vectors[start : start + size]])
        image, change = _with_change(product, rng, group, batches[0], loops)
        lost: np.ndarray | None = None  # by the rounding of the sum
        for batch in batches[1:]:
            image_of_batch, change_of_batch = _with_change(product, rng, group, batch, loops)
            with np.errstate(all="ignore"):  # what is not finite is reported by whoever asked
                image, lost = added(image, lost, image_of_batch)
                change = change + change_of_batch
        if lost is not None:
            # Products add their batches so, too (gnjax.networks.network.sum_of): it rounds once.
            with np.errstate(all="ignore"):
                image = with_lost(image, lost)
                signs = RandomSigns(int(rng.integers(2**32)))
                change = change + (signs.moved(image, unit_roundoff(image.dtype)) - image)
        yield from zip(image, change, strict=True)


def _with_change(
    product: Partial,
    rng: np.random.Generator,
    vectors: np.ndarray,
    batch: Sequence[Any],
    loops: Loops | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The products (m, ..) of m vectors (m, p) with a batch, and their changes by other roundings.

    Every array, those of the function and of the batch too, has one more axis, along the vectors,
    so that the values for every vector have their own signs, which ``rng`` draws.
    """
    product, batch = jax.tree.map(partial(_repeated, len(vectors)), (product, batch))
    # the operations for all vectors, which are traced and not compiled together
    closed_jaxpr = _of_each.of(product).trace(product, vectors, *batch).jaxpr
    leaves = jax.tree.leaves((product, vectors, batch))
    (plain,) = evaluate(closed_jaxpr.jaxpr, closed_jaxpr.consts, leaves, result_by_numpy, ALL_CALLS)
    signs = RandomSigns(int(rng.integers(2**32)), loops)
    image = on_host(plain)
    return image, moved_result(signs, closed_jaxpr, leaves) - image


@bounded_jit
def _of_each(product: Partial, vectors: jax.Array, *batch: Any) -> jax.Array:
    """``product(v, *batch)`` for each v of ``vectors`` (m, p).

    The arrays inside ``product``, and those of the batch, have a copy for each vector along their
    first axis, to be rounded apart. This is jitted for its cache of traces alone: the caller takes
    the equations, and nothing is compiled.
    """
    return jax.vmap(lambda product, v, batch: product(v, *batch))(product, vectors, batch)


def _repeated(times: int, leaf: Any) -> Any:
    """The array ``leaf`` repeated along a new first axis; in host memory it is a view."""
    leaf = by_numpy(jnp.asarray(leaf))
    xp = np if isinstance(leaf, np.ndarray) else jnp  # keys of random numbers stay JAX's
    return xp.broadcast_to(leaf, (times, *leaf.shape))


def moved_result(signs: RandomSigns, closed_jaxpr: Any, leaves: Sequence[Any]) -> np.ndarray:
    """The one result of a closed jaxpr in Monte Carlo arithmetic, in host memory.

    It is NaN where the model raises an error, as one that checks its own numbers may: an integrator
    that must end at a given time, say, which random roundings miss.
    """
    try:
        (moved,) = perturbed(signs, closed_jaxpr.jaxpr, closed_jaxpr.consts, leaves)
    except RuntimeError:
        result = closed_jaxpr.out_avals[0]
        return np.full(result.shape, np.nan, result.dtype)
    return on_host(moved)


def perturbed(
    signs: RandomSigns, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]
) -> list[Any]:
    """The results of a jaxpr in Monte Carlo arithmetic, for values of its constants and arguments.

    ``signs`` draws the random signs. Constants and arguments count as exact, but for numbers below
    the smallest normal one, which a device may take for 0. Only those that enter the jaxpr are
    looked at: a network brings all of its samples, and one batch of them is multiplied.
    """
    if signs.something_decides is None:  # of the outermost equations
        signs.something_decides = any(map(_decides, equations(jaxpr)))
    used = {v for eqn in jaxpr.eqns for v in variables(eqn.invars)} | set(variables(jaxpr.outvars))
    inputs = zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True)
    exact = [signs.flushed(value) if place in used else value for place, value in inputs]
    consts, args = exact[: len(consts)], exact[len(consts) :]
    return evaluate(jaxpr, consts, args, partial(_bind, signs), ALL_CALLS)


def _decides(eqn: Any) -> bool:
    """Whether floating numbers decide something here, as in a comparison or when made integers.

    Only then does it matter that a number that is exact stays as it is.
    """
    reads_floats = any(hasattr(v.aval, "dtype") and inexact(v.aval) for v in eqn.invars)
    return reads_floats and (
        eqn.primitive.name in _DECISIONS
        or not all(hasattr(v.aval, "dtype") and inexact(v.aval) for v in eqn.outvars)
    )


def _bind(signs: RandomSigns, eqn: Any, operands: Sequence[Any]) -> Any:
    """The results of an equation of a jaxpr in Monte Carlo arithmetic, for given operands."""
    name = eqn.primitive.name
    if name == "while":
        return _while_loop(signs, eqn, operands)
    if name == "scan" and eqn.params["length"] and in_host(operands):
        body = eqn.params["jaxpr"]
        with _counted(signs, eqn):
            return scan_by_steps(partial(perturbed, signs, body.jaxpr, body.consts), eqn, operands)
    if name in LOOPS and eqn.params.get("length") != 0:  # a scan of no steps does nothing
        with jax.disable_jit(), _counted(signs, eqn):  # a loop goes step by step
            return LOOPS[name](partial(perturbed, signs), eqn, operands)
    if id(eqn) not in signs.known:  # an equation of a loop comes again and again
        signs.known[id(eqn)] = eqn, _relative_changes(eqn)
    _, (size_of_operands, size_of_results) = signs.known[id(eqn)]
    if name in _SUMS and size_of_results and signs.something_decides and _is_exact(eqn, operands):
        return signs.result(eqn, operands)
    if size_of_operands:
        operands = [signs.moved(_as_wide(eqn, o), size_of_operands) for o in operands]
    if name in _BY_NORM:
        u = size_of_operands / _OTHER[0]
        operands = [signs.shifted(operand, u) for operand in operands]
    results = signs.result(eqn, operands)  # a zero that may have underflowed is moved here
    if eqn.primitive.multiple_results:
        return [signs.moved(result, size_of_results) for result in results]
    matters = size_of_results and signs.something_decides
    exact = exact_entries(eqn, operands, results) if matters else None
    return signs.moved(results, size_of_results, exact)


def _counted(signs: RandomSigns, eqn: Any) -> AbstractContextManager[None]:
    """Count the steps of a scan while it is run, unless it carries no numbers from one to the next.

    A map over samples is such a scan. Branches have no steps.
    """
    carried = eqn.outvars[: eqn.params["num_carry"]] if eqn.primitive.name == "scan" else []
    if not any(inexact(v.aval) for v in carried):
        return nullcontext()
    return signs.loops.steps(eqn.params["length"], eqn.params["jaxpr"])


def _while_loop(signs: RandomSigns, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of a while loop in Monte Carlo arithmetic, step by step.

    For each draw, and each lane of a loop that was vmapped, it takes as many steps as the loop
    takes from the same operands as it is. By decisions of its own a loop that stops where a step
    changes less than a rounding would never end. What a loop of too many steps may lose is unknown.
    """
    counts = step_counts(eqn, operands)
    loop, carry = while_loop(eqn, operands)
    most = int(counts.max(initial=0))
    if most == MOST_STEPS:
        signs.loops.lost = math.inf
        return carry
    with signs.loops.steps(most, loop.body):
        for count in range(most):
            results = perturbed(signs, loop.body.jaxpr, loop.body.consts, loop.of_body(carry))
            goes_on = counts > count
            carry = results if goes_on.all() else chosen(goes_on, results, carry)
    return carry


def _relative_changes(eqn: Any) -> tuple[float, float]:
    """(s, t), where the operands of an equation are moved by s and its results by t.

    Both are multiples of the unit roundoff u of the results' format, as the docstring of the module
    lists them for each kind of operation.
    """
    floating = [v.aval for v in eqn.outvars if inexact(v.aval)]
    if not floating or eqn.primitive.name in _EXACT:
        return 0.0, 0.0
    u = max(unit_roundoff(aval.dtype) for aval in floating)
    name = eqn.primitive.name
    if name == "convert_element_type":
        source = eqn.invars[0].aval.dtype
        narrows = jnp.issubdtype(source, jnp.inexact) and unit_roundoff(source) < u
        return 0.0, u if narrows or jnp.issubdtype(source, jnp.integer) else 0.0
    if name == "reduce_precision":
        return 0.0, max(u, 0.5 ** (eqn.params["mantissa_bits"] + 1))
    if name in _BASIC:
        return 0.0, u
    if name in _CONTRACTIONS:
        roundings = 1 + math.sqrt(_terms(eqn)) / _RUN
        return max(roundings * u, _multiplier_roundoff(eqn)), roundings * u
    if name in _SUMS:
        return u, u
    units_of_operands, units_of_results = _FUNCTIONS.get(name, _OTHER)
    return units_of_operands * u, units_of_results * u


def _is_exact(eqn: Any, operands: Sequence[Any]) -> bool:
    """Whether the sums of an equation are exact, as counts are, and sums of small integers."""
    name, dtype = eqn.primitive.name, eqn.outvars[0].aval.dtype
    if name in _CONTRACTIONS and not _multiplier_roundoff(eqn):
        return is_exact_sum([operands[:1], operands[1:]], _terms(eqn), dtype)
    if name in ("scatter-add", "scatter_add"):
        values, _, updates = operands
        return is_exact_sum([(values, updates)], updates.size + 1, dtype)
    if name not in ("cumsum", "reduce_sum"):
        return False
    axes = (eqn.params["axis"],) if name == "cumsum" else eqn.params["axes"]
    return is_exact_sum([operands], math.prod(operands[0].shape[axis] for axis in axes), dtype)


def _as_wide(eqn: Any, operand: Any) -> Any:
    """The operand of a matrix product or convolution in the dtype of the result; others unchanged.

    A narrower format, such as bfloat16, would not hold a change by the roundoff of the result's.
    """
    result_dtype = eqn.outvars[0].aval.dtype
    converts = eqn.primitive.name in _CONTRACTIONS and jnp.result_type(operand) != result_dtype
    return jnp.asarray(operand).astype(result_dtype) if converts else operand


def _terms(eqn: Any) -> int:
    """How many products are added to make one entry of a matrix product or a convolution."""
    if eqn.primitive.name == "dot_general":
        shape, (summed_axes, _) = eqn.invars[0].aval.shape, eqn.params["dimension_numbers"][0]
        return math.prod(shape[axis] for axis in summed_axes)
    shape, (out_axis, *_) = eqn.invars[1].aval.shape, eqn.params["dimension_numbers"].rhs_spec
    return math.prod(shape) // max(shape[out_axis], 1)


def _multiplier_roundoff(eqn: Any) -> float:
    """The relative error by which both factors are rounded before they are multiplied, or 0.

    Where a matrix product or convolution asks for no precision and its result is float32, a GPU
    rounds the factors to TF32, and a TPU to bfloat16. With the precision HIGH a GPU rounds to TF32,
    too, and a TPU takes two bfloat16 for each factor, which have 16 bits together. Where it names
    one of JAX's algorithms, such as BF16_BF16_F32, the name says to which format.
    """
    # This is "NONE", the name of an algorithm, or a pair "(PRECISION.HIGH, PRECISION.HIGH)".
    precision = str(eqn.params["precision"]).upper()
    device, is_float32 = jax.default_backend(), eqn.outvars[0].aval.dtype == jnp.float32
    by_default = precision in ("NONE", "DEFAULT") or ".DEFAULT" in precision
    is_high = "HIGH" in precision.replace("HIGHEST", "")
    if "BF16" in precision or (is_float32 and by_default and device == "tpu"):
        return unit_roundoff(jnp.dtype(jnp.bfloat16))
    if "TF32" in precision or (is_float32 and (by_default or is_high) and device == "gpu"):
        return 2.0**-11  # TF32 keeps ten bits behind the first
    if is_float32 and is_high and device == "tpu":
        return 2.0**-16
    return unit_roundoff(jnp.dtype(jnp.float16)) if "F16" in precision else 0.0
