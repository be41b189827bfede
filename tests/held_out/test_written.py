"""A few models of the campaign as people write them, always the same; `make explore` has more."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from tests.held_out import written
from tests.held_out.verdicts import ANSWER, REFUSED, Row, broken
from tests.held_out.written_optimisers import OPTIMISERS, trained
from tests.references import jacobian

SEED = 3


_SLOW = ("scan", "transformer", "narrow", "towers")


@pytest.mark.parametrize(
    "name", ["grid", *(pytest.param(n, marks=pytest.mark.slow) for n in _SLOW)]
)
def test_models_as_people_write_them_are_answered(name: str) -> None:
    rows = written.written(SEED, 1, names=(name,))
    assert sum(row.inside is True for row in rows) > len(rows) / 2
    assert broken(rows) == []


_NO_METRIC = {"lion", "lamb", "lars", "muon", "galore"}
_OF_MEANS = {"adan", "MultiSteps"}  # P depends on what the state keeps of gradients to first order


_OTHERS = OPTIMISERS.keys() - {"adamw", "muon"}


@pytest.mark.parametrize(
    "name", ["adamw", "muon", *(pytest.param(n, marks=pytest.mark.slow) for n in sorted(_OTHERS))]
)
def test_optimisers_as_people_write_them_are_answered_or_refused(name: str) -> None:
    """Beside a metric from differences of their own updates, which also say where there is none."""

    def apply(p: dict[str, jnp.ndarray], x: jnp.ndarray) -> jnp.ndarray:
        return jnp.tanh(x @ p["w"] + p["b"][None]) @ p["v"]

    rng = np.random.default_rng(SEED)
    params = {"b": rng.standard_normal(5), "v": rng.standard_normal((5, 2))}
    params = {k: jnp.asarray(v) for k, v in {**params, "w": rng.standard_normal((3, 5))}.items()}
    x = rng.standard_normal((12, 3))
    made = trained(rng, name, params)
    assert (made.metric is None) == (name in _NO_METRIC)
    factor = np.asarray(jacobian(apply, params, x)).reshape(24, -1).T
    matrices = {"ntk": (lambda: gnjax.ntk((apply, params), x, side="parameters"), factor)}
    rows = list(written.preconditioned_by(made, Row("written", name, "", "", ""), matrices, {}))
    assert broken(rows) == []
    refused = name in _NO_METRIC | _OF_MEANS
    assert [row.outcome for row in rows] == ([REFUSED] if refused else 3 * [ANSWER])
