"""Operators of a model at its samples: Gauss-Newton matrix, NTK, Hessian and its parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack, overload

import jax
import numpy as np
from jax.tree_util import Partial
from jax.typing import ArrayLike

from gnjax.networks.arguments.batches import is_batches
from gnjax.networks.arguments.frameworks import InputTree, Model, PyTree
from gnjax.networks.construct import network
from gnjax.networks.losses.sample_losses import UNNAMED, Loss
from gnjax.networks.losses.targets import Target, check_has_targets, term_losses
from gnjax.networks.network import Network
from gnjax.networks.output_shapes import Outputs, flat_outputs
from gnjax.networks.parameters import Only
from gnjax.numerics.precision import real_dtype
from gnjax.numerics.validation import check_known
from gnjax.operators.of_networks.cross import CrossKernel, MeasuredJacobian
from gnjax.operators.of_networks.described import loss_of
from gnjax.operators.of_networks.hessian import NetworkHessian, checked_hessian
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.operators.of_networks.sides import chosen_side, without_idle_target
from gnjax.operators.of_networks.streamed import Streamed, streamed


def gauss_newton(
    model: Model,
    x: InputTree,
    y: PyTree | None = None,
    *,
    loss: Loss = UNNAMED,
    side: str = "parameters",
    weights: ArrayLike | None = None,
    has_aux: bool = False,
    coupled: bool | None = None,
    only: Only | None = None,
    mask: PyTree | None = None,
    batch_size: int | None = None,
) -> NetworkGram | Streamed:
    """The Gauss-Newton matrix G = 1/n sum_i J_i^T B_i J_i (Eq 1), or its output-side twin.

    A complex parameter counts as two real ones, its real and its imaginary part, and a complex
    output as two real outputs. For a model that is holomorphic in its p parameters, with the
    complex Jacobian J, G (2 p, 2 p) is the real form of the Hermitian matrix 1/n J^H J: entries
    2 i, 2 i + 1 belong to parameter i, and each eigenvalue of 1/n J^H J is there twice. Trees like
    the parameters have complex arrays.

    Inside of jax.jit, where arrays have no numbers, only shapes are checked, and the operator
    multiplies and does nothing else.

    Args:
      model: see :func:`gnjax.functional`. Its outputs are (n, ...) of any shape, also (n,), or a
        dict or a tuple of such arrays; k counts the numbers of one sample.
      x: inputs (n, ...), or a pytree of arrays with the samples first; integers and booleans stay
        what they are. A tuple goes to a module as several arguments, and a dict as one. Or a list
        or a loader of batches (x, y): G is then the mean over all batches, and every product
        passes over them once. All passes must give the same batches.
      y: labels or targets, samples first. For the cross-entropy labels have the shape of the
        outputs without the last axis, and a label of -1 does not count.
      loss: "squared_error" (B = I; "mse" is an older name of it; labels become one-hot, with a
        warning if no loss is named), "cross_entropy" (softmax over the
        last axis, B = diag(p) - p p^T for every token), "binary_cross_entropy" (B = p (1 - p) for
        every output), or a convex ``loss(f, y)`` of one sample (``loss(f)`` where no y is given). A
        loss with one number for each output, like optax's elementwise ones, is summed over outputs.
        It is given complex outputs (...) as their parts (..., 2); "squared_error" takes complex y.
      side: "parameters", G itself (p, p); "outputs", its twin 1/n R^T J J^T R (n r, n r) with the
        same non-zero eigenvalues, where r = k, or k - 1 for the cross-entropy; or "auto", the
        smaller of the two.
      weights: (n,), or of the shape of the labels or targets. The mean is then sum w (.) / sum w
        with one term for each weight. Without weights it is over the samples, and for the
        cross-entropy over the labels that count.
      has_aux: whether the model returns (outputs, extras).
      coupled: whether the outputs of a sample depend on the other samples of the batch, as under
        BatchNorm in training mode. None tests this; True differentiates the batch as one function;
        False raises an error if the samples turn out to be coupled.
      only: chooses the parameters of G: a pattern of paths like "layers/0/*", a list of patterns, a
        function of the path, or a filter of Flax NNX such as ``nnx.LoRAParam``.
      mask: a pytree like the parameters; entries where it is zero are held fixed, and are no
        parameters of G.
      batch_size: how many samples are evaluated at once; by default chosen to bound memory.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> gnjax.gauss_newton(model, x).shape, gnjax.gauss_newton(model, x, side="outputs").shape
    ((26, 26), (10, 10))
    >>> gnjax.gauss_newton(model, x, loss="cross_entropy", only="dense1/*").shape
    (16, 16)
    """
    arguments = locals()  # all of them by name, as in the other functions of this module
    if is_batches(x):
        return _over_batches(None, **arguments)  # None: it is not a Hessian, nor its part H_F
    net, side, of_loss = _network_and_side(**arguments)
    return NetworkGram(net, side, 1.0 / float(net.total), of_loss)


class _Options(TypedDict, total=False):
    """The keywords of :func:`ntk`, for its types."""

    y: PyTree
    loss: Loss
    side: str
    weights: ArrayLike | None
    has_aux: bool
    coupled: bool | None
    only: Only | None
    mask: PyTree | None
    batch_size: int | None


@overload
def ntk(
    model: Model, x: InputTree, x2: None = None, **options: Unpack[_Options]
) -> NetworkGram: ...


@overload
def ntk(model: Model, x: InputTree, x2: InputTree, **options: Unpack[_Options]) -> CrossKernel: ...


def ntk(
    model: Model,
    x: InputTree,
    x2: InputTree | None = None,
    *,
    y: PyTree | None = None,
    loss: Loss = UNNAMED,
    side: str = "outputs",
    weights: ArrayLike | None = None,
    has_aux: bool = False,
    coupled: bool | None = None,
    only: Only | None = None,
    mask: PyTree | None = None,
    batch_size: int | None = None,
) -> NetworkGram | CrossKernel:
    """The neural tangent kernel J J^T (n k, n k) without a factor 1/n, samples first.

    With a loss or with weights it is R^T J J^T R, where B = R R^T is the output Hessian of the
    loss. With a second set of samples ``x2`` it is the kernel between both, R^T J J'^T R'
    (n k, n' k), a :class:`gnjax.operators.CrossKernel`: the block of the kernel of all samples that
    has its rows in ``x`` and its columns in ``x2``. It has no y and no weights. The arguments are
    those of :func:`gauss_newton`.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> gnjax.ntk(model, x).shape  # k n
    (10, 10)
    >>> gnjax.ntk(model, x[:2], x).shape
    (4, 10)
    """
    arguments = locals()
    del arguments["x2"]
    for name, samples in {"x": x, "x2": x2}.items():
        _check_no_batches(name, samples, "a kernel has a row for every output of all samples")
    if x2 is not None:
        return _cross_kernel(x2, **arguments)
    net, side, _ = _network_and_side(**arguments)
    return NetworkGram(net, side, 1.0, loss_of(net))


def _cross_kernel(
    x2: InputTree, *, side: str, y: PyTree, weights: Any, **arguments: Any
) -> CrossKernel:
    """J J'^T of one model at the samples x, which are among the arguments, and x2."""
    if side != "outputs":
        msg = f"side={side!r}: a kernel between x and x2 has the side of the outputs only"
        raise ValueError(msg)
    for name, argument in {"y": y, "weights": weights}.items():
        if argument is not None:
            msg = (
                f"{name} belongs to x alone, and a kernel between x and x2 has no {name}; leave it "
                "out, or make gnjax.ntk of all samples together and take a block of its matrix"
            )
            raise ValueError(msg)
    left, _, _ = _network_and_side(side, **arguments)
    try:
        right, _, _ = _network_and_side(side, **{**arguments, "x": x2})
    except ValueError as error:
        msg = f"the second samples, x2 (called x in what follows): {error}"
        raise ValueError(msg) from error
    # two seeds, so that the random vectors that measure the errors of J and J' are independent
    return CrossKernel(MeasuredJacobian(left, seed=23), MeasuredJacobian(right, seed=29))


def empirical_fisher(
    model: Model,
    x: InputTree,
    y: PyTree,
    *,
    loss: Loss = UNNAMED,
    terms: bool = False,
    side: str = "parameters",
    has_aux: bool = False,
    coupled: bool | None = None,
    only: Only | None = None,
    mask: PyTree | None = None,
    batch_size: int | None = None,
) -> NetworkGram:
    """The second moment 1/n sum_i g_i g_i^T of the gradients of the samples' losses.

    The mean of the g_i is the gradient of the mean loss. If a sample has several tokens, g_i is
    the gradient of the sum of their losses, times the number of samples divided by the number of
    tokens that count. With
    ``terms`` there is a g_i for every term of the loss, such as each token that counts. The other
    arguments are those of :func:`gauss_newton`; side="outputs" is the Gram matrix (n, n) of the g_i
    over n. It is not the Fisher matrix, which for a cross-entropy is the Gauss-Newton matrix.

    >>> model = lambda w, x: x @ w, np.array([[2.0]])
    >>> op = gnjax.empirical_fisher(model, np.array([[1.0], [2.0]]), np.zeros((2, 1)))
    >>> op.as_matrix()  # of the gradients 2 x^2: (4 + 64) / 2
    Array([[34.]], dtype=float64)
    """
    arguments = locals()
    del arguments["side"], arguments["terms"]
    _check_no_batches("x", x, "empirical_fisher needs the gradient of every sample")
    check_has_targets(loss, y)
    net = network(**arguments, convex=False)
    check_known("empirical_fisher", net)
    # A network whose samples are pairs (x, target) and whose outputs are losses, so that the rows
    # of its Jacobian are their gradients.
    losses = Partial(_Losses(net.shapes, terms), net.apply)
    params = jax.tree.unflatten(net.structure, net.leaves)
    rows = jax.eval_shape(losses, params, (net.x, net.target)).shape[1]
    shapes = flat_outputs(rows)
    net_of_losses = replace(net, x=(net.x, net.target), target=None, apply=losses, shapes=shapes)
    count = net.samples
    if terms:  # those with a weight that is not zero; a weight of a sample counts for all its terms
        given = None if net.target is None else net.target.weights
        weights = np.ones(count) if given is None else np.asarray(given)
        count = int(np.count_nonzero(weights)) * (count * rows // weights.size)
    # The gradients g_i are count / total times those rows, and G is their mean over count.
    scale = count / float(net.total) ** 2
    return NetworkGram(net_of_losses, chosen_side(net_of_losses, side), scale, loss_of(net))


@dataclass(frozen=True)
class _Losses:
    """The loss of every sample (n, 1), or of every term (n, t), as the outputs of a network."""

    shapes: Outputs
    terms: bool

    def __call__(self, apply: Any, params: Any, samples: tuple[Any, Target]) -> jax.Array:
        """The losses of the samples (x, target) for the model's outputs ``apply(params, x)``."""
        x, target = samples
        outputs = self.shapes.ravel(apply(params, x), real_dtype())
        losses = term_losses(target, outputs)
        return losses if self.terms else losses.sum(axis=1, keepdims=True)


def hessian(
    model: Model,
    x: InputTree,
    y: PyTree | None = None,
    *,
    loss: Loss = UNNAMED,
    side: str = "parameters",
    weights: ArrayLike | None = None,
    has_aux: bool = False,
    coupled: bool | None = None,
    only: Only | None = None,
    mask: PyTree | None = None,
    batch_size: int | None = None,
) -> NetworkHessian | Streamed:
    """The Hessian of the mean loss; symmetric, and in general not positive semidefinite.

    The loss may be any that can be differentiated twice. The arguments are those of
    :func:`gauss_newton`, but ``side`` can only be that of the parameters. With samples in batches
    the matrix is streamed.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> y = jax.random.normal(jax.random.key(2), (5, 2))
    >>> spectrum = gnjax.eigenvalues(gnjax.hessian(model, x, y))
    >>> len(spectrum), spectrum.certificate.kind
    (26, 'measured')
    """
    return _hessian(functional=False, **locals())


def functional_hessian(
    model: Model,
    x: InputTree,
    y: PyTree | None = None,
    *,
    loss: Loss = UNNAMED,
    side: str = "parameters",
    weights: ArrayLike | None = None,
    has_aux: bool = False,
    coupled: bool | None = None,
    only: Only | None = None,
    mask: PyTree | None = None,
    batch_size: int | None = None,
) -> NetworkHessian | Streamed:
    """H_F = H - G (Eq 17): the curvature of the network weighted by the loss's slope.

    H is the Hessian of the mean loss and G the Gauss-Newton matrix. The arguments are those of
    :func:`hessian`.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> y = jax.random.normal(jax.random.key(2), (5, 2))
    >>> residual = gnjax.functional_hessian(model, x, y).as_matrix()
    >>> whole = gnjax.hessian(model, x, y).as_matrix()
    >>> gauss_newton = gnjax.gauss_newton(model, x).as_matrix()
    >>> np.allclose(whole, gauss_newton + residual)
    True
    """
    return _hessian(functional=True, **locals())


def _hessian(*, functional: bool, side: str, **arguments: Any) -> NetworkHessian | Streamed:
    """The Hessian H of the mean loss, or its part H_F = H - G if ``functional``."""
    if side not in ("parameters", "auto"):
        msg = f"side={side!r}: a Hessian has the side of the parameters only"
        raise ValueError(msg)
    if is_batches(arguments["x"]):
        return _over_batches(functional, side=side, **arguments)
    check_has_targets(arguments["loss"], arguments["y"])
    return checked_hessian(NetworkHessian(network(**arguments, convex=False), functional))


def _network_and_side(side: str, **arguments: Any) -> tuple[Network, str, str]:
    """The network at its samples, the side of its matrix, "auto" decided, and its loss in words."""
    whole = network(**arguments)
    net = without_idle_target(whole)  # which leaves no target of a squared error
    return net, chosen_side(net, side), loss_of(whole)


def _over_batches(
    functional: bool | None,
    model: Model,
    x: InputTree,
    loss: Loss,
    *,
    y: PyTree,
    weights: Any,
    side: str,
    **options: Any,
) -> Streamed:
    """The matrix over a sequence ``x`` of batches (x, y), see :class:`Streamed`."""
    if y is not None or weights is not None:
        msg = (
            "x is a sequence of batches (x, y), so that y and weights have no place beside it; "
            "stack x to arrays (n, ...) if its entries are single samples"
        )
        raise ValueError(msg)
    if side not in ("parameters", "auto"):
        msg = f"side={side!r}: batches of samples have the side of the parameters only"
        raise ValueError(msg)
    return streamed(model, x, functional, loss, **options)


def _check_no_batches(name: str, samples: Any, reason: str) -> None:
    """Refuse samples that come in batches, for the given reason."""
    if samples is not None and is_batches(samples):
        msg = f"{name} is a sequence of batches, and {reason}; pass all samples as one {name}"
        raise ValueError(msg)
