"""Whether equations keep the samples of a batch apart, as their structure shows.

Every value of a jaxpr either belongs to the samples along one of its axes, or to none of them, or
it may mix them. The axes are followed through all equations, loops and branches. Where every result
still has the samples along its first axis, no sample can depend on another one or on its place in
the batch. An equation that is not known here counts as one that mixes: nothing is then shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from gnjax.networks.jaxprs import ALL_CALLS, evaluate


@dataclass(frozen=True)
class Along:
    """A value of the samples: entry b * inner + j along ``axis`` belongs to sample b."""

    axis: int
    inner: int = 1


@dataclass(frozen=True)
class Apart:
    """A value that no sample enters, and which is the same along all axes but ``varies``."""

    varies: frozenset[int] = frozenset()


MIXED = "mixed"
"""A value of several samples, or of which nothing is known."""

Place = Any
"""``Along``, ``Apart`` or ``MIXED``."""


def keeps_apart(closed_jaxpr: Any, of_samples: Sequence[bool]) -> bool:
    """Whether every result of the jaxpr has the samples along its first axis, unmixed.

    ``of_samples`` says for each argument whether it has the samples along its first axis; no other
    argument depends on them. There are at least two samples.
    """
    jaxpr = closed_jaxpr.jaxpr
    args = [
        Along(0) if samples else _constant(v.aval)
        for samples, v in zip(of_samples, jaxpr.invars, strict=True)
    ]
    return all(place == Along(0) for place in _places_of_results(closed_jaxpr, args))


def _places_of_results(closed_jaxpr: Any, args: Sequence[Place]) -> list[Place]:
    """Along which axis the samples are in each result of a closed jaxpr, from where they are in
    each argument; :data:`Place` has the answers that there are.

    The equations are followed one by one, with a place for each value. No sample enters a constant.
    """
    consts = [_constant(v.aval) for v in closed_jaxpr.jaxpr.constvars]
    results = evaluate(closed_jaxpr.jaxpr, consts, args, _bind, ALL_CALLS)
    return [_as_place(result) for result in results]


def _constant(aval: Any) -> Apart:
    """A value that no sample enters and that may be different everywhere."""
    return Apart(frozenset(axis for axis, size in enumerate(_shape(aval)) if size > 1))


def _shape(aval: Any) -> tuple[int, ...]:
    return tuple(getattr(aval, "shape", ()))


def _as_place(operand: Any) -> Place:
    """The place of an operand, which may also be a number that stands in the equation."""
    if isinstance(operand, str | Along | Apart):
        return operand
    return Apart(frozenset(axis for axis, size in enumerate(np.shape(operand)) if size > 1))


def _bind(eqn: Any, operands: Sequence[Any]) -> Any:
    """The places of the results of an equation: a list, or one place where it has one result."""
    places = [_as_place(operand) for operand in operands]
    results = _results(eqn, places)
    return results if eqn.primitive.multiple_results else results[0]


def _results(eqn: Any, places: list[Place]) -> list[Place]:
    """The places of the results of an equation."""
    count, name = len(eqn.outvars), eqn.primitive.name
    if name in _LOOPS:
        return _LOOPS[name](eqn, places)
    if any(place == MIXED for place in places):
        return [MIXED] * count
    if name == "optimization_barrier":
        return places
    if not any(isinstance(place, Along) for place in places) and name not in _RULES:
        if name in _ENTRYWISE:
            return [_entrywise(eqn, places)] * count
        return [_constant(v.aval) for v in eqn.outvars]
    if name in _ENTRYWISE:
        return [_entrywise(eqn, places)] * count
    rule = _RULES.get(name)
    return [MIXED] * count if rule is None else [rule(eqn, places)] * count


def _entrywise(eqn: Any, places: Sequence[Place]) -> Place:
    """The place of a result whose every entry is computed from the same entries of operands."""
    return _joined(
        [place for v, place in zip(eqn.invars, places, strict=True) if _shape(v.aval) != ()]
    )


def _joined(places: Sequence[Place]) -> Place:
    """The place of values of one shape together: of all that are given, entry by entry."""
    if any(place == MIXED for place in places):
        return MIXED
    of_samples = {place for place in places if isinstance(place, Along)}
    varies = frozenset[int]().union(*(p.varies for p in places if isinstance(p, Apart)))
    if not of_samples:
        return Apart(varies)
    place = of_samples.pop()
    # what no sample enters must be the same for all of them
    return MIXED if of_samples or place.axis in varies else place


def _moved(place: Place, axes: dict[int, int]) -> Place:
    """The place after each axis became ``axes[axis]``; an axis that is not there has gone."""
    if isinstance(place, Along):
        return replace(place, axis=axes[place.axis]) if place.axis in axes else MIXED
    return Apart(frozenset(axes[axis] for axis in place.varies if axis in axes))


def _without(removed: Sequence[int], rank: int) -> dict[int, int]:
    """Where each axis of an array of this rank is when some are removed."""
    kept = [axis for axis in range(rank) if axis not in removed]
    return {axis: place for place, axis in enumerate(kept)}


def _rank(eqn: Any, operand: int = 0) -> int:
    return len(_shape(eqn.invars[operand].aval))


def _reduced(name: str, eqn: Any, places: Sequence[Place]) -> Place:
    """A reduction over axes: those of the samples must not be among them."""
    return _moved(places[0], _without(eqn.params[name], _rank(eqn)))


def _transposed(eqn: Any, places: Sequence[Place]) -> Place:
    return _moved(places[0], {old: new for new, old in enumerate(eqn.params["permutation"])})


def _expanded(eqn: Any, places: Sequence[Place]) -> Place:
    rank = len(_shape(eqn.outvars[0].aval))
    kept = [axis for axis in range(rank) if axis not in eqn.params["dimensions"]]
    return _moved(places[0], dict(enumerate(kept)))


def _broadcast(eqn: Any, places: Sequence[Place]) -> Place:
    return _moved(places[0], dict(enumerate(eqn.params["broadcast_dimensions"])))


def _reshaped(eqn: Any, places: Sequence[Place]) -> Place:
    """A reshape: the samples stay together where their axis begins at the same number of rows."""
    place = places[0]
    if eqn.params.get("dimensions") is not None:
        return MIXED
    old, new = _shape(eqn.invars[0].aval), _shape(eqn.outvars[0].aval)
    if isinstance(place, Apart):
        return Apart() if not place.varies else _constant(eqn.outvars[0].aval)
    before, count = math.prod(old[: place.axis]), old[place.axis] // place.inner
    for axis, size in enumerate(new):
        if math.prod(new[:axis]) == before and size > 1 and size % count == 0:
            return Along(axis, size // count)
    return MIXED


def _along_others(axis_of: Callable[[Any], Sequence[int]], eqn: Any, places: list[Place]) -> Place:
    """An operation along some axes, which leaves the shape: not along that of the samples."""
    axes, place = axis_of(eqn), _joined(places)
    if isinstance(place, Along):
        return MIXED if place.axis in axes else place
    return place if place == MIXED else Apart(place.varies | frozenset(axes))


def _last_axis(eqn: Any) -> list[int]:
    return [_rank(eqn) - 1]


def _same_size(eqn: Any, places: list[Place]) -> Place:
    """A part of an array or a padded one: it must have all of the samples, and no more."""
    place, rank = places[0], _rank(eqn)
    before, after = _shape(eqn.invars[0].aval), _shape(eqn.outvars[0].aval)
    if any(isinstance(other, Along) for other in places[1:]):
        return MIXED
    if isinstance(place, Apart):
        return _constant(eqn.outvars[0].aval) if eqn.primitive.name == "pad" else place
    if eqn.primitive.name == "pad" and eqn.params["padding_config"][place.axis] != (0, 0, 0):
        return MIXED
    strides = eqn.params.get("strides") or (1,) * rank
    whole = before[place.axis] == after[place.axis] and strides[place.axis] == 1
    return place if whole else MIXED


def _updated(eqn: Any, places: list[Place]) -> Place:
    """An array with a part replaced, which is as long along the axis of the samples."""
    array, part, *starts = places
    if any(isinstance(start, Along) for start in starts):
        return MIXED
    place = _joined([array, part])
    whole, of_part = _shape(eqn.invars[0].aval), _shape(eqn.invars[1].aval)
    if isinstance(place, Along):
        return place if whole[place.axis] == of_part[place.axis] else MIXED
    return place if place == MIXED else _constant(eqn.outvars[0].aval)


def _concatenated(eqn: Any, places: list[Place]) -> Place:
    place, dimension = _joined(places), eqn.params["dimension"]
    if isinstance(place, Along):
        return MIXED if place.axis == dimension else place
    return place if place == MIXED else Apart(place.varies | {dimension})


def _product(eqn: Any, places: list[Place]) -> Place:
    """A product of matrices: samples are along a batch axis of both, or along a free axis of one.

    The result has the batch axes first, then the free ones of the left operand and of the right.
    """
    summed, batch = eqn.params["dimension_numbers"]
    ranks = [_rank(eqn, side) for side in (0, 1)]
    free = [
        [axis for axis in range(ranks[side]) if axis not in (*summed[side], *batch[side])]
        for side in (0, 1)
    ]
    offsets = len(batch[0]), len(batch[0]) + len(free[0])
    axes = [
        {axis: place for place, axis in enumerate(batch[side])}
        | {axis: offsets[side] + place for place, axis in enumerate(free[side])}
        for side in (0, 1)
    ]
    moved = [_moved(place, axes[side]) for side, place in enumerate(places)]
    # along a free axis of one operand the other one is the same for every sample
    return _joined(moved)


def _convolved(eqn: Any, places: list[Place]) -> Place:
    image, kernel = places
    layout = eqn.params["dimension_numbers"]
    if isinstance(kernel, Along) or eqn.params["batch_group_count"] != 1:
        return MIXED
    if isinstance(image, Apart):
        return _constant(eqn.outvars[0].aval)
    if image.axis != layout.lhs_spec[0]:
        return MIXED
    return replace(image, axis=layout.out_spec[0])


def _gathered(eqn: Any, places: list[Place]) -> Place:
    """Rows of a table by indices of the samples, or parts of every sample by the same indices."""
    table, indices = places
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    out_rank = len(_shape(eqn.outvars[0].aval))
    batch_axes = [axis for axis in range(out_rank) if axis not in numbers.offset_dims]
    of_indices = {axis: batch_axes[axis] for axis in range(len(batch_axes))}
    hidden = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    kept = [axis for axis in range(_rank(eqn)) if axis not in hidden]
    of_table = dict(zip(kept, numbers.offset_dims, strict=True))
    for batching, by in zip(
        numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
    ):
        of_table[batching] = of_indices[by]
    if isinstance(table, Along):
        starts = table.axis in numbers.start_index_map
        partial_axis = sizes[table.axis] != _shape(eqn.invars[0].aval)[table.axis]
        batched = table.axis in numbers.operand_batching_dims
        if starts or (partial_axis and not batched):
            return MIXED
        table = _moved(table, of_table)
        if isinstance(indices, Apart):
            indices = _moved(indices, of_indices)
            # an index for each place along the axis of the samples would tell them apart
            return MIXED if table == MIXED or table.axis in indices.varies else table
    elif isinstance(indices, Along):
        hidden_from_samples = any(
            of_table.get(axis) == of_indices.get(indices.axis) for axis in table.varies
        )
        return MIXED if hidden_from_samples else _moved(indices, of_indices)
    else:
        return _constant(eqn.outvars[0].aval)
    return _joined([table, _moved(indices, of_indices)])


def _windowed(eqn: Any, places: list[Place]) -> Place:
    """Windows that move over an array: one place wide along the axis of the samples."""
    place = _joined(places[: 2 if eqn.primitive.name == "select_and_gather_add" else 1])
    if not isinstance(place, Along):
        return place if place == MIXED else _constant(eqn.outvars[0].aval)
    axis, params = place.axis, eqn.params
    alone = params["window_dimensions"][axis] == params["window_strides"][axis] == 1
    alone = alone and tuple(params["padding"][axis]) == (0, 0)
    alone = alone and all(
        (params.get(name) or {axis: 1})[axis] == 1 for name in ("base_dilation", "window_dilation")
    )
    return place if alone else MIXED


def _iota(eqn: Any, places: list[Place]) -> Place:
    return Apart(frozenset({eqn.params["dimension"]}))


def _widest(old: Sequence[Place], new: Sequence[Place]) -> list[Place]:
    """Places that hold for both of two values, one by one."""
    return [_joined([a, b]) if a != b else a for a, b in zip(old, new, strict=True)]


def _carried(step: Callable[[list[Place]], list[Place]], carry: list[Place]) -> list[Place]:
    """The places of what a loop carries, which hold before and after every step."""
    while True:
        wider = _widest(carry, step(carry))
        if wider == carry:
            return carry
        carry = wider


def _scan(eqn: Any, places: list[Place]) -> list[Place]:
    params, consts_end = eqn.params, eqn.params["num_consts"]
    carry_end = consts_end + params["num_carry"]
    consts, carry, rows = places[:consts_end], places[consts_end:carry_end], places[carry_end:]

    def shifted(place: Place, by: int) -> Place:
        """The place with the first axis, that of the steps, taken away (-1) or put back (1)."""
        if place == MIXED:
            return MIXED
        ranks = range(32)  # more axes than any array has
        return _moved(place, {axis: axis + by for axis in ranks if axis + by >= 0})

    of_steps = [shifted(place, -1) for place in rows]

    def step(carried: list[Place]) -> list[Place]:
        return _places_of_results(params["jaxpr"], [*consts, *carried, *of_steps])[: len(carry)]

    carry = _carried(step, carry)
    results = _places_of_results(params["jaxpr"], [*consts, *carry, *of_steps])[len(carry) :]
    stacked = [shifted(place, 1) for place in results]
    # a result of the steps may be another one at each
    stacked = [
        Apart(place.varies | {0}) if isinstance(place, Apart) else place for place in stacked
    ]
    return [*carry, *stacked]


def _while_loop(eqn: Any, places: list[Place]) -> list[Place]:
    body_start = eqn.params["cond_nconsts"]
    carry_start = body_start + eqn.params["body_nconsts"]
    of_condition, of_body = places[:body_start], places[body_start:carry_start]
    carry = _carried(
        lambda carried: _places_of_results(eqn.params["body_jaxpr"], [*of_body, *carried]),
        places[carry_start:],
    )
    (goes_on,) = _places_of_results(eqn.params["cond_jaxpr"], [*of_condition, *carry])
    return carry if isinstance(goes_on, Apart) and not goes_on.varies else [MIXED] * len(carry)


def _cond(eqn: Any, places: list[Place]) -> list[Place]:
    index, *operands = places
    if not isinstance(index, Apart):
        return [MIXED] * len(eqn.outvars)
    results, *others = (_places_of_results(branch, operands) for branch in eqn.params["branches"])
    for other in others:
        results = _widest(results, other)
    return results


_LOOPS = {"scan": _scan, "while": _while_loop, "cond": _cond}

_ENTRYWISE = frozenset(
    str.split("""
    abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp complex conj
    convert_element_type copy copy_p cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor
    ge gt imag integer_pow is_finite le lgamma log log1p logistic lt max min mul ne neg nextafter
    not or pow real reduce_precision rem round rsqrt select_n shift_left shift_right_arithmetic
    shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh xor
    """)
)

_BY_AXES = (
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin"
)
_RULES: dict[str, Callable[[Any, list[Place]], Place]] = {
    **dict.fromkeys(_BY_AXES.split(), partial(_reduced, "axes")),
    **dict.fromkeys(
        ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"),
        partial(_along_others, lambda eqn: [eqn.params["axis"]]),
    ),
    **dict.fromkeys(
        ("reduce_window_sum", "reduce_window_max", "reduce_window_min", "select_and_gather_add"),
        _windowed,
    ),
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenated,
    "conv_general_dilated": _convolved,
    "dot_general": _product,
    "dynamic_slice": _same_size,
    "dynamic_update_slice": _updated,
    "expand_dims": _expanded,
    "gather": _gathered,
    "iota": _iota,
    "pad": _same_size,
    "reshape": _reshaped,
    "rev": partial(_along_others, lambda eqn: eqn.params["dimensions"]),
    "slice": _same_size,
    "sort": partial(_along_others, lambda eqn: [eqn.params["dimension"]]),
    "split": partial(_along_others, lambda eqn: [eqn.params["axis"]]),
    "squeeze": partial(_reduced, "dimensions"),
    "top_k": partial(_along_others, _last_axis),
    "transpose": _transposed,
}
"""By name of a primitive the place of its results, from the equation and places of operands."""


def arguments_of(*trees: tuple[Any, bool]) -> list[bool]:
    """For each leaf of some pytrees whether its tree is that of the samples."""
    return [samples for tree, samples in trees for _ in jax.tree.leaves(tree)]
