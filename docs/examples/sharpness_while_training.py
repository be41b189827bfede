"""The largest eigenvalues of the Hessian during training

Under gradient descent with a constant rate the largest eigenvalue, the sharpness, rises above
2 / rate, falls, and rises again (the edge of stability: Cohen et al., 2021).
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import gnjax

gnjax.enable_x64()
rate = 0.3
apply, params = gnjax.functional(
    gnjax.models.MLP((4, 32, 2), activation="tanh", key=jax.random.key(0))
)
x = jax.random.normal(jax.random.key(1), (20, 4))
y = jax.random.normal(jax.random.key(2), (20, 2))


@jax.jit
def step(params):
    def loss(p):
        return ((apply(p, x) - y) ** 2).sum() / (2 * len(x))

    return jax.tree.map(lambda p, g: p - rate * g, params, jax.grad(loss)(params))


epochs, top = [], []
for epoch in range(401):
    if epoch % 20 == 0:
        hessian = gnjax.hessian((apply, params), x, y)
        epochs.append(epoch)
        top.append(gnjax.eigenvalues(hessian, k=3, which="largest").values)
    params = step(params)

figure, axes = plt.subplots()
axes.plot(epochs, np.array(top), "o-", ms=3, label=["largest", "second", "third"])
axes.axhline(2 / rate, color="black", lw=0.8, ls="--", label="2 / rate")
axes.set(xlabel="step", ylabel="eigenvalue of the Hessian")
axes.legend()
