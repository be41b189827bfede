"""Spectral density of a Hessian

The density from a few hundred products with the Hessian, beside the histogram of its eigenvalues.
The band is two standard errors over the probes.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import gnjax

gnjax.enable_x64()
model = gnjax.models.MLP((8, 32, 3), activation="tanh", key=jax.random.key(0))
x = jax.random.normal(jax.random.key(1), (50, 8))
y = jax.random.normal(jax.random.key(2), (50, 3))
hessian = gnjax.hessian(model, x, y)
density = gnjax.spectral_density(hessian, probes=10, steps=40)
points = np.linspace(-2, 4, 600)
curve = density.pdf(points, width=0.06)

figure, axes = plt.subplots()
values = gnjax.eigenvalues(hessian).values
axes.hist(values, 100, range=(-2, 4), density=True, color="0.8", label="all eigenvalues")
axes.plot(points, curve.value, label=f"density from {density.products} products")
band = 2 * curve.standard_error
axes.fill_between(points, curve.value - band, curve.value + band, alpha=0.3)
axes.set(yscale="log", ylim=(3e-3, 10), xlabel="eigenvalue", ylabel="density")
axes.legend()
