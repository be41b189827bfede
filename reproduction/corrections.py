"""What the papers print that does not hold as printed, corrected, and the test that shows it.

A is "Theoretical characterisation of the Gauss-Newton conditioning in neural networks", B the
paper on the Hessian spectrum of linear networks and the labels.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Correction:
    """A printed statement, what holds instead, and the test that shows it, as file::test."""

    paper: str
    where: str
    printed: str
    corrected: str
    test: str


CORRECTIONS = (
    Correction(
        "A",
        "Eq 8",
        "the singular values of W + beta I are those of W plus beta",
        "true only where the left and right singular vectors of W coincide; nothing relies on it",
        "tests/papers/test_bounds.py::test_singular_values_do_not_just_move_by_beta",
    ),
    Correction(
        "A",
        "Eq 25",
        "lambda_min(Gamma) is at least the slope squared times that of the linear network",
        "fails, as the slopes differ from unit to unit: alpha = 1/2, X = I, V = [[-2, 1/2],"
        " [1, -1]] gives 0 against 0.096; Eq 11 is the bound, the second one an estimate",
        "tests/papers/closed_form/test_leaky_relu.py::test_eq_25_fails_and_the_estimate_with_it",
    ),
    Correction(
        "A",
        "Eq 26",
        "lambda_max(Gamma) is at most that of the linear network",
        "fails: alpha = 0, X = I, V = [[1, 1], [1, -1]] gives 2.618 > 2, and so do a few random"
        " draws in a hundred",
        "tests/papers/closed_form/test_leaky_relu.py::test_eq_26_fails",
    ),
    Correction(
        "A",
        "Lemma 2",
        "kappa(Sigma) of the data",
        "for data of deficient rank kappa(Sigma) on its range; where a hidden layer is too narrow"
        " the factors lose rank and nothing is claimed",
        "tests/papers/test_bounds.py::test_kappa_is_below_convex_is_below_maximum",
    ),
    Correction(
        "A",
        "Eq 18",
        "the condition number of H_F",
        "H_F is singular unless k = d: the pseudo-condition number is meant",
        "tests/papers/test_bounds.py::test_functional_hessian_bound_is_silent_where_it_fails",
    ),
    Correction(
        "B",
        "Eqs 4, 8",
        "P_l contains the data X",
        "P_l = W_{l-1} .. W_1 without X, which the text multiplies in twice",
        "tests/papers/test_balanced.py::test_eq_4_holds_with_partial_products_that_leave_the_data_out",
    ),
    Correction(
        "B",
        "Eq 7",
        "the trace of the Gauss-Newton matrix at a global minimum, for whitened inputs",
        "the trace of the full Hessian at every point, also for raw inputs with C = X X^T / n",
        "tests/papers/test_balanced.py::test_eq_7_is_the_trace_of_the_full_hessian_anywhere_on_raw_inputs",
    ),
    Correction(
        "B",
        "Eq 9",
        "r^2 non-zero eigenvalues; second branch of 9b with (L - 1)",
        "all d_0 input and d_L output directions count, r (d_0 + d_L - r) of them non-zero; the"
        " second branch is L sigma^(2(L-1))",
        "tests/papers/test_balanced.py::test_the_paper_counts_only_r_squared_of_them",
    ),
    Correction(
        "B",
        "Eqs 12-14",
        "the sharpness follows from sigma_max(Y) / sqrt(n)",
        "only for labels that are fitted exactly; at any global minimum of whitened data it is L"
        " sigma_x^2 [sigma_max(Y X^T) / (n sigma_x^2)]^(2-2/L), which the printed form exceeds",
        "tests/papers/test_balanced.py::test_the_printed_prediction_is_above_the_projected_one",
    ),
    Correction(
        "B",
        "Eq 14",
        "the sharpness of the balanced minimum",
        "it is the smallest sharpness over all global minima, balanced or not",
        "tests/papers/test_balanced.py::test_no_global_minimum_is_flatter_than_the_balanced_one",
    ),
    Correction(
        "B",
        "Eq 15",
        "the ranges of i and j",
        "all input and output directions, singular values padded with zeros; the printed ranges"
        " contradict Eq 11",
        "tests/papers/test_balanced.py::test_the_printed_ranges_of_eq_15_contradict_eq_11",
    ),
    Correction(
        "B",
        "Section on the labels",
        "the sharpness does not depend on n",
        "it does on real data, through sigma_max(Y X^T) / n",
        "tests/papers/test_balanced.py::test_sharpness_is_not_independent_of_n_on_real_data",
    ),
    Correction(
        "B",
        "Figure 1b",
        "the sharpness grows with depth",
        "only for L > ln(sigma_x^2 / alpha)",
        "tests/papers/test_balanced.py::test_sharpness_grows_with_depth_only_above_the_line",
    ),
    Correction(
        "B",
        "Subsampling",
        "floor((1 - alpha_max) n) samples from each class but the first",
        "a ninth of that from each; the realised proportion is on the axis",
        "tests/data/test_transforms.py::test_class_imbalance",
    ),
    Correction(
        "B",
        "Whitening",
        "X = sqrt(n) sigma_x Q^T from a thin QR",
        "adds directions outside of the data where it is rank deficient: the SVD without its null"
        " directions",
        "tests/data/test_transforms.py::test_orthogonalise",
    ),
)
