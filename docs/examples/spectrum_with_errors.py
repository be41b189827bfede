"""A spectrum with its error bars

The eigenvalues of the NTK of a small network, each with its error. Computed from the matrix, the
small eigenvalues are smaller than their rounding errors. As squares of singular values of the
Jacobian they are accurate.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import gnjax

gnjax.enable_x64()
model = gnjax.models.MLP((3, 24, 2), activation="tanh", key=jax.random.key(0))
x = 1e-3 * jax.random.normal(jax.random.key(1), (40, 3))  # small inputs: the net is nearly linear
kernel = gnjax.ntk(model, x)
spectra = {
    "of the matrix": gnjax.eigenvalues(kernel.as_matrix()),
    "of the Jacobian": gnjax.eigenvalues(kernel),
}

figure, axes = plt.subplots()
for (name, spectrum), size in zip(spectra.items(), (6, 3), strict=True):
    places = np.arange(1, len(spectrum) + 1)
    line = axes.plot(
        places, np.maximum(spectrum.values, 0), "o", ms=size, label=f"eigenvalues {name}"
    )
    axes.plot(places, spectrum.errors, "--", color=line[0].get_color(), label="their errors")
axes.set(yscale="log", xlabel="place", ylabel="eigenvalue")
axes.legend(ncols=2)
