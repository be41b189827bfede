"""Condition number over depth, with the bounds of Lemma 2

Deep linear networks at initialisation: the certified condition number of the Gauss-Newton matrix,
and the two bounds that Lemma 2 gives from the singular values of the layers.
"""

import jax
import matplotlib.pyplot as plt

import gnjax

gnjax.enable_x64()
depths = range(2, 9)
kappas, bounds = [], []
for depth in depths:
    widths = (16, *[64] * (depth - 1), 4)
    weights = gnjax.initializers.chain(jax.random.key(0), widths, "kaiming_normal")
    kappas.append(gnjax.condition_number(gnjax.papers.linear_gauss_newton(weights)))
    bounds.append(gnjax.papers.bounds.linear(weights))

figure, axes = plt.subplots()
axes.plot(depths, [k.value for k in kappas], "o-", label="measured")
axes.fill_between(depths, *zip(*[k.interval for k in kappas], strict=True), alpha=0.3)
axes.plot(depths, [b.convex for b in bounds], "--", label="convex bound")
axes.plot(depths, [b.maximum for b in bounds], ":", label="maximum bound")
axes.set(yscale="log", xlabel="depth", ylabel="condition number")
axes.legend()
