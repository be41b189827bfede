# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # gnjax: is your network badly conditioned, and by how much?
#
# A model of yours first: its condition number, which layer makes it, and what would help. Then the
# figures of two papers: 2, 5 and 1, and those of your choice. Whatever is there computes, a GPU or
# a CPU, and each step of the papers says how long it took. The outputs that stand here are those of
# toy sizes (`make notebook PROFILE=smoke KEEP=1`), at which the papers are not judged.

# %%
REPOSITORY = "https://github.com/OWNER/gnjax"  # put the address of your copy here

# %% [markdown]
# Install it, unless it is there already: from a checkout in this folder or above it, from a wheel
# that was uploaded here (`make wheel` builds one), or from the address. The versions of jax and
# jaxlib are pinned to those found, so that pip leaves Colab's own alone.

# %%
import importlib
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HERE = Path.cwd()
CHECKOUTS = (HERE, HERE.parent, HERE / "gnjax-checkout")


def is_checkout(folder):
    return (folder / "experiments" / "reproduce.py").is_file()


wheels = sorted(HERE.glob("gnjax-*.whl"))
if not any(map(is_checkout, CHECKOUTS)) and "/OWNER/" not in REPOSITORY:
    subprocess.run(["git", "clone", "--depth=1", REPOSITORY, CHECKOUTS[-1]], check=True)
ROOT = next(filter(is_checkout, CHECKOUTS), None)  # None with a wheel alone

if find_spec("gnjax") is None:
    if ROOT is None and not wheels:
        sys.exit("put the address of your copy above, or upload a wheel, or run in a checkout")
    pins = HERE / "pins.txt"
    pins.write_text("".join(f"{name}=={version(name)}\n" for name in ("jax", "jaxlib")))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "-c", pins]
    subprocess.run([*pip, f"{ROOT or wheels[-1]}[experiments]"], check=True)
    importlib.invalidate_caches()

# %% [markdown]
# ## Your model
#
# A Flax NNX module, a Linen pair `(module, variables)`, or `(apply, params)`. Samples are rows.

# %%
import time

import jax
from flax import nnx
from IPython.display import Image, display

import gnjax

gnjax.enable_x64()


class Model(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(784, 32, rngs=rngs)
        self.last = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.first(x)))


images = gnjax.data.load("fashion_mnist_5000", samples=30, seed=0)
diagnosis = gnjax.diagnose(Model(nnx.Rngs(0)), images.inputs, images.labels, loss="squared_error")
print(diagnosis)

# %% [markdown]
# The spectrum above its floor, and each layer's share of both ends:

# %%
import io

import PIL.Image


def small(path, width=900):
    """A picture in fewer pixels and colours, so that a notebook with outputs stays small."""
    with PIL.Image.open(path) as picture:
        shown = picture.convert("RGB")
    shown.thumbnail((width, shown.height))
    stored = io.BytesIO()
    shown.quantize(48).save(stored, "png", optimize=True)
    return Image(stored.getvalue())


gnjax.plot(diagnosis).savefig("diagnosis.png")
display(small("diagnosis.png"))

# %% [markdown]
# Every layer as a row of a table, with its own kappa, the interval of it and the evidence:

# %%
layers = diagnosis.to_pandas()
display(layers[["name", "parameters", "top", "bottom", "block_value", "block_certificate_kind"]])

# %% [markdown]
# ## The papers: Figures 2 and 5
#
# From here on a checkout is needed, which has the experiments.
#
# One command runs what is missing, draws, and checks the papers' claims. The profile `laptop` takes
# reduced sizes, a minute and a half on two cores; `smoke` takes toy sizes, at which some claims
# cannot be tested, and `paper` those of the paper: half an hour for 2 and an hour for 5.

# %%
import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # programs share a GPU with this process
os.environ.pop("FORCE_COLOR", None)  # what they print is kept as plain lines

if ROOT is None:
    sys.exit("the papers' figures need a checkout: put its address above, and run all again")

PROFILE = os.environ.get("GNJAX_PROFILE", "laptop")
RESULTS = ROOT / "results"


def run(module, *arguments):
    """Run a program of the checkout, and say what it printed and what it cost."""
    command = [sys.executable, "-m", module, *arguments]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    done.check_returncode()
    print(f"{time.perf_counter() - began:.0f} s on {jax.devices()[0].device_kind}")


def show(profile, *figures):
    """Show pictures with their captions."""
    for name in figures:
        picture = RESULTS / "figures" / profile / f"{name}.png"
        display(small(picture))
        print(picture.with_suffix(".txt").read_text())


# %%
run("experiments.reproduce", f"--profile={PROFILE}", "--figures=2,5")
show(PROFILE, "fig02", "fig05")

# %% [markdown]
# ## Figure 1
#
# The paper's ResNet20 of which up to 80% of every tensor is pruned, as in the published code, while
# it trains. At the paper's size, 1000 images of CIFAR-10 and 16 filters, it was computed on one
# H200, and is published with the code: it costs nothing.

# %%
run("experiments.reproduce", "--profile=paper", "--figures=1", "--published", "--no_compute")
show("paper", "fig01")

# %% [markdown]
# The same with 64 images of 8 x 8 pixels and 4 filters, computed here in some minutes on two cores.
# J J^T has 640 rows in place of 10,000. What happens along training is not the paper's then: an
# epoch has 4 steps in place of 16.

# %%
run("experiments.pruning_arms", f"--config=configs/pruning_arms.py:{PROFILE}")
run("figures", "fig01", f"--profile={PROFILE}")
show(PROFILE, "fig01")

# %% [markdown]
# ## Figures of your choice
#
# 1 to 23 of paper A, b1 to b4 of paper B, and those beyond them, c1 to c5 and t1 to t7. With
# `--dry_run` a command says how many computations it would take.

# %%
CHOICE = "b1,19"
run("experiments.reproduce", f"--profile={PROFILE}", f"--figures={CHOICE}")
for part in CHOICE.split(","):
    show(PROFILE, f"fig{int(part):02d}" if part.isdecimal() else part)
