"""GPTs over depth: a row by a dense Jacobian, claims that hold and fail, and the figure."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from pandas import DataFrame

import gnjax
from experiments import transformer_depth as experiment
from experiments.shared.language import pieces
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE
from tests import references
from tests.experiments.configs import records


def test_pieces_differ_and_are_followed_by_their_characters():
    text = gnjax.data.load_text(vocabulary=10)
    x, y = pieces(10, 40, 12, 0)
    assert len(np.unique(x, axis=0)) == 40
    joined = "".join(chr(97 + token) for token in text.tokens)
    for row, after in zip(x, y, strict=True):
        assert "".join(chr(97 + token) for token in (*row, after)) in joined


def test_a_row_is_kappa_of_the_dense_jacobian():
    cell = next(c for c in records(experiment.EXPERIMENT, "smoke") if c.last and c.network == "pre")
    rows = [SimpleNamespace(**row) for row in experiment.measure(cell)]
    x, _ = pieces(cell.outputs, cell.samples, cell.length, cell.data_seed)
    apply, params = gnjax.functional(experiment.made(cell))
    jacobian = np.asarray(references.jacobian(apply, params, x))
    values = np.linalg.svd(jacobian, compute_uv=False) ** 2
    row, spectrum = rows[0], rows[1:]
    assert (row.rank, row.parameters, row.resolved) == (*jacobian.shape, True)
    np.testing.assert_allclose(row.kappa, values[0] / values[-1], rtol=1e-6)
    assert [one.share for one in spectrum] == list(experiment.SHARES)
    for one in spectrum:
        place = round(one.share * (values.size - 1))
        np.testing.assert_allclose(one.eigenvalue, values[place] / values[0], rtol=1e-5)


def test_the_kinds_are_what_they_are_called():
    cell = records(experiment.EXPERIMENT, "smoke")[0]
    for kind, (norm, strength) in experiment.KINDS.items():
        block = experiment.made(replace(cell, network=kind)).model.block1
        assert block.norm == norm
        assert float(block.skip[...]) == strength(cell.depth)


_POWERS = {
    "pre": -1,
    "post": 0,
    "none": 0,
    "none, 1/sqrt(L)": 1,
    "none, 1/L": 2,
    "none, no skip": 3,
}


def _table(powers, resolved=True):
    """kappa = (L + 1)^power of each kind, with a little noise over the seeds."""
    return DataFrame(
        {
            "panel": panel, "network": kind, "depth": depth, "width": 8, "seed": seed,
            "inputs": 6, "outputs": 4, "samples": 8, "parameters": 100 * depth,
            "data": "python_topics", "evidence": "measured", "failure": 0.0, "resolved": resolved,
            "kappa": (1 + depth) ** power * (1 + 0.01 * seed),
            "kappa_low": (1 + depth) ** power * (1 + 0.01 * seed),
            "kappa_high": (1 + depth) ** power * (1 + 0.01 * seed),
            "share": share, "eigenvalue": 0.1 ** (share * (1 + power + seed)),
        }
        for kind, power in powers.items()
        for depth in (1, 2, 4)
        for seed in (0, 1, 2)
        for panel, share in (("kappa", 0.0), ("spectrum", 0.0), ("spectrum", 1.0))
        if panel == "kappa" or depth == 4
    )  # fmt: skip


def _statuses(table):
    return [claim.check(table).status for claim in experiment.CLAIMS]


def test_claims_can_hold_fail_and_be_out_of_reach():
    assert _statuses(_table(_POWERS)) == [HOLDS] * 6
    opposite = {kind: 2 - power for kind, power in _POWERS.items()}
    assert _statuses(_table(opposite)) == [FAILS] * 6
    alone = _statuses(_table({"other": 1}))
    assert alone == [NOT_TESTABLE] * 6
