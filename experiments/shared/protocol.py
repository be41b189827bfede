"""Pruned networks as the authors of paper A train and measure them, with one change at a time.

The settings are those of the published code: every tensor is pruned, images are cropped and flipped
at random, and J has a column for every weight, pruned or not, and BatchNorm takes the statistics
of batches of 64 samples, through which J differentiates.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from numpy.typing import NDArray

from experiments.shared import pruned_networks as networks
from gnjax import data as datasets
from gnjax.models import ViT
from gnjax.papers.training import Recipe, pruning
from gnjax.papers.training import minibatch as training

BATCH = 64
EVERY, KERNELS = "every tensor", "kernels"  # what is pruned
SCATTERED = "every tensor, ties at random"
MEAN = (0.49154913, 0.4821251, 0.44642678)  # of the channels of CIFAR-10
SPREAD = (0.24703223, 0.24348513, 0.26158784)
BORDER = 4  # pixels of black around an image, from which a crop is taken
RESIZED = (0.8, 1.0), (3 / 4, 4 / 3)  # area and aspect of a crop that is resized
START = 0.02  # the standard deviation of the transformer's weights


@dataclass(frozen=True)
class Training:
    """One network from its initialisation on.

    ``pruned`` is the share of each tensor that is pruned, ``tensors`` says of which. ``augment``
    crops and flips the images. ``side`` 0 leaves images as they are.
    """

    network: str
    depth: int
    width: int
    data: str
    samples: int
    side: int
    tensors: str
    pruned: float
    augment: bool
    seed: int
    batch: int = BATCH


def _residual(batch: int) -> Recipe:
    return Recipe(
        "sgd", 0.1, batch, "cross_entropy", momentum=0.9, decay=1e-4, drop_after=91, drop=0.1
    )


def _transformer(batch: int) -> Recipe:
    return Recipe("adamw", 0.01, batch, "cross_entropy", decay=0.01)


RECIPES: Mapping[str, Callable[[int], Recipe]] = {
    "resnet20": _residual,
    "resnet32": _residual,
    "vit": _transformer,
}


@dataclass(frozen=True, eq=False)
class Begun:
    """A pruned network before training, its images as the network sees them, and its mask."""

    net: nnx.Module
    x: NDArray[np.float64]
    labels: NDArray[np.int64]
    classes: int
    mask: Any
    problem: training.TrainingProblem
    state: training.State
    key: jax.Array
    data: str
    source: str


@lru_cache(maxsize=4)
def begun(run: Training) -> Begun:
    """The network of a training at epoch 0."""
    x, labels, classes, black, data, source = _images(run)
    key = jax.random.key(run.seed)
    net = networks.KINDS[run.network].make(run.depth, run.width, x.shape[1:], classes, key)
    if isinstance(net, ViT):
        _start_small(net, key)
    mask = _mask(nnx.state(net, nnx.Param), run)
    crops = _resized if run.network == "vit" else Crops(black)
    change = crops if run.augment else None
    recipe = RECIPES[run.network](run.batch)
    problem, state = training.begin(net, x, labels, recipe, key, mask=mask, augment=change)
    return Begun(net, x, labels, classes, mask, problem, state, key, data, source)


def _mask(params: Any, run: Training) -> Any:
    """What pruning leaves. Among equal entries, as the scales of BatchNorm, the first ones go.

    With ``SCATTERED`` they are drawn anew for each tensor, so that layers lose other channels.
    """
    if run.tensors not in (EVERY, KERNELS, SCATTERED):
        msg = f"tensors={run.tensors!r} is not one of {EVERY!r}, {KERNELS!r}, {SCATTERED!r}"
        raise ValueError(msg)
    kernels = run.tensors == KERNELS
    return pruning.magnitude_mask(
        params,
        run.pruned,
        only=networks.KERNELS if kernels else None,
        vectors=not kernels,
        count=int,
        ties=run.seed if run.tensors == SCATTERED else None,
    )


@cache
def _loaded(data: str, samples: int, seed: int, side: int) -> networks.Images:
    return networks.images(data, samples, seed, side, 3)


Black = tuple[float, ...]  # what a black pixel is in each channel


def _images(run: Training) -> tuple[NDArray, NDArray, int, Black, str, str]:
    """Images (n, side, side, 3), their labels, how many classes, black, the data and its source.

    CIFAR-10 gets the mean and the spread of the published code; the transformer's images lie
    between -1 and 1. Other data are standardised channel by channel; their darkest is black.
    """
    if not run.data.startswith("cifar10"):
        found = _loaded(run.data, run.samples, 0, run.side)
        darkest = tuple(found.x.min(axis=(0, 1, 2)).tolist())
        return found.x, found.labels, found.classes, darkest, found.data, found.source
    raw = datasets.load(run.data, samples=run.samples, seed=0)
    x = raw.inputs.reshape(run.samples, *raw.shape)
    mean, spread, told = MEAN, SPREAD, "less each channel's mean and over its standard deviation"
    if run.network == "vit":
        mean, spread, told = (0.5,) * 3, (0.5,) * 3, "of the transformer between -1 and 1"
    black = tuple((-np.array(mean) / spread).tolist())
    source = f"{raw.source}; {told}, as the published code has them"
    return (x - mean) / spread, raw.labels, raw.classes, black, run.data, source


def _start_small(net: ViT, key: jax.Array) -> None:
    """Weights N(0, 0.02^2), biases 0 and scales 1, as the published transformer starts."""
    params = nnx.state(net, nnx.Param)
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    drawn = []
    for place, (path, leaf) in enumerate(leaves):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if "scale" in name or "bias" in name:
            drawn.append(jnp.full_like(leaf, "scale" in name))
        else:
            normal = jax.random.normal(jax.random.fold_in(key, place), leaf.shape, leaf.dtype)
            drawn.append(START * normal)
    nnx.update(net, jax.tree.unflatten(structure, drawn))


def _flipped(key: jax.Array, x: jax.Array) -> jax.Array:
    """Each image, or with probability 1/2 its mirror image."""
    mirrored = jax.random.bernoulli(key, 0.5, (len(x),))
    return jnp.where(mirrored[:, None, None, None], x[:, :, ::-1], x)


@dataclass(frozen=True)
class Crops:
    """A random window of each image in a black border, perhaps mirrored, from (key, images)."""

    black: Black

    def __call__(self, key: jax.Array, x: jax.Array) -> jax.Array:
        place, mirror = jax.random.split(key)
        black = jnp.asarray(self.black, x.dtype)[None, None, None]
        border = ((0, 0), (BORDER, BORDER), (BORDER, BORDER), (0, 0))
        framed = jnp.pad(x - black, border) + black
        corners = jax.random.randint(place, (len(x), 2), 0, 2 * BORDER + 1)

        def window(image: jax.Array, corner: jax.Array) -> jax.Array:
            return lax.dynamic_slice(image, (corner[0], corner[1], 0), x.shape[1:])

        return _flipped(mirror, jax.vmap(window)(framed, corners))


def _resized(key: jax.Array, x: jax.Array) -> jax.Array:
    """A random window of each image, resized to its whole side, perhaps mirrored.

    Its area is 0.8 to 1 of the image's and its aspect 3/4 to 4/3, where that fits.
    """
    area, aspect, place, mirror = jax.random.split(key, 4)
    n, side = x.shape[:2]
    (smallest, largest), (narrow, wide) = RESIZED
    areas = jax.random.uniform(area, (n,), x.dtype, smallest, largest)
    logs = jax.random.uniform(aspect, (n,), x.dtype, np.log(narrow), np.log(wide))
    ratio = jnp.exp(0.5 * logs)
    sides = jnp.minimum(jnp.stack([jnp.sqrt(areas) / ratio, jnp.sqrt(areas) * ratio], 1), 1.0)
    corners = (1 - sides) * jax.random.uniform(place, (n, 2), x.dtype)

    def window(image: jax.Array, share: jax.Array, corner: jax.Array) -> jax.Array:
        scale, shift = 1 / share, -corner / share * side
        return jax.image.scale_and_translate(
            image, image.shape, (0, 1), scale, shift, "linear", antialias=False
        )

    return _flipped(mirror, jax.vmap(window)(x, sides, corners))


def trained(run: Training, stops: tuple[int, ...], folder: Path) -> list[dict[str, Any]]:
    """Train up to the last stop; keep the weights of each stop in ``folder``.

    Returns for every epoch, from 0 on, the loss, the share of right answers and the number of dead
    channels after it.
    """
    start = begun(run)
    state, found = start.state, []
    for epoch in range(stops[-1] + 1):
        if epoch:
            state, _ = training.train(start.problem, state, 1)
        loss, right = training.evaluated(start.problem, state)
        found.append({"epoch": epoch, "loss": loss, "right": right, "dead": _dead(state)})
        if epoch in stops:
            keep(folder, run, epoch, state)
    return found


def _dead(state: training.State) -> int:
    """The channels whose scale and shift in BatchNorm are zero.

    Scales start alike, and so do shifts: pruned by the same share they are zero together, for good.
    """
    leaves = {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(state.params)
    }
    return sum(
        int(np.count_nonzero((scale == 0) & (leaves[name.replace("scale", "bias")] == 0)))
        for name, scale in leaves.items()
        if "norm/scale" in name
    )


def _file(folder: Path, run: Training, epoch: int) -> Path:
    """The file of the weights at a stop, named by everything that decides them."""
    said = "-".join(str(value).replace(" ", "_") for value in asdict(run).values())
    return folder / f"{said}-{epoch}.npz"


def kept_at(folder: Path, run: Training, epoch: int) -> bool:
    """Whether the weights of a training after an epoch are kept."""
    return _file(folder, run, epoch).is_file()


def keep(folder: Path, run: Training, epoch: int, state: training.State) -> None:
    """Write weights and BatchNorm's statistics, in the precision of the training."""
    folder.mkdir(parents=True, exist_ok=True)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((state.params, state.statistics))]
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as file:
        np.savez(file, *leaves)
    Path(file.name).replace(_file(folder, run, epoch))


def network_at(run: Training, epoch: int, folder: Path) -> nnx.Module:
    """The network after an epoch, in the working precision; it is trained where it is not kept."""
    start = begun(run)
    state, path = start.state, _file(folder, run, epoch)
    if epoch:
        if not path.is_file():
            trained(run, (epoch,), folder)
        like = state.params, state.statistics
        with np.load(path) as kept:
            leaves = [jnp.asarray(kept[name]) for name in kept.files]
        params, statistics = jax.tree.unflatten(jax.tree.structure(like), leaves)
        state = replace(state, params=params, statistics=statistics)
    return training.trained(start.net, state)
