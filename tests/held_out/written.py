"""A campaign of models as people write them, with their losses, beside plain JAX in float64.

The Jacobian is that of ``jax.jacrev``, the Hessian that of ``jax.hessian``, each in one program,
and the metric of an optimiser that of differences of its updates.
Their own rounding is allowed for by :data:`_SLACK`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import flint
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax.flatten_util import ravel_pytree

import gnjax
from tests.held_out.verdicts import ASSUMED, Judge, Row, asked, spectrum_judge
from tests.held_out.written_models import FAMILIES, Written
from tests.held_out.written_optimisers import OPTIMISERS, Trained, trained

_SLACK = 1e-11  # of the reference, relative to the norm of the matrix
_HESSIANS_UP_TO = 120  # parameters
_CLASSES = np.array([0.5, 2.0, 1.0, 3.0, 1.5, 0.7, 1.2])  # weights of classes


@dataclass(frozen=True)
class Loss:
    """A loss of one sample: what the library is given, and the same in plain JAX."""

    given: Any
    plain: Callable[..., jax.Array]
    targets: Callable[[np.random.Generator, tuple[int, ...]], Any]
    classes: bool = False  # the last axis is of classes, two at least
    weights: Callable[[np.ndarray], np.ndarray] | None = None  # of labels, for an entropy


def _squared(f: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.square(f - y).sum() / 2


def _entropy(f: jax.Array, y: jax.Array) -> jax.Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(f), y[..., None], axis=-1).sum()


def _of_classes(f: jax.Array, y: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(f), y[..., None], axis=-1)[..., 0]
    return -(jnp.asarray(_CLASSES)[y] * chosen).sum()


def _huber(f: jax.Array, y: jax.Array) -> jax.Array:
    far = jnp.abs(f - y)
    return jnp.where(far < 0.7, jnp.square(f - y) / 2, 0.7 * (far - 0.35)).sum()


def _quantile(f: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.maximum(0.9 * (y - f), -0.1 * (y - f)).sum()


def _masked(f: jax.Array, y: dict[str, jax.Array]) -> jax.Array:
    return (jnp.square(f - y["values"]) * y["mask"]).sum() / jnp.maximum(y["mask"].sum(), 1.0)


def _heteroscedastic(f: jax.Array, y: jax.Array) -> jax.Array:
    mean, log_variance = f[..., 0], f[..., 1]
    return ((jnp.square(y[..., 0] - mean) * jnp.exp(-log_variance) + log_variance) / 2).sum()


def _numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape)


def _labels(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(0, shape[-1], shape[:-1])


def _with_mask(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {"values": _numbers(rng, shape), "mask": (rng.random(shape) < 0.6) * 1.0}


LOSSES = {
    "squared_error": Loss("squared_error", _squared, _numbers),
    "cross_entropy": Loss("cross_entropy", _entropy, _labels, True, lambda y: np.ones(y.shape)),
    "weighted classes": Loss(_of_classes, _of_classes, _labels, True, lambda y: _CLASSES[y]),
    "Huber": Loss(_huber, _huber, _numbers),
    "quantile": Loss(_quantile, _quantile, _numbers),
    "masked": Loss(_masked, _masked, _with_mask),
    "heteroscedastic": Loss(_heteroscedastic, _heteroscedastic, _numbers, classes=True),
}


def written(
    seed: int, count: int, *, names: Sequence[str] = (), limits: gnjax.Limits | None = None
) -> list[Row]:
    """``count`` models of the families ``names`` (of all) in turn, each with a random loss.

    ``limits`` go to every question.
    """
    families, options = list(names or FAMILIES), {} if limits is None else {"limits": limits}
    rows: list[Row] = []
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        family = families[index % len(families)]
        with jax.numpy_rank_promotion("allow"):
            case = FAMILIES[family](rng)
            rows += _asked(f"{seed}:{index}", family, case, rng, options)
    return rows


def _asked(
    draw: str, family: str, case: Written, rng: np.random.Generator, options: dict[str, Any]
) -> Iterator[Row]:
    """The NTK, the Gauss-Newton matrix and the Hessian of a case: spectra, and kappa."""
    vector, unravel = ravel_pytree(case.params)
    outputs = jax.jit(lambda v: case.apply(unravel(v), case.x))
    f = np.asarray(outputs(vector))
    jacobian = np.asarray(jax.jit(jax.jacrev(outputs))(vector)).reshape(f.size, -1)
    losses = [name for name, loss in LOSSES.items() if not loss.classes or f.shape[-1] > 1]
    name = "cross_entropy" if family == "towers" else str(rng.choice(losses))
    loss = LOSSES[name]
    y = np.arange(len(f)) if family == "towers" else loss.targets(rng, f.shape)
    row = Row("written", family, f"{draw} {case.name}, {name}", "", "")
    model, n = case.model, len(f)
    yield from _spectrum_and_kappa(
        replace(row, what="ntk"), partial(gnjax.ntk, model, case.x), jacobian, options
    )
    roots = _roots(loss, f, y)
    # the mean of an entropy by name is over the tokens
    total = f[..., 0].size if name == "cross_entropy" else n
    if roots is not None and name != "heteroscedastic":  # convex at these outputs
        blocks = jacobian.reshape(n, f[0].size, -1) / total**0.5
        factor = np.einsum("nrk,nkp->nrp", roots, blocks)
        question = partial(gnjax.gauss_newton, model, case.x, y, loss=loss.given)
        yield from _spectrum_and_kappa(
            replace(row, what="gauss_newton"),
            question,
            factor.reshape(-1, vector.size).T,
            options,
        )
    if vector.size <= _HESSIANS_UP_TO:
        mean = lambda v: jax.vmap(loss.plain)(outputs(v), y).sum() / total  # noqa: E731
        # forward over reverse by hand, since a loop of Equinox has no other second derivative
        columns = jax.vmap(lambda e: jax.jvp(jax.grad(mean), (vector,), (e,))[1])
        matrix = np.asarray(jax.jit(columns)(jnp.eye(vector.size)))
        matrix = (matrix + matrix.T) / 2
        hessian = partial(gnjax.hessian, model, case.x, y, loss=loss.given)
        question = lambda: gnjax.eigenvalues(hessian(), **options)  # noqa: E731
        named = replace(row, what="eigenvalues of hessian", method="all")
        yield asked(named, question, _judge(np.linalg.eigvalsh(matrix)[::-1]))
        if isinstance(model, tuple):  # the parameters are a tree, as an optimiser takes them
            ntk = partial(gnjax.ntk, model, case.x, side="parameters")
            matrices = {"ntk": (ntk, jacobian.T), "hessian": (hessian, matrix)}
            made = trained(rng, str(rng.choice(list(OPTIMISERS))), case.params)
            yield from preconditioned_by(made, row, matrices, options)


def preconditioned_by(
    made: Trained,
    row: Row,
    matrices: dict[str, tuple[Callable[[], Any], np.ndarray]],
    options: dict[str, Any],
) -> Iterator[Row]:
    """P^{-1/2} A P^{-1/2} for the P of an optimiser, which is asked for it.

    ``matrices`` are functions that make operators, each with its A (p, p), or for "ntk" with a
    factor (p, r) of it. An optimiser that has no diagonal P is to be refused.
    """
    row = replace(row, draw=f"{row.draw}, {made.name}")
    for name, (make, dense) in matrices.items():
        ops: list[Any] = []
        row = replace(row, what=f"preconditioned {name}", method="operator")

        def question(make: Callable[[], Any] = make, ops: list[Any] = ops) -> None:
            ops.append(gnjax.preconditioned(make(), made.state, optimizer=made.optimizer))

        inside, note = True if made.known else None, ""
        if made.known and made.metric is None:
            inside, note = False, "the updates are those of no diagonal P"
        verdict = {"inside": inside, "note": note}
        yield asked(row, question, lambda row, _, verdict=verdict: replace(row, **verdict))
        if not ops or made.metric is None:
            continue
        slack, root = 10 * made.apart + _SLACK, np.sqrt(made.metric)
        if name == "ntk":
            singular = np.linalg.svd(dense / root[:, None], compute_uv=False)
            truth = np.zeros(len(root))
            truth[: len(singular)] = singular**2
            of_kappa = partial(gnjax.condition_number, ops[0], **options)
            kappa = replace(row, what=f"kappa of {row.what}", method="auto")
            yield asked(kappa, of_kappa, _kappa_judge(singular, slack))
        else:
            truth = np.linalg.eigvalsh(dense / np.outer(root, root))[::-1]
        spectrum = replace(row, what=f"eigenvalues of {row.what}", method="all")
        yield asked(spectrum, partial(gnjax.eigenvalues, ops[0], **options), _judge(truth, slack))


def _roots(loss: Loss, f: np.ndarray, y: Any) -> np.ndarray | None:
    """R_i^T (n, r, k) with R_i R_i^T the output Hessian of each sample; None where one is concave.

    That of an entropy with the weight w and p = softmax(f) is, by Lagrange's identity,
    sum_{i < j} w p_i p_j (e_i - e_j) (e_i - e_j)^T, of which no digits are lost however sure the
    classes are. The others are those of ``jax.hessian``.
    """
    n, k = len(f), f[0].size
    if loss.weights is not None:
        p, w = scipy.special.softmax(f, axis=-1), loss.weights(np.asarray(y))
        i, j = np.triu_indices(f.shape[-1], 1)
        lengths = np.sqrt(w[..., None] * p[..., i] * p[..., j])[..., None]
        rows = lengths * (np.eye(f.shape[-1])[i] - np.eye(f.shape[-1])[j])  # (n, .., pairs, c)
        tokens = rows.reshape(n, -1, *rows.shape[-2:])
        roots = np.zeros((n, *tokens.shape[1:3], tokens.shape[1], tokens.shape[3]))
        for token in range(tokens.shape[1]):
            roots[:, token, :, token] = tokens[:, token]
        return roots.reshape(n, -1, k)
    hessians = jax.jit(jax.vmap(jax.hessian(loss.plain)))
    curvatures = np.asarray(hessians(jnp.asarray(f), jax.tree.map(jnp.asarray, y)))
    values, vectors = np.linalg.eigh(curvatures.reshape(n, k, k))
    if values.min() <= -1e-12:
        return None
    # a zero comes out as 1e-17, of which the root would count as a direction of its own
    values[values < 1e-13 * values.max(axis=1, keepdims=True)] = 0.0
    return np.sqrt(np.maximum(values, 0.0))[:, :, None] * np.swapaxes(vectors, 1, 2)


def _judge(truth: np.ndarray, slack: float = _SLACK) -> Judge:
    norm = float(np.abs(truth).max(initial=0.0))
    return spectrum_judge([flint.arb(float(v)) for v in truth], slack=slack * norm + 1e-300)


def _spectrum_and_kappa(
    row: Row, make: Callable[[], Any], factor: np.ndarray, options: dict[str, Any]
) -> Iterator[Row]:
    """Eigenvalues and kappa of an operator whose matrix is A A^T, for the ``factor`` A."""
    made: list[Any] = []
    refused = asked(replace(row, method="operator"), make, lambda row, op: made.append(op) or row)
    if not made:
        yield refused
        return
    (op,) = made
    values = np.zeros(len(factor))
    singular = np.linalg.svd(factor, compute_uv=False)
    values[: len(singular)] = singular**2
    named = replace(row, what=f"eigenvalues of {row.what}", method="all")
    yield asked(named, partial(gnjax.eigenvalues, op, **options), _judge(values))
    named = replace(row, what=f"kappa of {row.what}", method="auto")
    yield asked(named, partial(gnjax.condition_number, op, **options), _kappa_judge(singular))


def _kappa_judge(singular: np.ndarray, slack: float = 1e-10) -> Judge:
    """kappa is (s_1 / s_r)^2 at the rank r of the answer, where the reference can tell.

    Both ends of the reference are known up to ``slack``, and 1e-12 of the largest.

    Singular values beyond r must be zero to rounding, but for an answer that says it is not
    resolved.
    """

    def judge(row: Row, answer: Any) -> Row:
        low, high = answer.interval
        rank = int(answer.rank)
        largest = float(singular[0]) if len(singular) else 0.0
        relative = singular / largest if largest > 0 else singular
        true = int((relative > 1e-9).sum())  # singular values below are rounding, or too small
        row = replace(
            row,
            lower=float(low),
            upper=float(high),
            kind=getattr(answer.certificate, "kind", "") or "",
            failure=float(getattr(answer.certificate, "failure", 0.0)),
            resolved=bool(answer.resolved),
            relative_width=(high - low) / answer.value if answer.resolved else math.nan,
            rank=rank,
            true_rank=true,
            source=answer.rank_source,
            used=answer.method,
        )
        if math.isnan(low) or math.isnan(high) or rank < 1 or rank > len(singular):
            return replace(row, inside=not answer.resolved)
        smallest = float(relative[rank - 1])
        if smallest < 1e-9:  # the reference cannot tell
            return replace(row, inside=None)
        kappa = smallest**-2
        apart = slack + 1e-12 / smallest
        inside = low * (1 - apart) <= kappa <= high * (1 + apart)
        complete = rank >= true or (not answer.resolved and answer.rank_source in ASSUMED)
        return replace(row, truth=f"{kappa:.17g}", inside=bool(inside and complete))

    return judge
