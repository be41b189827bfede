"""Memory of a Gauss-Newton product of a language model, in buffers of the size of its logits.

Run it as ``python -m benchmarks.logits_memory [tied | untied]``: a transformer of width 64 with one
layer, 50,257 words, 4 samples of 1024 tokens, cross-entropy, float32. One buffer of the logits has
823 MB. XLA says what it allocates beside arguments and results; Linux says by how much the peak of
the process (VmHWM) exceeds what it holds before the product. The output Hessian, 4096 blocks of
50,257 x 50,257, is never formed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import gnjax

_WORDS, _WIDTH, _TOKENS, _SAMPLES, _HEADS = 50_257, 64, 1024, 4, 2


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


def main() -> None:
    """Print one line for XLA's own count and one for the process."""
    tied = "untied" not in sys.argv[1:]
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, _WORDS, (2, _SAMPLES, _TOKENS))
    model = Transformer(tied=tied, rngs=nnx.Rngs(0))
    op = gnjax.gauss_newton(
        model, x, y=y, loss="cross_entropy", side="parameters", batch_size=_SAMPLES
    )
    buffer = 4.0 * _SAMPLES * _TOKENS * _WORDS
    v = jnp.asarray(rng.standard_normal(op.shape[0]), jnp.float32)
    print(f"{op!r}\n  one buffer of the logits: {buffer / 1e9:.3f} GB")
    product = jax.jit(lambda op, v: op.mv(v)).lower(op, v).compile()
    analysis = product.memory_analysis()
    print(f"  XLA's temporary memory: {analysis.temp_size_in_bytes / buffer:.2f} buffers")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before, start = _status("VmRSS"), time.perf_counter()
    product(op, v).block_until_ready()
    seconds, peak = time.perf_counter() - start, _status("VmHWM") - before
    print(f"  the process grew by {peak / buffer:.2f} buffers at its peak, in {seconds:.1f} s")


if __name__ == "__main__":
    main()
