"""Every lemma and numbered equation of both papers, with its code, its test and how it stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

HOLDS, WRONG, CONDITION, ASSUMED = (
    "holds",
    "wrong as printed",
    "needs a condition",
    "a definition or an assumption",
)


@dataclass(frozen=True)
class Statement:
    """One numbered statement, or several that one test is about.

    Attributes:
      paper: "A" or "B".
      what: its numbers, as in "Lemma 1, Eq 6" or "Eqs 23, 24".
      says: what it states, in a few words.
      status: whether it holds.
      code: the public name that computes it, below ``gnjax``; a module where several do.
      test: the test by another road, as file::test.
    """

    paper: str
    what: str
    says: str
    status: str
    code: str
    test: str

    @property
    def numbers(self) -> Iterator[tuple[str, int]]:
        """Each number that it names, as ("Eq", 6) or ("Lemma", 1)."""
        kind = ""
        for word in self.what.replace(",", " ").split():
            if word.isdecimal():
                yield kind, int(word)
            else:
                kind = word.removesuffix("s")


_BOUNDS = "tests/papers/test_bounds.py"
_BALANCED = "tests/papers/test_balanced.py"
_LEAKY = "tests/papers/closed_form/test_leaky_relu.py"
_DESCENT = "tests/papers/test_descent_bound.py"
_NETWORK = "tests/operators/test_network.py"
_CNN = "tests/papers/closed_form/test_convolution.py"


def _a(what: str, says: str, status: str, code: str, test: str) -> Statement:
    return Statement("A", what, says, status, code, test)


def _b(what: str, says: str, status: str, code: str, test: str) -> Statement:
    return Statement("B", what, says, status, code, test)


THEORY = (
    _a(
        "Eq 1",
        "G is the mean of J^T J over the samples; the Hessian is G plus H_F",
        ASSUMED,
        "gauss_newton",
        f"{_NETWORK}::test_hessian_splits_into_gauss_newton_and_functional",
    ),
    _a(
        "Eqs 2, 27",
        "a step of gradient descent shrinks the distance by 1 - eta mu",
        HOLDS,
        "papers.bounds.descent",
        f"{_DESCENT}::test_eq_2_holds_for_strongly_convex_quadratics",
    ),
    _a(
        "Eqs 3, 28",
        "the product over the steps, with local constants",
        CONDITION,
        "papers.bounds.descent",
        f"{_DESCENT}::test_eq_3_fails_with_constants_at_the_iterate_alone",
    ),
    _a(
        "Eqs 4, 5",
        "G of a linear network as a sum of Kronecker products",
        HOLDS,
        "papers.linear_gauss_newton",
        f"{_NETWORK}::test_linear_network_equals_its_closed_form",
    ),
    _a(
        "Lemma 1, Eq 6",
        "the bound for one hidden layer",
        HOLDS,
        "papers.bounds.linear",
        f"{_BOUNDS}::test_lemma_1_is_its_formula",
    ),
    _a(
        "Lemma 2, Eq 7",
        "the bounds for any depth, with skips of any strength",
        HOLDS,
        "papers.bounds.linear",
        f"{_BOUNDS}::test_kappa_is_below_convex_is_below_maximum",
    ),
    _a(
        "Eq 8",
        "the second bound with singular values moved by beta",
        CONDITION,
        "papers.bounds.linear",
        f"{_BOUNDS}::test_singular_values_do_not_just_move_by_beta",
    ),
    _a(
        "Eqs 9, 10, Lemma 3",
        "J and J J^T of one hidden layer of Leaky ReLU, unit by unit",
        HOLDS,
        "papers.leaky_relu_gauss_newton",
        f"{_LEAKY}::test_three_roads_to_eq_10",
    ),
    _a(
        "Lemma 4, Eq 11",
        "the first bound for Leaky ReLU",
        HOLDS,
        "papers.bounds.leaky_relu",
        f"{_LEAKY}::test_kappa_is_below_eq_11",
    ),
    _a(
        "Lemma 5, Eq 12",
        "kappa of a sum between two quotients of sums of eigenvalues (Weyl)",
        HOLDS,
        "papers.bounds.weyl",
        f"{_BOUNDS}::test_weyl_takes_the_extremes_over_all_j",
    ),
    _a(
        "Eqs 13, 14",
        "the extreme eigenvalues of a Kronecker product are products",
        HOLDS,
        "papers.bounds.linear",
        f"{_BOUNDS}::test_eqs_13_and_14_are_the_ends_of_kronecker_products",
    ),
    _a(
        "Eqs 15, 16",
        "a linear CNN by its kernels and by Toeplitz matrices",
        HOLDS,
        "papers.toeplitz",
        f"{_CNN}::test_toeplitz_as_printed_in_appendix_b",
    ),
    _a(
        "Eq 17",
        "H_F of one hidden layer has plus and minus the singular values of Omega",
        HOLDS,
        "papers.bounds.functional_hessian",
        f"{_BOUNDS}::test_functional_hessian_bound",
    ),
    _a(
        "Eq 18",
        "kappa(H_F) <= kappa(W V - Z) kappa(Sigma)",
        CONDITION,
        "papers.bounds.functional_hessian",
        f"{_BOUNDS}::test_functional_hessian_bound_is_silent_where_it_fails",
    ),
    _a(
        "Lemma 6, Eq 19",
        "the singular values of a Gaussian matrix",
        HOLDS,
        "papers.bounds.gaussian_singular_values",
        f"{_BOUNDS}::test_lemma_6_covers_the_singular_values_of_gaussian_matrices",
    ),
    _a(
        "Lemma 7",
        "the bound of Lemma 1 at Gaussian weights, with its probability",
        CONDITION,
        "papers.bounds.gaussian_init",
        f"{_BOUNDS}::test_gaussian_init_does_not_square_a_negative_number",
    ),
    _a(
        "Eqs 20, 21",
        "Lemma 7 at Kaiming's variances comes near to kappa(Sigma) in wide networks",
        HOLDS,
        "papers.bounds.wide_init",
        f"{_BOUNDS}::test_eq_21_is_what_eq_20_comes_near_to_in_wide_networks",
    ),
    _a(
        "Eq 22",
        "its limit as all sizes grow",
        HOLDS,
        "papers.bounds.asymptotic",
        f"{_BOUNDS}::test_asymptotic_is_what_large_networks_approach",
    ),
    _a(
        "Eqs 23, 24",
        "lambda_min of the first term of Eq 10 by alpha^2",
        HOLDS,
        "papers.bounds.leaky_relu",
        f"{_LEAKY}::test_eq_11_is_its_formula",
    ),
    _a(
        "Eq 25",
        "lambda_min of the second term by alpha^2",
        WRONG,
        "papers.bounds.leaky_relu",
        f"{_LEAKY}::test_eq_25_fails_and_the_estimate_with_it",
    ),
    _a(
        "Eq 26",
        "lambda_max of the second term by that of the linear network",
        WRONG,
        "papers.bounds.leaky_relu",
        f"{_LEAKY}::test_eq_26_fails",
    ),
    _b(
        "Eqs 1, 2",
        "the network and its loss",
        ASSUMED,
        "papers.training",
        "tests/papers/training/test_linear_descent.py::test_second_moments_are_enough",
    ),
    _b(
        "Eqs 3, 5",
        "J^T J / n and J J^T / n have the same non-zero eigenvalues",
        HOLDS,
        "ntk",
        f"{_NETWORK}::test_ntk_is_the_gram_of_the_jacobian",
    ),
    _b(
        "Eq 4",
        "the Jacobian of a layer as a Kronecker product",
        WRONG,
        "papers.balanced",
        f"{_BALANCED}::test_eq_4_holds_with_partial_products_that_leave_the_data_out",
    ),
    _b(
        "Eq 6",
        "a bound on the sharpness",
        HOLDS,
        "papers.balanced.bound",
        f"{_BALANCED}::test_eq_6_bounds_the_sharpness_on_raw_inputs",
    ),
    _b(
        "Eq 7",
        "the trace; it is that of the full Hessian",
        HOLDS,
        "papers.balanced.trace",
        f"{_BALANCED}::test_eq_7_is_the_trace_of_the_full_hessian_anywhere_on_raw_inputs",
    ),
    _b(
        "Eqs 8, 9",
        "J J^T / n of a balanced network and its eigenvalues; the count behind them is wrong",
        HOLDS,
        "papers.balanced.eigenvalues",
        f"{_BALANCED}::test_eq_9_is_the_spectrum_of_the_gauss_newton_matrix_and_of_the_hessian",
    ),
    _b(
        "Eqs 10, 11",
        "sharpness and trace of two layers; the sharpness is a sum and no maximum of norms",
        HOLDS,
        "papers.balanced.shallow",
        f"{_BALANCED}::test_eq_10_and_11_follow_from_eq_15_with_its_zeros",
    ),
    _b(
        "Eq 12",
        "the product of the layers at a minimum",
        HOLDS,
        "papers.balanced.minimiser",
        f"{_BALANCED}::test_eqs_12_to_14_at_a_balanced_minimum_of_labels_that_cannot_be_fitted",
    ),
    _b(
        "Eqs 13, 14",
        "singular values and sharpness by those of the labels",
        CONDITION,
        "papers.balanced.printed_sharpness",
        f"{_BALANCED}::test_eq_13_and_14_as_printed_hold_for_labels_that_are_fitted",
    ),
    _b(
        "Eq 15",
        "the eigenvalues of two layers; the ranges of i and j are wrong",
        WRONG,
        "papers.balanced.shallow",
        f"{_BALANCED}::test_the_printed_ranges_of_eq_15_contradict_eq_11",
    ),
    _b(
        "Eq 16",
        "their eigenvectors",
        HOLDS,
        "papers.balanced.shallow",
        f"{_BALANCED}::test_eq_15_and_16_for_two_layers_of_any_widths",
    ),
)
