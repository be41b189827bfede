"""A network at fixed inputs as a function of its parameters, and products with its Jacobian.

J is the Jacobian (n k, p) of the outputs F(x_1) .. F(x_n) with respect to the chosen entries of
the parameters, samples first. Where a loss has the output Hessians B_i = R_i R_i^T, R_i (k, r), it
stands for R^T J (n r, p), with r rows for every sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks import jaxprs
from gnjax.networks.arguments.refusals import Refused
from gnjax.networks.arguments.samples import rearranged, sample_count, take
from gnjax.networks.equations.forward_mode import Forward, pushforward
from gnjax.networks.losses.output_hessian import OutputHessian, output_hessian
from gnjax.networks.losses.targets import Target
from gnjax.networks.model import Apply
from gnjax.networks.output_shapes import Outputs
from gnjax.networks.parameters import paths
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.memory.device import device
from gnjax.numerics.rounding import added, with_lost

Answer = TypeVar("Answer")
GRAM, HESSIAN = 2, 3  # a product writes as much as so many evaluations

_BRIEF = 32  # equations of a model whose programs compile in a moment: eight dense layers


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Network:
    """F(theta) at fixed inputs; theta holds the chosen entries of the parameters, in one vector."""

    leaves: tuple[jax.Array, ...]
    entry_indices: tuple[jax.Array | None, ...]  # of a leaf's chosen entries; None for all
    x: Any  # a pytree of arrays with the samples first
    target: Target | None  # the loss and its targets; None: B is the identity
    total: Any  # the mean loss is the sum over samples divided by this
    apply: Apply  # a pytree, see functional
    structure: Any = field(metadata={"static": True})
    leaf_indices: tuple[int, ...] = field(metadata={"static": True})  # of the chosen leaves
    counts: tuple[int, ...] = field(metadata={"static": True})  # chosen entries of each
    shapes: Outputs = field(metadata={"static": True})
    batch: int = field(metadata={"static": True})  # how many samples go at once
    narrowest: jnp.dtype = field(metadata={"static": True})  # of the smallest exponent range
    coupled: bool = field(default=False, metadata={"static": True})  # an output depends on others
    convolves: bool = field(default=False, metadata={"static": True})  # an equation convolves
    forward: Forward = field(default="own", metadata={"static": True})  # how J v is made
    coarsest: float = field(default=0.0, metadata={"static": True})  # eps of formats inside
    written: float = field(default=1.0, metadata={"static": True})  # numbers written for a sample
    layered: tuple[int, ...] = field(default=(), metadata={"static": True})  # leaves in layers
    brief: bool = field(default=False, metadata={"static": True})  # its programs compile at once

    def once(self, name: str, compute: Callable[[], Answer]) -> Answer:
        """What ``compute()`` returns, which is called once for this network and each name.

        So the operators of one network, such as J^T J and J J^T, share an answer.
        """
        kept: dict[str, Answer] = self.__dict__.setdefault("kept", {})
        if name not in kept:
            kept[name] = compute()
        return kept[name]

    @property
    def samples(self) -> int:
        """n, the number of samples."""
        return sample_count(self.x)

    @property
    def k(self) -> int:
        """The number of outputs of a sample; a complex one counts twice."""
        return self.shapes.k

    @property
    def parameters(self) -> int:
        """p, the number of chosen entries of the parameters, and of columns of J."""
        return sum(self.counts)

    @property
    def rows(self) -> int:
        """The rows that a sample has in J: the r columns of R, or its k outputs."""
        return self.k if self.target is None else self.target.rows

    @property
    def dtype(self) -> jnp.dtype:
        """The working precision, which all parameters have."""
        return self.leaves[0].dtype

    def outputs(self, leaves: Sequence[jax.Array], x: Any) -> jax.Array:
        """F(x) (n, k) at n samples x; slow convolutions are padded with channels of zeros."""
        if not self.convolves:
            return self._plain(leaves, x)
        return jaxprs.with_wide_convolutions(self._plain, list(leaves), x)

    def one(self, leaves: Sequence[jax.Array], sample: Any) -> jax.Array:
        """F (k,) at one sample, a pytree of arrays without the axis of samples."""
        return self._plain(leaves, jax.tree.map(lambda leaf: leaf[None], sample))[0]

    def together(self, leaves: Sequence[jax.Array], x: Any) -> jax.Array:
        """F(x) (n k,) at n samples x, as one vector."""
        return self._plain(leaves, x).reshape(-1)

    def _plain(self, leaves: Sequence[jax.Array], x: Any) -> jax.Array:
        """F(x) (n, k), by the model's own equations."""
        params = jax.tree.unflatten(self.structure, list(leaves))
        return self.shapes.ravel(self.apply(params, x), self.dtype)


