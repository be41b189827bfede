"""The command line of experiments, their configs, rows and claims."""

import dataclasses
import functools
import json
import re
from pathlib import Path

import jax
import numpy as np
import pandas
import pytest
from pandas import DataFrame

import gnjax
from experiments import depth_sweep
from gnjax import papers
from sweeps import command_line as cli
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, UNDECIDED
from sweeps.table import read

_TINY = [
    "--config=configs/depth_sweep.py:smoke",
    "--config.fixed_width.depths=[2, 3]",
    "--config.fixed_width.widths=(70,)",
    "--config.fixed_width.seeds=1",
    "--config.slow_growth.depths=2",
    "--config.slow_growth.seeds=1",
    "--config.slow_reference.depths=2",
    "--config.slow_reference.seeds=1",
    "--config.fast_growth.depths=2",
    "--config.fast_growth.seeds=1",
    "--config.many_seeds.depths=2",
    "--config.many_seeds.seeds=1",
    "--config.narrow.depths=2",
    "--config.narrow.seeds=1",
]


def _names():
    return sorted({path.stem for path in Path("configs").glob("*.py")} - {"__init__"})


def _main(arguments, tmp_path):
    return cli.main(depth_sweep.EXPERIMENT, [*arguments, f"--results={tmp_path}"])


@pytest.mark.parametrize("name", _names())
@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
def test_every_profile_is_a_config_with_cells(name, profile):
    experiment = cli.named(name)
    config, _ = cli.load(f"configs/{name}.py:{profile}")
    cells = experiment.cells(config)
    assert len(set(cells)) == len(cells) > 0
    assert all(experiment.cost_of(cell) > 0 for cell in cells)


def test_a_tiny_sweep_end_to_end(tmp_path, capsys):
    assert _main(_TINY, tmp_path) == 0
    out = capsys.readouterr().out
    assert "6 cells, 0 stored" in out
    assert "kappa <= convex bound" in out
    folder = next((tmp_path / "depth_sweep").glob("smoke-*"))
    table = read(folder / "table.csv")
    provenance = json.loads((folder / "provenance.json").read_text())
    assert tuple(table) == depth_sweep.EXPERIMENT.columns
    assert set(table["figure"]) == {"2a", "2b-left", "2b-fixed", "2b-right", "3", "2-narrow"}
    assert "Fashion-MNIST" in provenance["data"][0]
    assert provenance["precision"] == "float64"
    assert {"jax", "numpy", "gnjax"} <= set(provenance["versions"])
    before = (folder / "table.csv").read_bytes()
    assert _main(_TINY, tmp_path) == 0
    assert "6 cells, 6 stored" in capsys.readouterr().out
    assert (folder / "table.csv").read_bytes() == before


def test_a_row_is_what_the_engine_says(tmp_path):
    config, _ = cli.load("configs/depth_sweep.py:smoke")
    cell = depth_sweep.EXPERIMENT.cells(config)[0].keywords
    measured = depth_sweep.measure(**cell)
    widths = (measured["inputs"], *[cell["width"]] * (cell["depth"] - 1), cell["outputs"])
    weights = gnjax.initializers.reduced_chain(jax.random.key(cell["seed"]), widths)
    dense = np.linalg.eigvalsh(np.asarray(papers.linear_gauss_newton(weights).as_matrix()))
    np.testing.assert_allclose(measured["kappa"], dense[-1] / dense[0], rtol=1e-3)
    assert measured["kappa_low"] <= dense[-1] / dense[0] * (1 + 1e-9)
    assert dense[-1] / dense[0] <= measured["kappa_high"]


def test_whitened_data_is_gaussian_data_of_the_same_rank_to_a_linear_network():
    """The covariance of whitened images is the identity, so only the rank is left of them."""
    white = depth_sweep.whitened("fashion_mnist_5000", 500, 0, 8)
    assert white.deviation < 1e-10
    dataset = gnjax.data.load("fashion_mnist_5000", samples=500, seed=0)
    images = gnjax.data.whiten(gnjax.data.downsample(dataset.inputs, dataset.shape, (8, 8)))
    weights = gnjax.initializers.chain(
        jax.random.key(0), (images.rank, 80, 80, 10), "kaiming_normal"
    )
    noise = gnjax.data.whiten(np.random.default_rng(0).standard_normal((500, images.rank)))
    kappas = [
        gnjax.condition_number(
            papers.linear_gauss_newton(weights, gnjax.data.covariance(x)), method="dense"
        ).value
        for x in (images.inputs, noise.inputs)
    ]
    np.testing.assert_allclose(kappas[0], kappas[1], rtol=1e-8)


