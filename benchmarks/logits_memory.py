"""Memory of a Gauss-Newton product of a language model, in buffers of the size of its logits.

Run it as ``python -m benchmarks.logits_memory [tied | untied]``: a transformer of width 64 with one
layer, 50,257 words, 4 samples of 1024 tokens, cross-entropy, float32. One buffer of the logits has
823 MB. XLA says what it allocates beside arguments, results included; Linux says by how much the
peak of the process (VmHWM) exceeds what it held before. The model itself is measured as well, one
evaluation of its outputs. The output Hessian, 4096 blocks of 50,257 x 50,257, is never formed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import gnjax

_WORDS, _WIDTH, _TOKENS, _SAMPLES, _HEADS = 50_257, 64, 1024, 4, 2
_BUFFER = 4.0 * _SAMPLES * _TOKENS * _WORDS  # bytes


class Transformer(nnx.Module):
    """Causal attention and a gelu block, with or without a head of its own."""

    def __init__(self, *, tied: bool, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(_WORDS, _WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(_HEADS, _WIDTH, decode=False, rngs=rngs)
        self.up = nnx.Linear(_WIDTH, 4 * _WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * _WIDTH, _WIDTH, rngs=rngs)
        self.head = None if tied else nnx.Linear(_WIDTH, _WORDS, use_bias=False, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        h = self.embed(tokens)
        h = h + self.attention(h, mask=nnx.make_causal_mask(tokens))
        h = h + self.down(nnx.gelu(self.up(h)))
        return self.embed.attend(h) if self.head is None else self.head(h)


def _status(name: str) -> float:
    """A number of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def _buffers(function: Callable[..., jax.Array], *args: Any) -> tuple[float, float]:
    """The memory that XLA plans beside the arguments, and that the process takes, in buffers."""
    compiled = jax.jit(function).lower(*args).compile()
    analysis = compiled.memory_analysis()
    assert analysis is not None
    planned = analysis.temp_size_in_bytes + analysis.output_size_in_bytes
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _status("VmRSS")
    compiled(*args).block_until_ready()
    return planned / _BUFFER, (_status("VmHWM") - before) / _BUFFER


def main() -> None:
    """Print a line for the model itself, and one for the product."""
    tied = "untied" not in sys.argv[1:]
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, _WORDS, (2, _SAMPLES, _TOKENS))
    model = Transformer(tied=tied, rngs=nnx.Rngs(0))
    op = gnjax.gauss_newton(
        model, x, y=y, loss="cross_entropy", side="parameters", batch_size=_SAMPLES
    )
    v = jnp.asarray(rng.standard_normal(op.shape[0]), jnp.float32)
    print(f"{op!r}\n  one buffer of the logits: {_BUFFER / 1e9:.3f} GB")
    jobs: dict[str, tuple[Any, ...]] = {
        "the model": (lambda net: net.outputs(net.leaves, net.x), op.net),
        "the product": (lambda op, v: op.mv(v), op, v),
    }
    for name, job in jobs.items():
        planned, grown = _buffers(*job)
        print(f"  {name}: XLA plans {planned:.2f} buffers, the process grew by {grown:.2f}")


if __name__ == "__main__":
    main()
