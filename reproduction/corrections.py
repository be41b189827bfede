"""What the papers print that does not hold as printed or says less than is true, and the tests.

A is "Theoretical characterisation of the Gauss-Newton conditioning in neural networks", B the
paper on the Hessian spectrum of linear networks and the labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WRONG, CONDITION, STRONGER = "wrong", "condition", "stronger"
KINDS: Mapping[str, str] = {
    WRONG: "Wrong as printed",
    CONDITION: "Needs a condition that the paper does not state",
    STRONGER: "Can be strengthened",
}


@dataclass(frozen=True)
class Correction:
    """A printed statement, what holds instead, and the test that shows it, as file::test."""

    kind: str
    paper: str
    where: str
    printed: str
    corrected: str
    test: str


_BOUNDS = "tests/papers/test_bounds.py"
_BALANCED = "tests/papers/test_balanced.py"
_LEAKY = "tests/papers/closed_form/test_leaky_relu.py"
_DESCENT = "tests/papers/test_descent_bound.py"
_CNN = "tests/papers/closed_form/test_convolution.py"

CORRECTIONS = (
    Correction(
        WRONG,
        "A",
        "Section 2, before Eq 2",
        "L is called the Lipschitz constant and mu the smoothness constant",
        "L is the smoothness constant, of the gradient, and mu the constant of strong convexity;"
        " with them Eq 2 holds",
        f"{_DESCENT}::test_eq_2_holds_for_strongly_convex_quadratics",
    ),
    Correction(
        WRONG,
        "A",
        "Section 4.3, before Eq 8",
        "the singular values of W + beta I are those of W plus beta",
        "true only where the left and right singular vectors of W coincide; nothing relies on it",
        f"{_BOUNDS}::test_singular_values_do_not_just_move_by_beta",
    ),
    Correction(
        WRONG,
        "A",
        "Section 4.3, before Eq 8",
        "singular vectors of neighbouring layers coincide if the initial weights are near 0",
        "singular vectors do not change with the scale of the weights: small initial weights align"
        " the layers while they are trained, as Saxe et al. show, and not at initialisation",
        f"{_BOUNDS}::test_small_initial_weights_do_not_align_the_layers",
    ),
    Correction(
        WRONG,
        "A",
        "Section 5, before Eq 9",
        "sigma(z) = sigma'(z) z includes all piece-wise linear activations",
        "only those whose pieces are straight lines through 0, as ReLU and Leaky ReLU; for hard"
        " tanh, which is piece-wise linear, Eq 10 is not J J^T",
        f"{_LEAKY}::test_eq_10_is_not_that_of_every_piecewise_linear_activation",
    ),
    Correction(
        WRONG,
        "A",
        "Appendix F, before Eq 18",
        "the norm of the inverse of H_F is sigma_min of the residual matrix",
        "its reciprocal is: 1 / |H_F^-1| = sigma_min, on the range of H_F; Eq 18 itself holds",
        f"{_BOUNDS}::test_the_smallest_eigenvalue_of_h_f_is_sigma_min_of_omega",
    ),
    Correction(
        WRONG,
        "A",
        "Eq 25",
        "lambda_min(Gamma) is at least the slope squared times that of the linear network",
        "fails, as the slopes differ from unit to unit: alpha = 1/2, X = I, V = [[-2, 1/2],"
        " [1, -1]] gives 0 against 0.096; Eq 11 is the bound, the second one an estimate",
        f"{_LEAKY}::test_eq_25_fails_and_the_estimate_with_it",
    ),
    Correction(
        WRONG,
        "A",
        "Eq 26",
        "lambda_max(Gamma) is at most that of the linear network",
        "fails: alpha = 0, X = I, V = [[1, 1], [1, -1]] gives 2.618 > 2, and so do a few random"
        " draws in a hundred",
        f"{_LEAKY}::test_eq_26_fails",
    ),
    Correction(
        WRONG,
        "B",
        "Eqs 4, 5, 8",
        "P_l contains the data X",
        "P_l = W_{l-1} .. W_1 without X, which the text multiplies in twice",
        f"{_BALANCED}::test_eq_4_holds_with_partial_products_that_leave_the_data_out",
    ),
    Correction(
        WRONG,
        "B",
        "Section 3, behind Assumption 3",
        "the right singular vectors of a layer are aligned with the left ones of the next layer",
        "the left ones of a layer are those on the right of the next, as W_l W_l^T ="
        " W_{l+1}^T W_{l+1} says, and step 3 of Appendix C",
        f"{_BALANCED}::test_left_singular_vectors_of_a_layer_are_the_right_ones_of_the_next",
    ),
    Correction(
        WRONG,
        "B",
        "Section 3, behind Eq 9",
        "at most (min d)^2 eigenvalues are not zero; the second branch of 9b has (L - 1)",
        "all d_0 input and d_L output directions count, r (d_0 + d_L - r) of them non-zero; the"
        " second branch is L sigma^(2(L-1))",
        f"{_BALANCED}::test_the_paper_counts_only_r_squared_of_them",
    ),
    Correction(
        WRONG,
        "B",
        "Appendix B, Eq 15",
        "the ranges of i and j, and at most min(d_0, d_1) min(d_1, d_2) non-zero eigenvalues",
        "all input and output directions, singular values padded with zeros; the printed ranges"
        " contradict Eq 11",
        f"{_BALANCED}::test_the_printed_ranges_of_eq_15_contradict_eq_11",
    ),
    Correction(
        WRONG,
        "B",
        "Appendix C, sampling balanced weights, step 1",
        "the right singular vectors of every layer are sampled",
        "the left ones are: step 3 sets the right ones",
        f"{_BALANCED}::test_the_three_steps_give_balanced_weights_of_any_widths",
    ),
    Correction(
        WRONG,
        "B",
        "Appendix C, subsampling",
        "floor((1 - alpha_max) n) samples from each class but the first",
        "a ninth of that from each; the realised proportion is on the axis",
        "tests/data/test_transforms.py::test_class_imbalance",
    ),
    Correction(
        CONDITION,
        "A",
        "Eqs 3, 28",
        "local constants mu(k) and L(k) in place of the global ones",
        "they have to hold on the segment from theta_k to the minimum, not at theta_k alone:"
        " cosh theta with the step 1 / L(0) does not reach its minimum in one step",
        f"{_DESCENT}::test_eq_3_fails_with_constants_at_the_iterate_alone",
    ),
    Correction(
        CONDITION,
        "A",
        "Lemma 4, Eq 11",
        "sigma_min(X) and sigma_min(W)",
        "the smallest of n and of k singular values, 0 where n > d or k > m: with the only singular"
        " value of X = (1, -1), V = (1, -1)^T, W = (1, 1) and alpha = 0.9 the bound would be 2.3"
        " where kappa is 361",
        f"{_LEAKY}::test_eq_11_with_the_singular_values_of_a_wide_x_is_no_bound",
    ),
    Correction(
        CONDITION,
        "A",
        "Section 4.3 and Appendix B",
        "with Toeplitz matrices the same analysis applies to convolutional layers",
        "where the entries of the Toeplitz matrices are the parameters; for the kernels themselves,"
        " whose entries they share, kappa can exceed Lemma 2's bound ninefold",
        f"{_CNN}::test_lemma_2_with_toeplitz_matrices_is_no_bound_for_shared_weights",
    ),
    Correction(
        CONDITION,
        "A",
        "Lemma 7",
        "m >= max(d, k)",
        "also sqrt(m) >= sqrt(d) + t and sqrt(k) + t: a negative difference, squared, bounds no"
        " singular value from below; it counts as 0",
        f"{_BOUNDS}::test_gaussian_init_does_not_square_a_negative_number",
    ),
    Correction(
        CONDITION,
        "A",
        "Eq 18",
        "kappa of H_F is at most kappa(W V - Z) kappa(Sigma), pseudo-condition numbers",
        "Sigma has to be non-singular: with R = diag(1, 1, 0) and the projector on (1, 0, 0) and"
        " (0, e, 1) both factors are 1 and kappa is about 1 / e",
        f"{_BOUNDS}::test_functional_hessian_bound_is_silent_where_it_fails",
    ),
    Correction(
        CONDITION,
        "B",
        "Eqs 13, 14 and Figure 1c",
        "the sharpness follows from sigma_max(Y) / sqrt(n)",
        "only for labels that are fitted exactly, which real ones with n > d are not; at any global"
        " minimum of whitened data it is L sigma_x^2 [sigma_max(Y X^T) / (n sigma_x^2)]^(2-2/L),"
        " which the printed form exceeds",
        f"{_BALANCED}::test_the_printed_prediction_is_above_the_projected_one",
    ),
    Correction(
        CONDITION,
        "B",
        "Section 4, behind Eq 14",
        "the sharpness at a balanced solution is independent of the dataset size n",
        "for labels that are fitted exactly; on real data it depends on n through"
        " sigma_max(Y X^T) / n",
        f"{_BALANCED}::test_sharpness_is_not_independent_of_n_on_real_data",
    ),
    Correction(
        CONDITION,
        "B",
        "Appendix C, data whitening",
        "X = sqrt(n) sigma_x Q^T from a thin QR",
        "X' has to have full rank, or directions outside of the data come in: the SVD without its"
        " null directions",
        "tests/data/test_transforms.py::test_orthogonalise",
    ),
    Correction(
        STRONGER,
        "B",
        "Eq 7",
        "the trace of the Gauss-Newton matrix, for whitened inputs",
        "the trace of the full Hessian at every point, also for raw inputs with C = X X^T / n",
        f"{_BALANCED}::test_eq_7_is_the_trace_of_the_full_hessian_anywhere_on_raw_inputs",
    ),
    Correction(
        STRONGER,
        "B",
        "Eq 12",
        "W_L .. W_1 = Y X^T / (n sigma_x^2) where the loss is zero",
        "at every global minimum of whitened data, whatever its loss, and there H = G",
        f"{_BALANCED}::test_eqs_12_to_14_at_a_balanced_minimum_of_labels_that_cannot_be_fitted",
    ),
    Correction(
        STRONGER,
        "B",
        "Eq 14",
        "the sharpness of the balanced minimum",
        "it is the smallest sharpness over all global minima, balanced or not",
        f"{_BALANCED}::test_no_global_minimum_is_flatter_than_the_balanced_one",
    ),
    Correction(
        STRONGER,
        "B",
        "Figure 1b",
        "the effect of the labels is amplified by large depths",
        "the sharpness itself grows with depth exactly for L > ln(sigma_x^2 / alpha)",
        f"{_BALANCED}::test_sharpness_grows_with_depth_only_above_the_line",
    ),
)