def stated_by(jaxpr: Any, samples: int = 1) -> dict[str, Any]:
    """Fields of a :class:`Network`, read from the equations of the model at ``samples`` samples."""
    return {
        "written": max(_written(jaxpr) / samples, 1.0),
        "convolves": any(eqn.primitive.name == "conv_general_dilated" for eqn in jaxpr.eqns),
        "brief": sum(1 for _ in jaxprs.equations(jaxpr)) <= _BRIEF,
        "forward": "transposed" if jaxprs.has_custom_vjp(jaxpr) else "own",
        "narrowest": jaxprs.narrowest(jaxpr),
        "coarsest": jaxprs.coarsest_eps(jaxpr),
    }


def _written(jaxpr: Any) -> float:
    """How many numbers the equations write, those of a scan at every step."""
    total = 0.0
    for eqn in jaxpr.eqns:
        total += sum(v.aval.size for v in eqn.outvars)
        if eqn.primitive.name == "scan":
            total += eqn.params["length"] * _written(eqn.params["jaxpr"].jaxpr)
    return total


def restricted(net: Network, positions: Sequence[int]) -> Network:
    """The network with only some of its parameters differentiated, in the order of ``positions``.

    A position is the index of a parameter array in ``net.leaf_indices``.
    """
    return replace(
        net,
        leaf_indices=tuple(net.leaf_indices[position] for position in positions),
        entry_indices=tuple(net.entry_indices[position] for position in positions),
        counts=tuple(net.counts[position] for position in positions),
    )


def parameter_names(net: Network) -> list[str]:
    """The path of every chosen leaf, in the order of the parameter vector."""
    names = paths(jax.tree.unflatten(net.structure, list(net.leaves)))
    return [names[leaf] for leaf in net.leaf_indices]


def differentiated(net: Network) -> dict[str, int]:
    """The parameters in no layer of known structure: how many entries are chosen, by their paths.

    Their part of kernels and Jacobians is computed by automatic differentiation.
    """
    parameters = zip(parameter_names(net), net.leaf_indices, net.counts, strict=True)
    return {name: count for name, leaf, count in parameters if leaf not in net.layered}


def scatter(net: Network, v: jax.Array) -> list[jax.Array]:
    """A vector v (p,) over the chosen entries as arrays like all parameters, zero elsewhere."""
    tangents = [jnp.zeros_like(leaf) for leaf in net.leaves]
    vectors = jnp.split(v, np.cumsum(net.counts)[:-1])  # one for each chosen leaf
    for position, (leaf, vector) in enumerate(zip(net.leaf_indices, vectors, strict=True)):
        tangents[leaf] = scatter_leaf(net, position, vector)
    return tangents


def scatter_leaf(net: Network, position: int, vector: jax.Array) -> jax.Array:
    """A vector over the chosen entries of one parameter array in its shape, zero elsewhere.

    ``position`` is the index of the array in ``net.leaf_indices``, the chosen ones.
    """
    shape, indices = net.leaves[net.leaf_indices[position]].shape, net.entry_indices[position]
    if indices is not None:
        zeros = jnp.zeros(int(np.prod(shape)))
        # JAX transposes this linear map, as J^T needs, only with unique_indices
        vector = zeros.at[indices].set(vector, unique_indices=True)
    return vector.reshape(shape).astype(net.dtype)


def gather(net: Network, cotangents: Sequence[jax.Array]) -> jax.Array:
    """The chosen entries of ``cotangents`` (arrays like all parameters) as a vector (p,).

    This is the transpose of :func:`scatter`.
    """
    vectors = []
    for leaf, indices in zip(net.leaf_indices, net.entry_indices, strict=True):
        flat = cotangents[leaf].reshape(-1)
        vectors.append(flat if indices is None else flat[indices])  # None: all entries
    return jnp.concatenate(vectors)


