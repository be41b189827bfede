"""A small part of the held-out trials, always with the same draws; ``make explore`` has new ones.

What must hold is :func:`tests.held_out.verdicts.broken`: no proved or measured answer beside the
truth, no failure, and no more probable ones than are stated.
"""

from __future__ import annotations

import pytest

from tests.held_out import campaigns, inverses, preconditioned, preconditioners, scales, unequal
from tests.held_out.verdicts import broken

pytestmark = pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")

SEED = 7

TRIALS = {
    "matrices": lambda: campaigns.matrices(SEED, 168, sizes=(1, 3, 8, 20)),
    "factors": lambda: campaigns.factors(SEED, 60, shapes=((3, 8), (8, 3), (12, 12))),
    "kroneckers": lambda: campaigns.kroneckers(
        SEED, 40, shapes=((2, 2, 3),), sizes=((4, 6, 3), (5, 3, 4, 3, 2))
    ),
    "large": lambda: campaigns.large_kroneckers(SEED, 4),
    "networks": lambda: campaigns.random_networks(
        SEED, 36, names=("dense tanh 3-4-2", "layer norm, fast variance"), samples=(4,)
    ),
    "inputs": lambda: campaigns.inputs_of_every_type(SEED, 12, name="dense tanh 3-4-2"),
    "scales": lambda: scales.scales(SEED, 64),
    "far networks": lambda: scales.far_networks(SEED, 6),
    "unequal": lambda: unequal.unequal(5, 8, names=("two heads",)),
    "chances": lambda: campaigns.chances(SEED, 200, sizes=(120,)),
    "preconditioned": lambda: preconditioned.factors(SEED, 20),
    "preconditioners": lambda: preconditioners.preconditioners(SEED, 16),
    "inverses": lambda: inverses.of_matrices(SEED, 28, sizes=(3, 8)),
    "inverses of factors": lambda: inverses.of_factors(SEED, 24, shapes=((3, 8), (8, 3))),
    "inverses of networks": lambda: inverses.of_networks(
        SEED, 9, names=("dense tanh 3-4-2",), samples=(4,)
    ),
    "estimates": lambda: inverses.estimates(SEED, 60),
    "raised chances": lambda: preconditioned.raised_chances(SEED, 100),
}


_SLOW = (
    "networks",
    "inputs",
    "matrices",
    "kroneckers",
    "scales",
    "far networks",
    "unequal",
    "inverses of networks",
)  # a minute together on a quiet machine


@pytest.mark.parametrize(
    "trial", [pytest.param(t, marks=pytest.mark.slow) if t in _SLOW else t for t in TRIALS]
)
def test_no_answer_lies_beside_the_truth(trial):
    rows = TRIALS[trial]()
    assert sum(row.inside is True for row in rows) > len(rows) / 2
    wrong = broken(rows)
    assert wrong == []