def test_a_black_pixel_counts_in_the_rank_of_data_whitened_to_u_v_t():
    """The rank of paper A's data: 64 of the 64 pixels of the digits, three of which are black."""
    white = depth_sweep.whitened("digits", 0, 0, 0)
    x = gnjax.data.load("digits").inputs
    assert (white.rank, np.linalg.matrix_rank(x)) == (64, 61)
    assert white.deviation < 1e-12
    np.testing.assert_allclose(white.variances[:61], np.linalg.eigvalsh(x.T @ x / len(x))[:2:-1])
    few = depth_sweep.whitened("digits", 50, 0, 0)  # fewer samples than pixels
    assert few.rank == 50
    assert few.deviation < 1e-12


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config=configs/depth_sweep.py:smoke", "--config.outptus=3"], "config.outputs"),
        (
            ["--config=configs/depth_sweep.py:smoke", "--config.many_seeds.seed=3"],
            "many_seeds.seeds",
        ),
        (["--config=configs/depth_sweep.py:smoke", "--config.outputs=ten"], "takes int"),
        (["--config=configs/depth_sweep.py:smoke", "--config.outputs=-5"], "integers from 0 on"),
        (["--config=configs/depth_sweep.py:smoke", "--config.many_seeds=3"], "is a group"),
        (["--config=configs/depth_sweep.py:smoke", "--config.many_seeds.depths=(2.5,)"], "list of"),
        (["--config=configs/depth_sweep.py:smoke", "--config.many_seeds.depths=()"], "list of int"),
        (["--config=configs/depth_sweep.py:smoke", "--config.outputs"], "needs a value"),
        (["--config=configs/depth_sweep.py:smoke", "--config.many_seeds.seeds=0"], "at least 1"),
        (["--config=configs/depth_sweep.py:smok"], "did you mean 'smoke'"),
        (["--config=configs/depth_swep.py:smoke"], "depth_sweep.py"),
        (["--config=configs/depth_sweep.py"], "FILE:PROFILE"),
        (["--confg=configs/depth_sweep.py:smoke"], "did you mean --config"),
        (["--dryrun"], "did you mean --dry_run"),
    ],
)
def test_mistakes_are_answered_without_a_traceback(arguments, words, tmp_path, capsys):
    assert _main(arguments, tmp_path) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert error.count("\n") <= 4


