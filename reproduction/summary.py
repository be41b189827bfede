"""The summary in the form of the ML Reproducibility Challenge, with tallies from the records."""

from __future__ import annotations

from string import Template

SUMMARY = Template("""# Reproducibility summary

[All findings](../FINDINGS.md)

## Scope of reproducibility

Paper A, *Theoretical characterisation of the Gauss-Newton conditioning in Neural Networks*,
bounds the condition number kappa of the Gauss-Newton matrix of linear, residual and Leaky-ReLU
networks, and says how kappa depends on depth, width, skips, normalisation and pruning (Figures 1
to 23, Lemmas 1 to 7, Eqs 1 to 28). Paper B, *How the Hessian-Spectrum of Linear Networks Depends
on Data*, derives the spectrum of balanced linear networks at a minimum, and from it how the
sharpness depends on the labels (Figures 1 to 4, Eqs 1 to 16). Every sentence that either prints
about a figure or a number was turned into code that judges a saved table, and [every lemma and
numbered equation](theory.md) has a status, its code and its test.

## Methodology

No code of the authors was used. Networks, training, data and figures are written again from the
two texts. Kappa comes from gnjax, with an interval that encloses it and a certificate that says
how surely; where the smallest eigenvalue is not resolved, the answer says so. A sentence has one
verdict, made of those of its readings (initial weights, losses, data, kernels), where the text
leaves a choice open. Effects are intervals of 95% over the seeds, and nothing is decided where
they contain "no effect". A claim names the ratios of sizes that decide it (such as p/(k n), n/d,
batch/n); where a reduced size leaves the paper's by more than a factor of two, the sentence is
*not testable* and no failure of the paper.

## Results

$tallies

The printed trends of depth, width, skips, whitening, BatchNorm and the layers' products hold, and
so do the first bounds in every cell. Paper B's trace and its eigenvalues at balanced points hold
to rounding. What fails is in [the findings](../FINDINGS.md), with the numbers and the mechanism:
the printed range 6 to 12 of Figure 10 is met by no usual initialisation, kappa after training is
not more sensitive to the numerical rank that a user of `matrix_rank` gets (Figure 9), and Figure
8's trends turn on MNIST, whose frame of zero pixels bounds the smallest eigenvalue.
[Corrections](corrections.md) lists what is wrong as printed, what needs a condition that is not
stated, and what can be strengthened.

## What was easy

The linear networks at initialisation: kappa depends on the data through Sigma alone, so that
whitened data count through their rank, and the spectrum of 3,100 units and 3,072 inputs is that
of small Kronecker sums. The proofs can be followed line by line, and the settings of Appendix I
name optimisers, rates and batches.

## What was difficult

- Most legends and axes are only in the pictures: pruning rates, widths, epochs and kernel sizes
  are ours ([settings](settings.md)).
- The smallest non-zero eigenvalue after training lies below single precision. Which kappa a
  figure shows then depends on the rank that is assumed.
- Initial weights: Appendix G writes a variance of 1 / fan-in, PyTorch's default has twice that,
  and the text does not say which one Figures 10 and 11 have.
- Figure 8: Appendix B has a one-dimensional convolution, the caption two layers and classes. Four
  readings are computed.
- The labels of real data are not fitted exactly, which Eqs 12 to 14 of paper B assume.

## Computing

`make reproduce` takes 15 to 30 minutes on two cores and downloads nothing. The paper's profile
takes about eight hours of one core, two of them for the tanh network of B2; `reproduce` says so
before it begins. The pruned networks (Figures 1, 13 to 17) were run beside it, from one start
each and the feed-forward one from three, on a GPU and on CPUs. At the laptop's sizes pruning can
be judged at initialisation alone. `make reproduce PROFILE=paper` draws and judges in minutes what
is published, and `python -m reproduction.verdicts` computes the verdicts of every published table
in seconds.

## What we would ask the authors

1. Which initial weights do Figures 10 and 11 have, and over which outputs and samples is the loss
   of Figure 10 a mean?
2. Which numerical rank, in which precision, is marked in Figure 9, and how was kappa of Figures 1
   and 13 to 17 computed along training: with BatchNorm's running or batch statistics, and over
   pruned weights too?
3. Which network is behind Figure 8, and was MNIST padded or cropped?
4. Which pruning rates are in the legends of Figures 1 and 13 to 17, and after how many epochs
   does training end?
5. Paper B: is Eq 7 meant at every point, as its proof allows, and is the largest eigenvalue in Eq
   14 that of Y or of Y X^T, where the labels are not fitted?
""")