def sample_batches(net: Network, *arrays: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the inputs x and the given ``arrays`` (n, ...), ``net.batch`` samples at a time.

    Batches are a loop of Python, because XLA runs convolutions inside of its own loops on one CPU
    thread, ten times slower.
    """
    if net.batch >= net.samples:
        yield (net.x, *arrays)
        return
    for start in range(0, net.samples, net.batch):
        yield take((net.x, *arrays), slice(start, start + net.batch))


def apply_loss_factor(
    target: Target | None, outputs: jax.Array, u: jax.Array, *, transpose: bool
) -> jax.Array:
    """R u, or R^T u with ``transpose``, where R R^T = B is the output Hessian at outputs (n, k)."""
    hessian = None if target is None else output_hessian(target, outputs, rooted=True)
    return apply_factor(hessian, u, transpose=transpose)


def apply_factor(hessian: OutputHessian | None, u: jax.Array, *, transpose: bool) -> jax.Array:
    """R u, or R^T u with ``transpose``, for an output Hessian B = R R^T.

    u is (n, r), or (n, k) with ``transpose``. It comes back where B is the identity (None).
    """
    if hessian is None:
        return u
    return hessian.apply_root_transposed(u) if transpose else hessian.apply_root(u)


def pushed_forward(net: Network, x: Any, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """F(x) (n_b, k) at n_b samples x, and its derivative dF/dtheta v (n_b, k) along v (p,)."""
    f = partial(net.outputs, x=x)
    return pushforward(f, list(net.leaves), scatter(net, v), net.forward)


def pulled_back(net: Network, x: Any, cotangent: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """(dF/dtheta)^T u (p,) with u = ``cotangent(F(x))`` (n_b, k), a function of the outputs."""
    outputs, pullback = jax.vjp(partial(net.outputs, x=x), list(net.leaves))
    return gather(net, pullback(cotangent(outputs).astype(outputs.dtype))[0])


def forward(net: Network, x: Any, target: Target | None, v: jax.Array) -> jax.Array:
    """J_b v (n_b, r) for v (p,), where J_b = R^T dF/dtheta at the n_b samples x."""
    outputs, image = pushed_forward(net, x, v)
    return apply_loss_factor(target, outputs, image, transpose=True)


def backward(net: Network, x: Any, target: Target | None, u: jax.Array) -> jax.Array:
    """J_b^T u (p,) for u (n_b, r), where J_b = R^T dF/dtheta at the n_b samples x."""
    return pulled_back(
        net, x, lambda outputs: apply_loss_factor(target, outputs, u, transpose=False)
    )


def compare_rules(net: Network, tolerance: float) -> None:
    """Refuse a network without a loss whose functions have other derivatives than their rules say.

    J v is by the equations of the functions, and J^T u by their rules. For random v and u, u^T J v
    and (J^T u)^T v may differ by ``tolerance`` times |u| |J v| + |J^T u| |v|.
    """
    rng = np.random.default_rng(0)
    v, u = (rng.standard_normal(size) for size in (net.parameters, net.samples * net.rows))
    forwards, backwards = (
        np.asarray(product(net, jnp.asarray(vector, net.dtype)), np.float64)
        for product, vector in ((forward_products, v), (backward_products, u))
    )
    sizes = [np.linalg.norm(a) * np.linalg.norm(b) for a, b in ((u, forwards), (backwards, v))]
    if abs(u @ forwards - backwards @ v) <= tolerance * sum(sizes):
        return
    msg = (
        "the model has a jax.custom_vjp whose rule JAX cannot transpose, and another function with "
        "a rule that is not its derivative, as a straight-through estimator has: J v would be that "
        "of the functions, and J^T u that of the rules; write the other function as "
        "f(x) + stop_gradient(g(x) - f(x)), with the derivative of f and the value of g"
    )
    raise Refused(msg)


def gauss_newton_of_batch(
    net: Network, x: Any, target: Target | None, v: jax.Array, *, rooted: bool = False
) -> jax.Array:
    """J_b^T J_b v = (dF/dtheta)^T B dF/dtheta v (p,) for v (p,) at a batch of samples x.

    With ``rooted`` a loss of the caller's applies B by its factor R, which is formed for that.
    """
    outputs, image = pushed_forward(net, x, v)
    if target is not None:
        image = output_hessian(target, outputs, rooted=rooted).apply(image)
    return pulled_back(net, x, lambda _: image)


def columns(
    net: Network,
    product: Callable[[jax.Array], jax.Array],
    v: jax.Array,
    dims: int = 1,
    evaluations: int = 1,
) -> jax.Array:
    """``product(v)`` for one vector v, or for v with several columns along a last axis.

    As many columns go at once as memory has room for. Through convolutions they go one by one,
    because XLA would turn several into slow grouped convolutions.

    Args:
      net: the network.
      product: a compiled function, which takes one vector or several columns.
      v: a vector, or columns along one more axis, the last one.
      dims: how many axes a single vector has: 2 for one of the shape (n, r).
      evaluations: how many evaluations of the network write as much memory as one product.
    """
    if v.ndim == dims:
        return product(v)
    count = v.shape[-1]
    at_once = 1 if net.convolves else device().columns / (evaluations * net.batch * net.written)
    groups = max(1, -(-count // max(int(at_once), 1)))
    if groups == count:
        return jnp.stack([product(take(v, np.s_[..., i])) for i in range(count)], axis=-1)
    if groups == 1:
        return product(v)
    # slices of the last axis; np.array_split makes groups of two sizes at most
    slices = [np.s_[..., part[0] : part[-1] + 1] for part in np.array_split(range(count), groups)]
    return jnp.concatenate([product(take(v, part)) for part in slices], axis=-1)


def batched(product: Callable[[jax.Array], jax.Array], v: jax.Array, dims: int = 1) -> jax.Array:
    """``product(v)`` for a vector v of ``dims`` axes, or for several vectors along a last axis."""
    return product(v) if v.ndim == dims else jax.vmap(product, in_axes=-1, out_axes=-1)(v)


@bounded_jit
def _forward_batch(net: Network, x: Any, target: Any, v: jax.Array) -> jax.Array:
    """J_b v (n_b r, ..) for v (p,) or (p, c), where J_b = R^T dF/dtheta at n_b samples x."""
    rows = batched(partial(forward, net, x, target), v)
    return rows.reshape(rows.shape[0] * rows.shape[1], *v.shape[1:])


@bounded_jit
def _backward_batch(net: Network, x: Any, target: Any, u: jax.Array) -> jax.Array:
    """J_b^T u (p, ..) for u (n_b, r) or (n_b, r, c), where J_b = R^T dF/dtheta at n_b samples x."""
    return batched(partial(backward, net, x, target), u, 2)


@bounded_jit
def _gauss_newton_batch(net: Network, x: Any, target: Any, v: jax.Array) -> jax.Array:
    """J_b^T J_b v for v (p,) or (p, c), where J_b = R^T dF/dtheta at a batch of samples x."""
    return batched(partial(gauss_newton_of_batch, net, x, target), v)


def forward_products(net: Network, v: jax.Array) -> jax.Array:
    """J v (n r, ..) for v (p,) or (p, c), one batch of samples after the other."""
    rows = [
        columns(net, partial(_forward_batch, net, x, target), v)
        for x, target in sample_batches(net, net.target)
    ]
    return rows[0] if len(rows) == 1 else jnp.concatenate(rows)


def backward_products(net: Network, u: jax.Array) -> jax.Array:
    """J^T u (p, ..) for u (n r,) or (n r, c)."""
    return sum_of(backward_parts(net, u))


def backward_parts(net: Network, u: jax.Array) -> Iterator[jax.Array]:
    """Yield J_b^T u_b for each batch b of samples; their sum is J^T u, for u (n r,) or (n r, c)."""
    shape = (net.samples, net.rows, *u.shape[1:])
    u_of_samples = rearranged(u, lambda array: array.reshape(shape))
    for x, target, u_of_batch in sample_batches(net, net.target, u_of_samples):
        yield columns(net, partial(_backward_batch, net, x, target), u_of_batch, 2)


def gauss_newton_products(net: Network, v: jax.Array) -> jax.Array:
    """J^T J v for v (p,) or (p, c), as the sum of J_b^T J_b v over batches b of samples."""
    return sum_of(
        columns(net, partial(_gauss_newton_batch, net, x, target), v)
        for x, target in sample_batches(net, net.target)
    )


def sum_of(parts: Iterator[jax.Array]) -> jax.Array:
    """The sum of arrays of one shape, such as those of batches, by compensated summation.

    For m arrays P_b |computed - sum_b P_b| <= u |sum_b P_b| + m^2 u^2 sum_b |P_b| in every entry
    (Ogita, Rump and Oishi 2005), with u the relative error of one rounding, where a plain sum could
    be wrong by m u sum_b |P_b|. Only one of the arrays is in memory at a time.
    """
    total = next(parts)
    rounded_away: jax.Array | None = None
    for part in parts:
        total, rounded_away = _added(total, rounded_away, part)
    return total if rounded_away is None else _with_lost(total, rounded_away)


_added, _with_lost = jax.jit(added), jax.jit(with_lost)
