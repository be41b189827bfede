"""For each figure what the paper prints of its setting, what is used here, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """One setting of a figure. ``printed`` is empty where the paper is silent.

    Attributes:
      figure: the module of the figure, as in "fig02" or "b1"; several are separated by blanks.
      setting: what is set.
      printed: what the paper prints.
      ours: what the laptop's profile uses, and the paper's profile where it differs.
      why: the reason of a difference, or of the choice where the paper is silent.
    """

    figure: str
    setting: str
    printed: str
    ours: str
    why: str


_STANDS_FOR = "ships with the package; whitened, it counts through its rank alone"
_KAIMING = "the default of torch.nn.init.kaiming_normal_, which Appendix I.3 names"

SETTINGS = (
    Setting("fig01 fig13 fig14 fig15 fig16 fig17", "data", "CIFAR-10, n = 1000",
        "Fashion-MNIST, n = 64, 8 x 8 to 16 x 16; paper: n = 1000, CIFAR-10 where it is at hand, "
        "else Fashion-MNIST in a black frame of 32 x 32, in three equal channels; in Figure 17 in "
        "one, with 248 units for 100",
        "J J^T of 10,000 rows takes many hours; p/(k n) is kept (248 units do so where a pixel has "
        "one channel, and with three few filters of the first layer lose all weights), so that "
        "what is said of the start is of the paper, and on the laptop not what is said along "
        "training"),
    Setting("fig01 fig13 fig14 fig15 fig16 fig17", "pruning rates", "",
        "0, 0.2, 0.4, 0.6, 0.8, 0.9; ResNet32 has 0, 0.4, 0.8, 0.9", "legends are not in the text"),
    Setting("fig01 fig13 fig14 fig15 fig16 fig17", "steps", "batches of 64, the printed rates",
        "batches of 16 of 64 at the printed rates",
        "4 steps an epoch where the paper has 16: not testable along training"),
    Setting("fig01 fig13 fig14 fig15 fig16 fig17", "epochs", "",
        "120, the feed-forward network 900; paper: 200, with kappa after 0, 1, 4, 12, 35, 90, 120 "
        "and 200 of them", "the rate drops after 91 or 100"),
    Setting("fig02 fig03", "data", "whitened MNIST",
        "Fashion-MNIST of 20 x 20, k = 5; paper: MNIST",
        _STANDS_FOR + "; d/k and m/d are kept"),
    Setting("fig02 fig03", "widths m", "", "1 to 4 times d",
        "the text states m for 19 alone"),
    Setting("fig02", "factors c of m = c L", "small; sufficiently large",
        "255, 357 and 1530, 3060; paper: 100 to 700 and 1000 to 6000",
        "those with m > d from L = 2 on are judged (Lemma 2's condition)"),
    Setting("fig02 fig03 fig05 fig20 fig21 fig22", "variance of Kaiming's weights",
        "1 / fan-in in Appendix G, PyTorch's in Appendix I.3", "2 / fan-in", _KAIMING),
    Setting("fig05 fig20 fig21 fig22", "data", "whitened MNIST and CIFAR-10",
        "Fashion-MNIST of 20 x 20 and photograph patches; paper: full sizes",
        _STANDS_FOR + "; after whitening kappa depends on d, k and m"),
    Setting("fig06 fig23", "data", "whitened MNIST, n = 500",
        "Fashion-MNIST, n = 256, 20 x 20; paper: MNIST, n = 500",
        "n/d and d/k are kept; the images decide figure 23, so that only MNIST can test it"),
    Setting("fig06 fig23", "whitening", "", "on the full set, before drawing", "n < d"),
    Setting("fig06 fig23", "widths m", "", "25 to 2000; paper: 50 to 4000", "around n"),
    Setting("fig07", "data", "CIFAR-10, grey, d = 64, n = 1000", "Fashion-MNIST at 8 x 8, n = 1000",
        "ships with the package; crops of photographs are near-duplicates"),
    Setting("fig07", "widths m", "", "16 to 400; paper: to 2000", "around d = 64"),
    Setting("fig07", "statistics of BatchNorm", "",
        "those of all n samples, differentiated through",
        "with statistics held fixed is drawn beside it"),
    Setting("fig08", "network", "two linear convolutions, Appendix B",
        "four readings: Toeplitz entries or shared weights, convolution or dense head",
        "Eqs 15, 16 make every layer a convolution; the caption has classes"),
    Setting("fig08", "kernels and filters", "",
        "3 to 13, with a dense head to 23, of 28 x 28; 1 to 32 filters",
        "from small kernels to the largest that fits twice, or once under a dense head"),
    Setting("fig09 fig18", "data", "MNIST, n = 1000", "digits of 8 x 8, n = 95; paper: MNIST",
        "p/(k n) and n/d are kept; the rates make units dead on brighter images"),
    Setting("fig09", "numerical rank", "the computed matrix rank",
        "that of matrix_rank in single precision", "PyTorch computes in single precision"),
    Setting("fig09 fig18", "loss", "", "cross-entropy", "labels are classes"),
    Setting("fig10", "data", "CIFAR-10 at 3 x 8 x 8, n = 1000, whitened",
        "Fashion-MNIST at 14 x 14, n = 1000, whitened",
        _STANDS_FOR + ", the labels and the batches"),
    Setting("fig10", "scale of the loss", "MSE, rate 0.2", "the mean over outputs and samples",
        "that of torch.nn.MSELoss; the step depends on it"),
    Setting("fig10", "initial weights", "", "four: Kaiming with gain 1 and 2, PyTorch's, Xavier's",
        "one reading that holds is enough"),
    Setting("fig11 fig12", "data", "MNIST at d = 196, m = 300",
        "Fashion-MNIST at 14 x 14, m = 300", _STANDS_FOR),
    Setting("fig11", "gain", "", "1 and 2", "Appendix G has 1, PyTorch 2"),
    Setting("fig19", "data", "CIFAR-10, m = 3100",
        "Fashion-MNIST of 20 x 20, m = 404, k = 2; paper: photograph patches", "m/d is kept"),
    Setting("fig19", "covariances", "raw and whitened", "Sigma^t for t = 0, 1/4, 1/2, 3/4, 1",
        "'nearly proportional' is a slope, and two points are none"),
    Setting("b1 b2", "data", "MNIST, FashionMNIST, CIFAR-10, n = 5000",
        "Fashion-MNIST at 8 x 8, n = 500; paper: n = 5000", "n/d is kept"),
    Setting("b1 b2", "initial singular values", "a sequence that is given", "all 0.5",
        "a constant of 0.2 or less stops at the saddle, where the halving rule ends training"),
    Setting("b1 b2", "proportions", "", "0.1 to 1 in steps; the realised ones are drawn",
        "the printed rule lacks a ninth"),
    Setting("b1 b2", "Kaiming uniform", "standard in PyTorch", "uniform within 1 / sqrt(fan-in)",
        "nn.Linear's default; He's own gives a sharpness of 82 to 85 at any proportion"),
    Setting("b3", "data", "three data sets, n = 5000",
        "digits, Fashion-MNIST and patches of 14 x 14; paper: full size",
        "ships with the package"),
    Setting("b3 b4", "initial weights and alpha_max", "", "PyTorch's default, 0.1", "the standard"),
    Setting("b4", "data", "three data sets, n = 5000",
        "digits, Fashion-MNIST and patches of 14 x 14; paper: full size",
        "ships with the package"),
)  # fmt: skip
