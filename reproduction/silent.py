"""Sentences of the papers that speak of a figure or a number and have no row, and why."""

from __future__ import annotations

WITHOUT_CLAIM: tuple[tuple[str, str, str, str], ...] = (
    (
        "A",
        "Remark R1",
        "close to convergence the contribution of H_F will be negligible",
        "no figure shows it; the eigenvalues of H - G are those of the residual"
        " (tests/papers/test_balanced.py::test_no_eigenvalue_is_further_from_eq_15_than_the_gap)",
    ),
    (
        "A",
        "Section 2, behind Eq 3",
        "One can clearly see the effect of mu(0) in the bound",
        "of the bound's formula (Eqs 3, 28); the Gauss-Newton matrices of all figures have flat"
        " directions, where mu = 0 and the bound says nothing",
    ),
    (
        "A",
        "Section 4.1, behind Eq 6",
        "a more naive bound where we take the maximum is too loose",
        "the sentences about Figure 3 say it of any depth",
    ),
    (
        "A",
        "Section 4.3, of Eq 8",
        "the second upper bound for residual networks is smaller than for linear networks",
        "under an assumption on singular vectors that no drawn network meets; the first bound is"
        " compared at Figure 5",
    ),
    (
        "A",
        "Section 5, of Figure 6",
        "We further empirically validate the tightness of the upper bounds",
        "says that it was looked at; the sentence on how the bound tightens has a row",
    ),
    (
        "A",
        "Appendix G, behind Eq 21",
        "kappa of wide networks is near to kappa(Sigma)",
        "of the formula, which needs m far above d; no figure has such widths (Eqs 20, 21)",
    ),
    (
        "A",
        "Appendix E",
        "this behavior is also consistent for different widths, inputs and outputs",
        "not tested: it needs more networks than Figure 11 has",
    ),
    (
        "A",
        "Appendix I.3, of Eq 8",
        "the ratio will go to 1 as beta grows",
        "a limit, true of every W (tests/papers/test_bounds.py::test_eq_8_goes_to_1_as_beta_grows)",
    ),
    (
        "A",
        "Appendices D and I",
        "hours of computing for each figure",
        "of the authors' machines",
    ),
    (
        "B",
        "Section 3",
        "initially balanced layers remain balanced under gradient flow",
        "cited from other papers; gradient descent drifts by the order of its step (tests/papers/"
        "test_balanced.py::test_balanced_layers_remain_balanced_to_the_order_of_the_step)",
    ),
    (
        "B",
        "Section 3, behind Eq 9",
        "the bulk of eigenvalues of the Hessian are near-zero",
        "cited from other papers; how many are zero is Eq 9's count",
    ),
    (
        "B",
        "Section 3, of Eq 10",
        "This contradicts the conclusion that the maximum eigenvalue is the maximum norm",
        "of Eq 10's formula, a sum of both norms (tests/papers/test_balanced.py::"
        "test_the_sharpness_of_two_layers_is_a_sum_and_no_maximum_of_norms)",
    ),
    (
        "B",
        "Section 4, behind Eq 14",
        "the sharpness is independent of the dataset size n",
        "a correction with its test; no figure has several n",
    ),
    (
        "B",
        "Section 4",
        "in disagreement with Cohen et al. [3, Caveat 2], lower peak-sharpness on simpler datasets",
        "not tested: it is about the largest sharpness along training, which no figure shows",
    ),
    (
        "B",
        "Section 4",
        "peak-sharpness is strongly influenced by the input-geometry",
        "not tested as peak; the final sharpness on raw inputs is Figure 2a's",
    ),
)
