"""GPTs over depth: a row by a dense Jacobian."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

import gnjax
from experiments import transformer_depth as experiment
from experiments.shared.language import pieces
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
