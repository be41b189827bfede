"""Whether a sample's output depends on the other samples of its batch, or on its place in it.

BatchNorm in training mode, dropout with a fixed key, a mixture of experts with a capacity and a
graph network couple the samples, and the derivatives are those of the whole batch as one function.
Mostly the equations of the model show that samples are kept apart
(:mod:`gnjax.networks.equations.apart`), and then :func:`evaluated_apart` evaluates only a few.

Where they do not, every sample i is evaluated in its batch and alone, with its outputs F_i and
their derivative T_i in one random direction of the parameters: a BatchNorm whose scale is zero
couples samples in derivatives only. Rounding is measured against |F_i| + |T_i|, as the rounding of
a layer acts like a relative change of its weights by a few eps.

A unit at its kink may be on in one evaluation and off in the other, which changes derivatives by
much and outputs by nothing. In float64 that counts as coupling, which is right and slow. What can
be missed is an effect of the place in the batch alone, on outputs by less than 1024 eps of the
coarsest number format in the model's equations, or on derivatives alone at less than one sample in
a hundred.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.alike import found_for_alike
from gnjax.networks.arguments.refusals import RAISED
from gnjax.networks.arguments.samples import digest, sample_count, take, windows
from gnjax.networks.equations.apart import arguments_of, keeps_apart
from gnjax.networks.equations.forward_mode import pushforward
from gnjax.networks.rounding.numpy_operations import values_by_numpy
from gnjax.numerics.bounded_jit import bounded_jit, by_shapes
from gnjax.numerics.host import all_finite, on_cpu, on_device, on_host

if TYPE_CHECKING:
    from gnjax.networks.network import Network

Mode = Literal["together", "alone"]
Response = tuple[jax.Array | np.ndarray, jax.Array | np.ndarray]
"""F (n, k) of some samples, and its derivative T (n, k) along a direction of the parameters."""

_ROUNDING = 1024  # times eps: the rounding of long sums and deep networks stays below this
_SAME = 16  # times eps: differences up to this count as rounding
_COARSE = 0.1  # a difference this large is not rounding, not even in bfloat16
_KINKS = 0.01  # the share of samples that may have a unit at its kink
_EVALUATED = 1e6  # numbers that the samples write which are evaluated with NumPy
_FEWEST = 2  # such samples


@dataclass(frozen=True)
class Gaps:
    """The largest differences between samples in their batch and alone, relative to their size."""

    outputs: float
    derivatives: float
    share: float  # of the samples whose derivatives differ by more than the limit


def coupling_of(
    net: Network,
    together: int,
    coarsest: float,
    check: Callable[[jax.Array, slice], None],
    *,
    apart: bool,
) -> str:
    """Why the samples of a network are coupled in batches of ``together`` samples; "" if not.

    The cost is two evaluations with one directional derivative each, and four more where samples
    are exchanged, see :func:`_judged`.

    Args:
      net: the network without its loss.
      together: how many samples are evaluated in one batch.
      coarsest: the eps of the coarsest floating format that the model computes in.
      check: a function that is given the outputs of every batch, and their samples as a slice.
      apart: the caller declares the samples not to be coupled. Then, as in formats coarser than
        float64, derivatives that differ at up to one sample in a hundred count as those of units at
        their kinks.
    """
    limit = min(_ROUNDING * coarsest, _COARSE)
    # in float64 a unit at its kink is so rare that no sample's derivatives may differ by it
    kink_share = _KINKS if apart or coarsest > jnp.finfo(jnp.float64).eps else 0.0
    reason, start = "", 0
    # A few samples are evaluated in a batch and also alone by one program, which is traced and
    # compiled faster than two; of more, memory would not hold both evaluations at once.
    few = 1 < min(together, net.samples) <= net.batch
    modes: tuple[Mode, ...] = ("together", "alone") if few else ("together",)
    for x, seen_before in windows(net.x, together):
        in_batch, *alone = _responses(net, x, modes)
        new_outputs = in_batch[0][seen_before:]
        check(new_outputs, slice(start, start + len(new_outputs)))
        _check_derivatives(in_batch[1])
        start += len(new_outputs)
        if sample_count(x) > 1 and not reason:
            alone = alone or [_each_alone(net, x)]
            reason = _judged(net, x, modes, in_batch, alone[0], limit, kink_share)
    return reason


def evaluated_apart(
    net: Network, together: int, coarsest: float, check: Callable[[jax.Array, slice], None]
) -> int:
    """How many samples were evaluated, if equations show that they are not coupled; 0 if not.

    They are those of the outputs and their derivative along a direction of the parameters, so that
    rules of their own for derivatives are seen as well. Some samples are evaluated with NumPy, for
    ``check`` as in :func:`coupling_of`, and the first one alone, too, which shows a model that
    reads how many samples there are. No more than ``together`` go at once. Nothing is compiled. It
    is 0 where that is not possible. What was found at the same samples serves again while the
    parameters have moved little.
    """
    fine = coarsest <= float(jnp.finfo(jnp.float32).eps)
    on_cpus = all(map(on_cpu, (*net.leaves, *jax.tree.leaves(net.x))))
    if not (net.forward == "own" and fine and on_cpus):
        return 0
    few = int(np.clip(_EVALUATED / net.written, _FEWEST, together))
    # At other samples the outputs are others: a token beyond the vocabulary makes them NaN.
    name = "apart", digest(net.x, 0, few)
    outputs = found_for_alike(name, net, lambda: _outputs_apart(net, few, coarsest))
    if outputs is None:
        return 0
    check(on_device(outputs), slice(0, few))
    return few


def _outputs_apart(net: Network, few: int, coarsest: float) -> np.ndarray | None:
    """The outputs of the ``few`` first samples, or None if they may be coupled."""
    x = net.x if few == net.samples else take(net.x, slice(0, few))
    try:
        if net.samples > 1 and not _kept_apart(net, x):
            return None
        outputs, derivatives = _by_numpy(net, x)
        of_first = _by_numpy(net, take(net.x, slice(0, 1))) if few > 1 else (outputs, derivatives)
    except RAISED:  # of a model that takes its samples only all at once
        return None
    if all_finite(outputs):  # the caller has a sentence of its own for outputs that are not
        _check_derivatives(derivatives)
    limit = min(_ROUNDING * coarsest, _COARSE)
    gaps = _gaps((outputs[:1], derivatives[:1]), of_first, limit)
    return outputs if gaps.outputs <= limit else None


@by_shapes
def _kept_apart(net: Network, x: Any) -> bool:
    """Whether the equations of F and its derivative, at samples x, keep the samples apart."""
    closed_jaxpr = _outputs_and_derivatives.of(net).trace(net, _as_numbers(net), x).jaxpr
    return keeps_apart(closed_jaxpr, arguments_of((net, False), (net.leaves, False), (x, True)))


def _by_numpy(net: Network, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """The outputs F (n, k) of samples x, and their derivative T (n, k), computed with NumPy."""
    direction = _as_numbers(net)
    closed_jaxpr = _outputs_and_derivatives.of(net).trace(net, direction, x).jaxpr
    leaves = jax.tree.leaves((net, direction, x))
    outputs, derivatives = values_by_numpy(closed_jaxpr.jaxpr, closed_jaxpr.consts, leaves)
    return np.asarray(outputs), np.asarray(derivatives)


@bounded_jit
def _outputs_and_derivatives(net: Network, v: list[Any], x: Any) -> Response:
    """F (n, k) at samples x and its derivative along v, arrays like the parameters; only traced."""
    return pushforward(partial(net.outputs, x=x), list(net.leaves), v, net.forward)


def _as_numbers(net: Network) -> list[np.ndarray]:
    """A random direction, arrays like the parameters, as :func:`_direction`, made with NumPy."""
    rng, direction = np.random.default_rng(0), []
    for leaf in map(np.asarray, net.leaves):
        size = float(np.sqrt(np.square(leaf, dtype=np.float64).mean())) if leaf.size else 0.0
        uniform = rng.random(leaf.shape, np.float32) * 2 - 1
        direction.append((uniform * (abs(leaf) + (size or 1.0))).astype(leaf.dtype))
    return direction


def _check_derivatives(derivatives: jax.Array | np.ndarray) -> None:
    """Refuse derivatives of the outputs that are not finite."""
    if not all_finite(derivatives):
        msg = (
            "the derivative of the model by its parameters is NaN or infinite for some sample, "
            "as that of a root or a norm is at zero; add a small number there, and use "
            "jnp.where on the argument of such a function and not on its value"
        )
        raise ValueError(msg)


def _judged(
    net: Network,
    x: Any,
    modes: tuple[Mode, ...],
    in_batch: Response,
    alone: Response,
    limit: float,
    kink_share: float,
) -> str:
    """Why samples x are coupled, from their outputs F and derivatives T in a batch and alone.

    They are coupled if outputs differ by more than ``limit``, relative to |F| + |T|, or derivatives
    do at more than the share ``kink_share`` of the samples. They are not if all differ by at most
    16 eps of the working format. In between, the odd samples are replaced, and then the even ones,
    and they are coupled if the others do not keep every bit. The same program computes both with
    the same shapes, so that samples which are not coupled do keep them, however coarse they are.
    """
    gaps = _gaps(in_batch, alone, limit)
    if gaps.outputs > limit:
        return _differ("outputs", gaps.outputs, limit)
    if gaps.share > kink_share:
        return _differ("derivatives", gaps.derivatives, limit)
    gap = max(gaps.outputs, gaps.derivatives)
    if gap <= _SAME * float(jnp.finfo(net.dtype).eps):
        return ""
    for parity in (0, 1):
        after = _responses(net, _exchanged(x, parity), modes)[0]
        if not bool(_same(in_batch, after, parity)):
            return (
                "samples change when others are exchanged, and evaluated alone they differ by "
                f"{gap:.1e} of their size"
            )
    return ""


def _differ(quantity: str, gap: float, limit: float) -> str:
    """The reason why samples are coupled, a difference above what rounding explains."""
    return (
        f"the {quantity} of a sample alone and in its batch differ by {gap:.1e} of their size, and "
        f"rounding explains at most {limit:.1e}"
    )


def _each_alone(net: Network, x: Any) -> Response:
    """The outputs F (n, k) and their derivative T (n, k) at each sample x as a batch of one."""
    responses = [
        (*_responses(net, part, ("alone",))[0], seen_before)
        for part, seen_before in windows(x, net.batch)
    ]
    outputs = np.concatenate([on_host(f)[seen_before:] for f, _, seen_before in responses])
    derivatives = np.concatenate([on_host(t)[seen_before:] for _, t, seen_before in responses])
    return outputs, derivatives


@bounded_jit(static_argnames=("modes",))
def _responses(net: Network, x: Any, modes: tuple[Mode, ...]) -> tuple[Response, ...]:
    """The outputs F (n, k) and their derivative T (n, k) in one direction, for each of the modes.

    The mode "together" evaluates the samples x as one batch, and "alone" each as a batch of one.
    """
    v = _direction(net)
    as_batch = partial(jax.tree.map, lambda leaf: leaf[None])

    def alone(leaves: list[jax.Array]) -> jax.Array:
        """The outputs (n, k) at each sample as a batch of one."""
        return jax.vmap(lambda sample: net.outputs(leaves, as_batch(sample))[0])(x)

    together = partial(net.outputs, x=x)
    functions: dict[Mode, Callable[..., Any]] = {"together": together, "alone": alone}
    return tuple(pushforward(functions[mode], list(net.leaves), v, net.forward) for mode in modes)


def _direction(net: Network) -> list[jax.Array]:
    """A random direction, arrays like the parameters, with entries of their size, nowhere zero.

    The entries are u (|w| + s), with u random in (-1, 1), the parameter w, and the root mean square
    s of its array (1 where that is zero), so that a step changes all by a similar share.
    """
    sizes = [leaf.size for leaf in net.leaves]
    # A hash of the index of an entry, in which every bit depends on every bit: XLA compiles it ten
    # times sooner than normal numbers.
    word = jax.lax.iota(jnp.uint32, sum(sizes))
    word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
    bits = (word ^ (word >> 16)) >> 9  # the upper 23 of 32 bits
    uniform = (bits.astype(net.dtype) + 0.5) / 2**22 - 1  # exact in float32, and never zero
    parts = jnp.split(uniform, list(itertools.accumulate(sizes))[:-1])
    direction = []
    for leaf, part in zip(net.leaves, parts, strict=True):
        typical = jnp.sqrt(jnp.square(leaf).mean()) if leaf.size else jnp.ones((), leaf.dtype)
        scale = jnp.abs(leaf) + jnp.where(typical > 0, typical, 1)
        direction.append(part.reshape(leaf.shape) * scale)
    return direction


def _gaps(in_batch: Response, alone: Response, limit: float) -> Gaps:
    """The largest differences of outputs F and derivatives T of samples in a batch and alone.

    For each sample they are divided by the sum of the largest |F| and the largest |T|. The share is
    that of samples whose derivatives differ by more than ``limit``. NaN counts as equal to NaN.
    """
    first, second = ([on_host(array) for array in pair] for pair in (in_batch, alone))
    size = sum(np.abs(array).max(axis=1) for array in first)  # (n,): max |F| + max |T|
    gaps = []
    with np.errstate(all="ignore"):  # what is not finite counts as an infinite gap
        for a, b in zip(first, second, strict=True):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            difference = np.where(same, 0, np.abs(a - b)).max(axis=1)
            relative = np.where(difference == 0, 0, difference / size)
            gaps.append(np.where(np.isnan(relative), math.inf, relative))
    outputs, derivatives = gaps
    share = (derivatives > limit).mean()
    return Gaps(float(outputs.max()), float(derivatives.max()), float(share))


@jax.jit
def _same(before: Response, after: Response, parity: int) -> jax.Array:
    """Whether outputs F and derivatives T (n, k) agree in every bit at samples of this parity."""
    unchanged = (jnp.arange(len(before[0])) % 2 == parity)[:, None]
    same = [(a == b) | (jnp.isnan(a) & jnp.isnan(b)) for a, b in zip(before, after, strict=True)]
    return jnp.where(unchanged, same[0] & same[1], True).all()


@jax.jit
def _exchanged(x: Any, parity: int) -> Any:
    """The samples, with those of the other parity replaced by the sample before them.

    Its floating numbers are multiplied by 1.5, so that a sample changes even where both are equal.
    """
    unchanged = jnp.arange(sample_count(x)) % 2 == parity

    def exchanged(array: jax.Array) -> jax.Array:
        neighbours = jnp.roll(array, 1, axis=0)
        if jnp.issubdtype(array.dtype, jnp.floating):
            neighbours = neighbours * 1.5
        return jnp.where(unchanged.reshape(-1, *[1] * (array.ndim - 1)), array, neighbours)

    return jax.tree.map(exchanged, x)
