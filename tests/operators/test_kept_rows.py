"""kappa with rows of J in a folder: interrupted, continued, damaged, of other networks."""

import jax
import numpy as np
import pytest

import gnjax
from gnjax.networks.jacobians import pieces
from gnjax.operators.of_networks import kept_rows
from gnjax.operators.of_networks.kept_rows import rows_digest

SAMPLES = 24


@pytest.fixture
def model():
    return gnjax.models.MLP((4, 40, 3), activation="tanh", key=jax.random.key(0))


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of two samples, so that a small network has several."""
    monkeypatch.setattr(pieces, "even_size", lambda count, most: min(count, 2))


def _kappa(model, x, folder, **options):
    op = gnjax.ntk(model, x)
    return gnjax.condition_number(op, method="preconditioned", folder=folder, **options)


def _x(seed=1):
    return np.asarray(jax.random.normal(jax.random.key(seed), (SAMPLES, 4)))


def _written(monkeypatch):
    """The blocks that are written from now on, because they were not there."""
    seen, write = [], kept_rows._write

    def counted(path, block):
        seen.append(path)
        write(path, block)

    monkeypatch.setattr(kept_rows, "_write", counted)
    return seen


def test_an_interrupted_run_goes_on_from_its_rows(model, small_blocks, tmp_path, monkeypatch):
    whole = _kappa(model, _x(), None)

    def interrupt(made, expected):
        if made >= 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _kappa(model, _x(), tmp_path, progress=interrupt)
    kept = len(list(tmp_path.rglob("*.npy")))
    assert 0 < kept < SAMPLES / 2
    written = _written(monkeypatch)
    assert _kappa(model, _x(), tmp_path).interval == whole.interval
    assert len(written) == SAMPLES / 2 - kept
    written.clear()
    assert _kappa(model, _x(), tmp_path, rtol=1e-2).rank == whole.rank
    assert not written


def test_a_file_that_was_cut_short_is_computed_again(model, small_blocks, tmp_path):
    whole = _kappa(model, _x(), tmp_path)
    files = sorted(tmp_path.rglob("*.npy"))
    files[3].write_bytes(files[3].read_bytes()[:-100])
    assert _kappa(model, _x(), tmp_path).interval == whole.interval
    assert len(files[3].read_bytes()) == len(files[2].read_bytes())


def test_rows_of_other_samples_and_parameters_are_not_taken(model, tmp_path):
    _kappa(model, _x(), tmp_path)
    other = _kappa(model, _x(2), tmp_path)
    assert other.interval == _kappa(model, _x(2), None).interval
    assert len(list(tmp_path.iterdir())) == 2


def test_networks_have_the_same_name_only_if_their_rows_are_the_same(model):
    net = gnjax.ntk(model, _x()).net
    others = [
        gnjax.ntk(model, _x(2)).net,
        gnjax.ntk(gnjax.models.MLP((4, 40, 3), key=jax.random.key(0)), _x()).net,
        gnjax.ntk(gnjax.models.MLP((4, 40, 3), key=jax.random.key(5)), _x()).net,
        gnjax.ntk(model, _x(), only="*/kernel").net,
        gnjax.gauss_newton(model, _x(), loss="cross_entropy", side="outputs").net,
    ]
    names = [rows_digest(other) for other in (net, *others)]
    assert len(set(names)) == len(names)
    assert rows_digest(gnjax.ntk(model, _x()).net) == names[0]


def test_rows_of_another_network_leave_an_answer_uncertain(model, tmp_path, monkeypatch):
    """What was read is compared with products: a wrong name is seen by the error of the answer."""
    name = "gnjax.operators.of_networks.kept_rows.rows_digest"
    monkeypatch.setattr(name, lambda net: "always the same")
    _kappa(model, _x(), tmp_path)
    wrong = _kappa(model, _x(2), tmp_path)
    exact = _kappa(model, _x(2), None)
    assert not wrong.resolved or wrong.interval[0] <= exact.value <= wrong.interval[1]


def test_a_folder_that_cannot_be_made_is_refused(model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be made"):
        _kappa(model, _x(), tmp_path / "file" / "rows")
