"""Sentences of the papers that speak of a figure or a number and have no row, and why."""

from __future__ import annotations

WITHOUT_CLAIM: tuple[tuple[str, str, str, str], ...] = (
    (
        "A",
        "Section 2, of quadratic problems",
        "the best convergence is obtained for eta = 2 / (lambda_max + lambda_min)",
        "from textbooks; of quadratic problems alone",
    ),
    (
        "A",
        "Remark R1",
        "wide networks behave like linear models, so that G is close to the Hessian throughout",
        "of a limit of infinite width, cited from Lee et al.; near convergence has a row",
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
        "Section 4",
        "Tying both bounds together yields a bound on .. the overall loss Hessian in some setups",
        "no such bound is printed; by Weyl's inequality (Eq 12) there is one where lambda_min(G)"
        " exceeds the norm of H_F",
    ),
    (
        "A",
        "Section 4, of the pseudo-condition number",
        "gradient-based methods will effectively not steer into the GN null space",
        "true of every gradient, which is J^T r; weight decay and Adam's quotients leave the range",
    ),
    (
        "A",
        "Section 4.3",
        "a rigorous explanation for the popularity of residual networks",
        "an interpretation of Figure 5",
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
        "Appendix I.3, of Eq 8",
        "the ratio will go to 1 as beta grows",
        "a limit, true of every W (tests/papers/test_bounds.py::test_eq_8_goes_to_1_as_beta_grows)",
    ),
    (
        "A",
        "Section 7, limitations",
        "the bounds cannot distinguish random initializations and solutions after convergence",
        "says what the bounds are not made for; along training they are compared at Figure 10",
    ),
    (
        "A",
        "Appendices D and I",
        "hours of computing for each figure",
        "of the authors' machines",
    ),
    (
        "A",
        "Appendix I.4.1",
        "J J^T is k d x k d, and its eigenvalues take O(min(p, k d)^3)",
        "of linear networks and a full decomposition: with an activation J J^T is k n x k n",
    ),
    (
        "B",
        "Abstract",
        "predictions are considerably robust in most cases",
        "sums up Figure 2, whose panels have a row each",
    ),
    (
        "B",
        "Section 2.2",
        "exactness does not work out for the spectral norm",
        "of Eq 6's form; it is an equality for balanced weights (tests/papers/test_balanced.py::"
        "test_eq_6_is_an_equality_for_balanced_weights_and_not_in_general)",
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
        "Section 3",
        "weight decay and training at the edge of stability balance the layers",
        "cited from other papers; what training at the edge ends at is panel d of Figure B2",
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
)
