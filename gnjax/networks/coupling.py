"""Whether a sample's output depends on the other samples of its batch, or on its place in it.

BatchNorm in training mode, dropout with a fixed key, a mixture of experts with a capacity and a
graph network couple the samples. The derivatives of such a model are those of the whole batch as
one function. This is right for every model; for a model that does not couple its samples, it is
slow.

Every sample i is evaluated in its batch and alone, with its outputs F_i and their derivative T_i in
one random direction v of the parameters. The derivatives are needed too: a BatchNorm whose scale is
zero couples samples in derivatives only. Where both agree up to rounding, the samples are not
coupled.

Rounding is measured against |F_i| + |T_i|. The entries of v have the size of the parameters, and
the rounding of a layer acts like a relative change of its weights by a few eps, so that an
ill-conditioned network gets a scale that is larger in proportion. Three cases are told apart, with
the eps of the coarsest number format in the model's equations (float32 in a float64 model, say):

- differences of at most 16 eps of the working format are rounding;
- differences above 1024 eps of the coarsest format are coupling;
- what lies between may be either. It is decided by an exchange: every other sample is replaced, and
  the rest must keep every bit. The same program computes both with the same shapes, so that samples
  which are not coupled do keep them, however coarse the numbers are.

A unit at its kink may be on in one evaluation and off in the other, which changes derivatives by
much and outputs by nothing. In formats coarser than float64 this does happen: there, derivatives
that differ at up to one sample in a hundred go to the exchange as well. In float64 they count as
coupling, which is right and slow, unless the caller declares the samples not to be coupled.

What can be missed is an effect of the place in the batch alone, on outputs by less than 1024 eps of
the coarsest format, or on derivatives alone at less than one sample in a hundred.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks import jaxprs
from gnjax.networks.forms.samples import sample_count, windows
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import all_finite, on_host

if TYPE_CHECKING:
    from gnjax.networks.network import Network

Mode = Literal["together", "alone"]
Response = tuple[jax.Array | np.ndarray, jax.Array | np.ndarray]
"""F (n, k) of some samples, and its derivative T (n, k) along a direction of the parameters."""

_ROUNDING = 1024  # times eps: the rounding of long sums and deep networks stays below this
_SAME = 16  # times eps: differences up to this count as rounding
_COARSE = 0.1  # a difference this large is not rounding, not even in bfloat16
_KINKS = 0.01  # the share of samples that may have a unit at its kink


@dataclass(frozen=True)
class Coupling:
    """Whether samples are coupled; ``reason`` continues "the samples are coupled: "."""

    coupled: bool
    reason: str = ""


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
    apart: bool = False,
    see: Callable[[jax.Array, slice], None] = lambda outputs, part: None,
) -> Coupling:
    """Whether the samples of a network are coupled in batches of ``together`` samples.

    The outputs F and a directional derivative T of each sample are compared in a batch and alone;
    where rounding may explain a difference, other samples are exchanged and every bit must stay.
    The cost is two evaluations with one directional derivative each, and four more where the
    exchange is needed. The memory is that of evaluating ``together`` samples in a batch and then
    ``net.batch`` samples alone, or of doing both in one program for at most ``net.batch`` samples.

    Args:
      net: the network without its loss.
      together: how many samples are evaluated in one batch.
      coarsest: the eps of the coarsest floating format that the model computes in.
      apart: the caller declares the samples not to be coupled. Then, as in formats coarser than
        float64, derivatives that differ at up to one sample in a hundred count as those of units at
        their kinks.
      see: a function that is given the outputs of every batch, and which samples these are, as a
        slice.
    """
    limit = min(_ROUNDING * coarsest, _COARSE)
    # in float64 a unit at its kink is so rare that no sample's derivatives may differ by it
    kink_share = _KINKS if apart or coarsest > jnp.finfo(jnp.float64).eps else 0.0
    verdict, start = Coupling(False), 0
    for x, seen_before in windows(net.x, together):
        in_batch, *alone = _responses(net, x, _modes(net, x))  # alone only if that fits in memory
        new_outputs = in_batch[0][seen_before:]
        see(new_outputs, slice(start, start + len(new_outputs)))
        _check_derivatives(in_batch[1])
        start += len(new_outputs)
        if sample_count(x) > 1 and not verdict.coupled:
            alone = alone or [_each_alone(net, x)]
            verdict = _judged(net, x, in_batch, alone[0], limit, kink_share)
    return verdict


def _check_derivatives(derivatives: jax.Array) -> None:
    """Refuse derivatives T (n, k) with NaN or Inf."""
    if not all_finite(derivatives):
        msg = (
            "the derivative of the model by its parameters is NaN or infinite for some sample, as "
            "that of a root or a norm is at zero; add a small number there, and use jnp.where on "
            "the argument of such a function and not on its value"
        )
        raise ValueError(msg)


def _judged(
    net: Network,
    x: Any,
    in_batch: Response,
    alone: Response,
    limit: float,
    kink_share: float,
) -> Coupling:
    """Whether samples x are coupled, from their outputs F and derivatives T in a batch and alone.

    They are coupled if outputs differ by more than ``limit``, relative to |F| + |T|, or derivatives
    do at more than the share ``kink_share`` of the samples, since a unit may be on one side of its
    kink in a batch and on the other alone. They are not if all differ by at most 16 eps of the
    working format. In between, every other sample is replaced, and they are coupled if the rest
    does not keep every bit.
    """
    working_eps = float(jnp.finfo(net.dtype).eps)
    gaps = _gaps(in_batch, (on_host(alone[0]), on_host(alone[1])), limit)
    if gaps.outputs > limit:
        return Coupling(True, _differ("outputs", gaps.outputs, limit))
    if gaps.share > kink_share:
        return Coupling(True, _differ("derivatives", gaps.derivatives, limit))
    only_rounding = max(gaps.outputs, gaps.derivatives) <= _SAME * working_eps
    if only_rounding or _keeps_every_bit(net, x, in_batch):
        return Coupling(False)
    gap = max(gaps.outputs, gaps.derivatives)
    return Coupling(
        True,
        "samples change when others are exchanged, and evaluated alone they differ by "
        f"{gap:.1e} of their size",
    )


def _differ(quantity: str, gap: float, limit: float) -> str:
    """The reason of a :class:`Coupling` by a relative difference above what rounding explains."""
    return (
        f"the {quantity} of a sample alone and in its batch differ by {gap:.1e} of their size, and "
        f"rounding explains at most {limit:.1e}"
    )


def _modes(net: Network, x: Any) -> tuple[Mode, ...]:
    """How samples x are evaluated in one program: in a batch, and also alone if they are few.

    At most ``net.batch`` samples are few: memory holds both evaluations at once. One program for
    both is traced and compiled faster than two.
    """
    return ("together", "alone") if 1 < sample_count(x) <= net.batch else ("together",)


def _each_alone(net: Network, x: Any) -> Response:
    """The outputs F (n, k) and their derivative T (n, k) at each sample x as a batch of one.

    They are computed for ``net.batch`` samples at a time. The last window of samples overlaps the
    one before it, and what it computes again is left out.
    """
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

    The direction is a random one of the parameters. The mode "together" evaluates the samples x as
    one batch, and "alone" each as a batch of one.
    """
    v = _direction(net)

    def outputs(leaves: list[jax.Array]) -> jax.Array:
        return net.outputs(leaves, x)

    def alone(leaves: list[jax.Array]) -> jax.Array:
        """The outputs (n, k) at each sample as a batch of one."""
        return jax.vmap(lambda sample: net.outputs(leaves, _as_batch(sample))[0])(x)

    functions = {"together": outputs, "alone": alone}
    return tuple(
        jaxprs.pushforward(functions[mode], list(net.leaves), v, forward=net.forward)
        for mode in modes
    )


