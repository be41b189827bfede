"""The spectrum of the NTK over the width

As a network gets wider, its NTK at initialisation converges to a limit. Five draws at each width,
each divided by its trace.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import gnjax

gnjax.enable_x64()
x = jax.random.normal(jax.random.key(0), (30, 4))

figure, axes = plt.subplots()
for index, width in enumerate((8, 64, 512)):
    draws = []
    for seed in range(5):
        model = gnjax.models.MLP((4, width, 1), activation="tanh", key=jax.random.key(seed))
        values = gnjax.eigenvalues(gnjax.ntk(model, x)).values
        draws.append(values / values.sum())
    places = np.arange(1, len(x) + 1)
    axes.fill_between(places, np.min(draws, 0), np.max(draws, 0), color=f"C{index}", alpha=0.3)
    axes.plot(places, np.median(draws, 0), color=f"C{index}", label=f"width {width}")
axes.set(yscale="log", xlabel="place", ylabel="eigenvalue / trace")
axes.legend()
