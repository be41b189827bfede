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
# # gnjax: certified condition numbers of Gauss-Newton matrices
#
# Figures 2 and 5 at toy sizes, then a diagnosis of a model of yours. No accelerator is needed.

# %%
REPOSITORY = "https://github.com/OWNER/gnjax"  # put the address of your copy here

# %% [markdown]
# Install it, unless it is there already. The versions of jax and jaxlib are pinned to those found,
# so that pip leaves Colab's own alone.

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


if not any(map(is_checkout, CHECKOUTS)):
    subprocess.run(["git", "clone", "--depth=1", REPOSITORY, CHECKOUTS[-1]], check=True)
ROOT = next(filter(is_checkout, CHECKOUTS))

if find_spec("gnjax") is None:
    pins = HERE / "pins.txt"
    pins.write_text("".join(f"{name}=={version(name)}\n" for name in ("jax", "jaxlib")))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "-c", pins]
    subprocess.run([*pip, f"{ROOT}[experiments]"], check=True)
    importlib.invalidate_caches()

# %% [markdown]
# ## Two figures
#
# One command runs what is missing, draws, and checks the papers' claims. At these sizes some of
# them cannot be tested; `--profile=laptop` takes minutes and tests them.

# %%
command = [sys.executable, "-m", "experiments.reproduce", "--profile=smoke", "--figures=2,5"]
done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
print(done.stdout, done.stderr)
done.check_returncode()

# %%
from IPython.display import Image, display

for name in ("fig02", "fig05"):
    pictures = ROOT / "results" / "figures" / "smoke"
    display(Image(str(pictures / f"{name}.png"), width=900))
    print((pictures / f"{name}.txt").read_text())

# %% [markdown]
# ## Your model
#
# A Flax NNX module, a Linen pair `(module, variables)`, or `(apply, params)`. Samples are rows.

# %%
from flax import nnx

import gnjax

gnjax.enable_x64()


class Model(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(784, 32, rngs=rngs)
        self.last = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.first(x)))


images = gnjax.data.load("fashion_mnist_5000", samples=30, seed=0)
diagnosis = gnjax.diagnose(Model(nnx.Rngs(0)), images.inputs, images.labels)
print(diagnosis)

# %% [markdown]
# The spectrum above its floor, and each layer's share of both ends:

# %%
picture = ROOT / "results" / "diagnosis.png"
gnjax.plot(diagnosis).savefig(picture)
display(Image(str(picture), width=900))