def _direction(net: Network) -> list[jax.Array]:
    """A random direction, arrays like the parameters, with entries of their size, nowhere zero.

    The entries are u (|w| + s), with u random in (-1, 1), the parameter w, and the root mean square
    s of its array (1 where that is zero). A step along this direction changes every parameter by a
    similar share, as rounding does, and a derivative along it sees every parameter.
    """
    sizes = [leaf.size for leaf in net.leaves]
    # A hash of the index of an entry: XLA compiles it ten times sooner than normal numbers.
    bits = _hashed(jax.lax.iota(jnp.uint32, sum(sizes))) >> 9  # the upper 23 of 32 bits
    uniform = (bits.astype(net.dtype) + 0.5) / 2**22 - 1  # exact in float32, and never zero
    parts = jnp.split(uniform, list(itertools.accumulate(sizes))[:-1])

    def scaled(leaf: jax.Array, part: jax.Array) -> jax.Array:
        typical = jnp.sqrt(jnp.square(leaf).mean()) if leaf.size else jnp.ones((), leaf.dtype)
        return part.reshape(leaf.shape) * (jnp.abs(leaf) + jnp.where(typical > 0, typical, 1))

    return [scaled(leaf, part) for leaf, part in zip(net.leaves, parts, strict=True)]


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


def _as_batch(sample: Any) -> Any:
    """One sample, a pytree without an axis for samples, as a batch of one."""
    return jax.tree.map(lambda leaf: leaf[None], sample)


def _keeps_every_bit(net: Network, x: Any, in_batch: Response) -> bool:
    """Whether samples keep every bit of F and T when the samples beside them are replaced.

    ``in_batch`` are the outputs F and derivatives T of the samples x as they are. First the odd
    samples are replaced, and then the even ones, so that each sample is among the kept ones once.
    """
    for parity in (0, 1):
        # the same program as before, since another one might round differently
        after = _responses(net, _exchanged(x, parity), _modes(net, x))[0]
        if not bool(_same(in_batch, after, parity)):
            return False
    return True


@jax.jit
def _same(before: Response, after: Response, parity: int) -> jax.Array:
    """Whether outputs F and derivatives T (n, k) have every bit in common at unchanged samples.

    These are the samples whose index has this ``parity``; the others were exchanged.
    """
    unchanged = _unchanged_samples(len(before[0]), parity)[:, None]
    same = [(a == b) | (jnp.isnan(a) & jnp.isnan(b)) for a, b in zip(before, after, strict=True)]
    return jnp.where(unchanged, same[0] & same[1], True).all()


def _hashed(word: jax.Array) -> jax.Array:
    """A hash of 32-bit words in which every bit depends on every bit (shifts and products)."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
    return word ^ (word >> 16)


@jax.jit
def _exchanged(x: Any, parity: int) -> Any:
    """The samples, with those replaced whose index has the other parity than ``parity``.

    A replaced sample becomes the one before it, with floating numbers times 1.5, so that it changes
    even where both are equal.
    """
    unchanged = _unchanged_samples(sample_count(x), parity)

    def exchanged(array: jax.Array) -> jax.Array:
        neighbours = jnp.roll(array, 1, axis=0)
        if jnp.issubdtype(array.dtype, jnp.floating):
            neighbours = neighbours * 1.5
        return jnp.where(unchanged.reshape(-1, *[1] * (array.ndim - 1)), array, neighbours)

    return jax.tree.map(exchanged, x)


def _unchanged_samples(n: int, parity: int) -> jax.Array:
    """A mask (n,) of every other sample: those whose index has this parity, 0 or 1."""
    return jnp.arange(n) % 2 == parity
