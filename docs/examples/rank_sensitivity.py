"""What kappa depends on: the assumed rank

Images have many directions with almost no variance. The figure shows kappa, with its interval, at
every rank that one might assume. Where eigenvalues are below their error, the interval has no upper
end.
"""

import matplotlib.pyplot as plt

import gnjax

gnjax.enable_x64()
images = gnjax.data.load("fashion_mnist_5000", samples=60)
small = gnjax.data.downsample(images.inputs, images.shape, (14, 14))
spectrum = gnjax.eigenvalues(gnjax.data.covariance(small))  # 196 x 196, of rank 60 at most
sensitivity = gnjax.papers.rank_sensitivity(spectrum)

figure, axes = plt.subplots()
axes.plot(sensitivity.ranks, sensitivity.kappa, label="kappa, or a lower bound of it")
axes.axvline(
    sensitivity.largest_gap,
    color="grey",
    lw=0.8,
    ls="--",
    label=f"largest gap: {sensitivity.largest_gap}",
)
resolved = sensitivity.ranks <= sensitivity.floor_rank
axes.fill_between(
    sensitivity.ranks[resolved], sensitivity.low[resolved], sensitivity.high[resolved], alpha=0.3
)
axes.axvspan(
    sensitivity.floor_rank, len(spectrum), color="grey", alpha=0.12, label="below the floor"
)
axes.set(yscale="log", xlabel="assumed rank", ylabel="condition number")
axes.legend()