def test_unreachable_data_is_an_error_that_names_the_alternatives(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GNJAX_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr(
        "gnjax.data.load",
        lambda *_, **__: (_ for _ in ()).throw(gnjax.data.DataUnavailableError("use fashion_...")),
    )
    depth_sweep.whitened.cache_clear()
    assert _main(["--config=configs/depth_sweep.py:paper"], tmp_path) == 2
    assert "use fashion_" in capsys.readouterr().err


def test_unwritable_results_are_said_plainly(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert _main(["--config=configs/depth_sweep.py:smoke"], tmp_path / "file") == 2
    assert "choose another" in capsys.readouterr().err


def test_dry_run_computes_nothing(tmp_path, capsys):
    assert _main([*_TINY, "--dry_run"], tmp_path) == 0
    assert "6 to compute" in capsys.readouterr().out
    assert not list(tmp_path.glob("cells/*/*.json"))


@pytest.mark.parametrize("name", _names())
def test_the_papers_sizes_are_planned_without_data(name, tmp_path, capsys):
    arguments = [f"--config=configs/{name}.py:paper", "--dry_run", f"--results={tmp_path}"]
    assert cli.main(cli.named(name), arguments) == 0
    assert re.search(r"[1-9]\d* cells, 0 stored, [1-9]\d* to compute", capsys.readouterr().out)


def test_a_failing_cell_gives_status_one_and_a_log(tmp_path, capsys, monkeypatch):
    @functools.wraps(depth_sweep.measure)
    def measure(depth, **others):
        if depth == 3:
            msg = "no"
            raise RuntimeError(msg)
        return depth_sweep.measure(depth=depth, **others)

    experiment = dataclasses.replace(depth_sweep.EXPERIMENT, measure=measure)
    assert cli.main(experiment, [*_TINY, f"--results={tmp_path}"]) == 1
    assert "1 cells failed" in capsys.readouterr().out
    log = next((tmp_path / "depth_sweep").glob("*/failures.log"))
    assert "RuntimeError: no" in log.read_text()


def _depth_table(kappa, convex=None, maximum=None, figure="2a", widths=(1000, 2000)):
    """Rows at depths 2..7 with kappa(L, m) and bounds as multiples of it, for two seeds."""
    points = [(depth, width) for depth in range(2, 8) for width in widths for _ in (0, 1)]
    values = np.array([kappa(depth, width) for depth, width in points])
    convex = values * 1.2 if convex is None else values * convex
    found = {
        "figure": np.full(len(points), figure),
        "seed": np.arange(len(points)) % 2,
        "depth": np.array([depth for depth, _ in points]),
        "width": np.array([width for _, width in points]),
        "multiplier": np.array([width for _, width in points], float),
        "inputs": np.full(len(points), 8),
        "outputs": np.full(len(points), 3),
        "kappa": values,
        "kappa_low": values,
        "kappa_high": values,
        "bound_applicable": np.ones(len(points), bool),
        "bound_convex": convex,
        "bound_maximum": convex * (2 if maximum is None else maximum),
    }
    return DataFrame(found)


def _verdict(module, statement, table):
    claim = next(c for c in module.CLAIMS if c.statement.startswith(statement))
    return claim.check(table)


def test_claims_of_figure_2a_can_hold_and_fail():
    quadratic = _depth_table(lambda depth, width: (1 + depth**2) * 1000 / width)
    exponential = _depth_table(lambda depth, width: 2.0**depth * width)
    assert _verdict(depth_sweep, "at fixed m", quadratic).status == HOLDS
    assert _verdict(depth_sweep, "at fixed m", exponential).status == FAILS
    straight = _depth_table(lambda depth, width: depth * 1000 / width)
    assert _verdict(depth_sweep, "at fixed m", straight).status == FAILS  # and not a quadratic
    told = _verdict(depth_sweep, "at fixed m", quadratic).short
    assert re.fullmatch(r"a quadratic fits with R\^2 1.0000 .* at the worst width, m=\d+", told)
    square = "at fixed m kappa goes like the number of "
    for power, matrices, hidden in ((2.0, HOLDS, FAILS), (2.4, HOLDS, HOLDS), (1.2, FAILS, FAILS)):
        table = _depth_table(lambda depth, width, p=power: depth**p + 0 * width)
        assert _verdict(depth_sweep, f"{square}matrices", table).status == matrices
        assert _verdict(depth_sweep, f"{square}hidden", table).status == hidden
    assert _verdict(depth_sweep, "wider", quadratic).status == HOLDS
    assert _verdict(depth_sweep, "wider", exponential).status == FAILS
    assert _verdict(depth_sweep, "kappa <= convex bound", quadratic).status == HOLDS
    assert _verdict(depth_sweep, "the bound rises and falls", quadratic).status == HOLDS
    against = quadratic.assign(bound_convex=1e3 / quadratic["kappa"])
    found = _verdict(depth_sweep, "the bound rises and falls", against)
    assert (found.status, found.number) == (FAILS, 0.0)
    low = _depth_table(lambda depth, width: depth, convex=0.99)
    assert _verdict(depth_sweep, "kappa <= convex bound", low).status == FAILS
    loose = _depth_table(lambda depth, width: depth, convex=2.5)
    found = _verdict(depth_sweep, "the bound is tight", loose)
    assert (found.status, found.number) == (FAILS, pytest.approx(2.5))


def test_claims_of_figure_2b_can_hold_and_fail():
    fixed = _depth_table(lambda depth, width: depth**2.0, figure="2b-fixed", widths=(300,))
    for power, status in ((1.0, HOLDS), (3.0, FAILS)):
        slow = _depth_table(lambda depth, width, p=power: depth**p, figure="2b-left", widths=(9,))
        both = pandas.concat([fixed, slow])
        assert _verdict(depth_sweep, "m = c L, small", both).status == status
    narrow = slow.assign(width=np.where(slow["depth"] == 2, 8, 9))
    both = pandas.concat([fixed, narrow])
    assert _verdict(depth_sweep, "m = c L, small", both).status == NOT_TESTABLE  # m = d at L = 2
    for slope, status in ((-0.1, HOLDS), (0.1, FAILS)):
        right = _depth_table(
            lambda depth, width, s=slope: 5 + s * depth, figure="2b-right", widths=(9,)
        )
        assert _verdict(depth_sweep, "m = c L, c suff", right).status == status


def test_claims_of_figure_3_can_hold_and_fail():
    growing = _depth_table(lambda d, w: d, figure="3", widths=(9,))
    growing["bound_maximum"] = growing["kappa"] * growing["depth"]
    assert _verdict(depth_sweep, "the maximum bound", growing).status == HOLDS
    found = _verdict(depth_sweep, "maximum / kappa exceeds", growing)
    assert (found.status, found.number) == (FAILS, pytest.approx(3))  # at L = 3
    assert _verdict(depth_sweep, "with more layers the maximum", growing).status == HOLDS
    growing["bound_maximum"] = growing["bound_convex"] * 2
    level = _verdict(depth_sweep, "with more layers the maximum", growing)
    assert (level.status, level.number) == (UNDECIDED, pytest.approx(1))
    growing["bound_maximum"] = growing["bound_convex"] * (9 - growing["depth"])
    assert _verdict(depth_sweep, "with more layers the maximum", growing).status == FAILS
    growing["bound_maximum"] = growing["kappa"] * 11.0
    assert _verdict(depth_sweep, "maximum / kappa exceeds", growing).status == HOLDS
    growing["bound_maximum"] = growing["kappa"] * 9 / growing["depth"]
    assert _verdict(depth_sweep, "the maximum bound", growing).status == FAILS
    loose = _verdict(depth_sweep, "with one hidden layer", growing)
    assert (loose.status, loose.number) == (HOLDS, pytest.approx(4.5))  # 9 / 2 at L = 2
    growing["bound_maximum"] = growing["kappa"] * 1.9
    assert _verdict(depth_sweep, "with one hidden layer", growing).status == FAILS
    growing["bound_maximum"] = growing["bound_convex"] / 2
    assert _verdict(depth_sweep, "kappa <= convex <= maximum", growing).status == FAILS
