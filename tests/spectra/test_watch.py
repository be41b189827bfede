"""Progress of long work, and what comes back when it is interrupted."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from functools import partial

import jax
import numpy as np
import pytest
from rich.console import Console

import gnjax
from gnjax.numerics.stages import FIRST_PRODUCT, beside, heard_by, stage
from gnjax.spectra import forecast, watch
from gnjax.spectra.displays import Lines, Pace
from tests.held_out.matrices import rotated

_KRYLOV = gnjax.Limits(whole_rows=10)


@pytest.fixture(autouse=True)
def _usual_ctrl_c():
    """A shell starts what it runs in the background with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


_VALUES = np.linspace(0, 1, 400) ** 2
_SLOW = rotated(np.random.default_rng(0), _VALUES)  # hundreds of products to 1e-10


class _Calls:
    """A progress function that keeps what it is told and interrupts at some number of products."""

    def __init__(self, at=np.inf):
        self.at, self.seen = at, []

    def __call__(self, done, expected):
        self.seen.append((done, expected))
        if done >= self.at:
            raise KeyboardInterrupt


def test_progress_counts_products_and_knows_how_many_are_expected():
    calls = _Calls()
    found = gnjax.eigenvalues(_SLOW, k=3, limits=_KRYLOV, progress=calls)
    assert found.converged
    assert [done for done, _ in calls.seen] == sorted({done for done, _ in calls.seen})
    assert {expected for _, expected in calls.seen} == {None}
    density = _Calls()
    gnjax.spectral_density(_SLOW, probes=3, steps=7, progress=density)
    assert density.seen[-1] == (21, 21)
    for method, probes in (("hutchinson", 40), ("hutch++", 30), ("xtrace", 20)):
        trace = _Calls()
        assert gnjax.trace(_SLOW, method=method, probes=probes, progress=trace).products == probes
        assert trace.seen[-1] == (probes, probes)
    kappa = _Calls()
    answer = gnjax.condition_number(_SLOW + 0.1 * np.eye(400), method="krylov", progress=kappa)
    assert kappa.seen[-1] == (answer.products, None)
    assert answer.finished


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("at", [20, 60, 120])
def test_interrupted_eigenvalues_come_back_with_errors_that_hold(vectors, at):
    """An eigenvalue lies within each error; as a largest one none is more than it should be."""
    calls = _Calls(at)
    found = gnjax.eigenvalues(_SLOW, k=3, vectors=vectors, limits=_KRYLOV, progress=calls)
    assert not found.converged
    assert "NOT CONVERGED" in str(found)
    assert calls.seen[-1][0] <= at + 10
    truth = np.linalg.eigvalsh(_SLOW)
    nearest = np.abs(truth[:, None] - found.values).min(axis=0)
    assert (nearest <= found.errors).all()
    assert len(found) == 3
    if vectors:
        assert np.isinf(found.angles).all()
        images = found.vectors @ _SLOW - found.values[:, None] * found.vectors
        assert (np.linalg.norm(images, axis=1) <= found.errors).all()


def test_interrupted_vectors_of_a_network_come_back_with_their_errors():
    model = gnjax.models.MLP((6, 20, 3), activation="tanh", key=jax.random.key(0))
    x = np.random.default_rng(0).standard_normal((100, 6))
    op = gnjax.gauss_newton(model, x)
    found = gnjax.eigenvalues(op, k=3, rtol=1e-5, vectors=True, limits=_KRYLOV, progress=_Calls(10))
    assert not found.converged
    truth = np.linalg.eigvalsh(np.asarray(op.as_matrix()))
    assert (np.abs(truth[:, None] - found.values).min(axis=0) <= found.errors).all()


def test_an_interrupted_kappa_encloses_the_truth():
    values = 1e-6 + _VALUES
    calls = _Calls(100)
    found = gnjax.condition_number(
        rotated(np.random.default_rng(0), values), method="krylov", progress=calls
    )
    assert calls.seen[-1][0] <= 108
    assert (found.finished, found.resolved) == (False, False)
    assert "INTERRUPTED" in str(found)
    kappa = values[-1] / values[0]
    assert found.interval[0] <= kappa <= found.interval[1]
    assert found.lambda_max == pytest.approx(values[-1], rel=0.05)


def test_an_interrupted_trace_is_that_of_the_vectors_so_far():
    whole = gnjax.trace(_SLOW, probes=32, seed=3)
    cut = gnjax.trace(_SLOW, probes=320, seed=3, progress=_Calls(20))  # 16 vectors in a product
    assert whole.finished
    assert not cut.finished
    assert (cut.products, cut.value) == (whole.products, whole.value)
    assert cut.standard_error == whole.standard_error
    assert "INTERRUPTED" in str(cut)
    assert gnjax.trace(_SLOW, probes=16, progress=_Calls(16)).finished
    with pytest.raises(KeyboardInterrupt):
        gnjax.trace(_SLOW, method="hutch++", progress=_Calls(20))


def test_an_interrupted_density_has_the_probes_with_all_of_their_steps():
    whole = gnjax.spectral_density(_SLOW, probes=10, steps=8, seed=2)
    cut = gnjax.spectral_density(_SLOW, probes=40, steps=8, seed=2, progress=_Calls(100))
    assert not cut.finished
    assert (len(cut.nodes), cut.steps) == (10, 8)
    np.testing.assert_array_equal(cut.nodes, whole.nodes)
    assert "INTERRUPTED" in str(cut)
    last = gnjax.spectral_density(_SLOW, probes=10, steps=8, seed=2, progress=_Calls(80))
    assert last.finished


def test_a_density_interrupted_in_its_first_probes_has_fewer_steps_and_its_bounds_hold():
    cut = gnjax.spectral_density(_SLOW, probes=10, steps=50, seed=2, progress=_Calls(60))
    whole = gnjax.spectral_density(_SLOW, probes=10, steps=6, seed=2)
    assert not cut.finished
    assert (len(cut.nodes), cut.steps) == (10, 6)
    np.testing.assert_allclose(cut.nodes, whole.nodes, rtol=0, atol=1e-12)
    assert cut.moment(12).certificate.kind == "unknown"
    assert cut.moment(11).certificate.kind != "unknown"


def test_nothing_yet_and_nobody_watching_are_interrupts_as_usual():
    with pytest.raises(KeyboardInterrupt):
        gnjax.eigenvalues(_SLOW, k=30, limits=_KRYLOV, progress=_Calls(2))
    with pytest.raises(KeyboardInterrupt):
        gnjax.condition_number(_SLOW, method="krylov", progress=_Calls(1))
    with pytest.raises(KeyboardInterrupt):
        gnjax.eigenvalues(_Interrupting(30), k=3, limits=_KRYLOV)


class _Interrupting:
    """A product that is interrupted once, as by Ctrl-C while it runs."""

    shape, dtype = (400, 400), np.dtype(float)

    def __init__(self, at, send=False):
        self.at, self.send, self.made = at, send, 0

    def facts(self):
        return gnjax.operators.Facts(error=0.0, symmetric=True)

    def mv(self, v):
        self.made += 1
        if self.made == self.at:
            if not self.send:
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGINT)
        return _SLOW @ np.asarray(v)

    def as_matrix(self):
        return _SLOW


@pytest.mark.parametrize("send", [False, True])
def test_ctrl_c_during_a_product_ends_the_run_and_leaves_the_handler_as_it_was(send):
    usual = signal.getsignal(signal.SIGINT)
    op = _Interrupting(60, send)
    found = gnjax.eigenvalues(op, k=3, limits=_KRYLOV, progress=_Calls())
    assert not found.converged
    assert op.made < 80
    assert signal.getsignal(signal.SIGINT) is usual


def test_a_second_ctrl_c_ends_the_work_at_once():
    class Twice(_Interrupting):
        def mv(self, v):
            image = super().mv(v)
            if self.made == self.at:
                os.kill(os.getpid(), signal.SIGINT)
            return image

    with pytest.raises(KeyboardInterrupt):
        gnjax.eigenvalues(Twice(50, True), k=3, limits=_KRYLOV, progress=_Calls())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_can_be_watched():
    found = []
    work = threading.Thread(
        target=lambda: found.append(
            gnjax.eigenvalues(_SLOW, k=2, limits=_KRYLOV, progress=_Calls(60))
        )
    )
    work.start()
    work.join()
    assert not found[0].converged


def test_true_draws_a_bar_on_stderr(capfd):
    gnjax.spectral_density(_SLOW, probes=2, steps=4, progress=True)
    out, err = capfd.readouterr()
    assert not out
    assert "8/8 products" in err
    gnjax.eigenvalues(_SLOW, progress=True)  # LAPACK makes no products: no line is left
    assert capfd.readouterr() == ("", "")


def test_a_bar_shows_the_time_of_work_that_multiplies_nothing(monkeypatch):
    """Class: a terminal is silent while a program is compiled or LAPACK computes."""
    drawn = io.StringIO()
    terminal = partial(Console, file=drawn, force_terminal=True)
    monkeypatch.setattr("rich.console.Console", lambda stderr: terminal())
    monkeypatch.setattr(watch, "on_terminal", lambda: True)
    with watch.watching(True):
        time.sleep(0.3)  # it is drawn ten times a second
        assert "0:00:00" in drawn.getvalue()
    assert drawn.getvalue().endswith("\x1b[2K")  # and its line is cleared
    with watch.watching(True) as watched:
        watched(lambda rows: rows)(np.ones((3, 2)))
    assert "3 products" in drawn.getvalue()
    assert not drawn.getvalue().endswith("\x1b[2K")


def test_a_terminal_says_unasked_that_a_call_takes_long_and_the_line_goes_away(monkeypatch):
    drawn = io.StringIO()
    terminal = partial(Console, file=drawn, force_terminal=True, width=120)
    monkeypatch.setattr("rich.console.Console", lambda stderr: terminal())
    monkeypatch.setattr(watch, "LATE", 0.2)
    gnjax.eigenvalues(_SLOW, k=3, limits=_KRYLOV)
    with watch.watching(None, stoppable=True), stage("sleeping"):
        time.sleep(0.4)
    assert not drawn.getvalue()  # no terminal
    monkeypatch.setattr(watch, "on_terminal", lambda: True)
    with watch.watching(None, stoppable=True), stage("no time at all"):
        pass
    with watch.watching(False, stoppable=True), stage("sleeping"):
        time.sleep(0.4)
    assert not drawn.getvalue()
    with watch.watching(None, stoppable=True) as watched, stage("sleeping", 3):
        multiply = watched(lambda rows: rows)
        assert not watched.stoppable  # nobody was told that Ctrl-C gives an answer
        time.sleep(0.4)
        multiply(np.ones((3, 2)))
        assert watched.stoppable
        time.sleep(0.2)
    assert "gnjax: sleeping, about 3.0 s" in drawn.getvalue()
    assert "3 products (Ctrl-C ends it with the answer so far)" in drawn.getvalue()
    assert drawn.getvalue().endswith("\x1b[2K")


class _Clock:
    """A clock that stands still until a test sets it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_a_log_has_each_stage_with_its_forecast_and_ever_fewer_counts():
    written, clock = [], _Clock()
    lines = Lines(written.append, clock)
    lines.stage("compiling the product", 15.3)
    clock.now = 16.0
    for done in range(1, 301):
        lines.count(done, 300, "products")
        clock.now += 0.5
    lines.back("")
    lines.stage("evidence: rounding, 2 of 6", None)
    lines.close()
    assert written[0] == "gnjax    0.0 s  compiling the product, about 15 s\n"
    assert written[1] == "gnjax   16.0 s  1/300 products\n"
    # eight seconds later, at half a second each
    assert written[2] == "gnjax   24.0 s  17/300 products, about 2 min more\n"
    assert written[-2:] == [
        "gnjax  166.0 s  300/300 products\n",
        "gnjax  166.0 s  evidence: rounding, 2 of 6\n",
    ]
    assert len(written) == 9  # counts after 16, 24, 36, 54, 81 and 121.5 s, and the last


def test_the_forecast_of_a_count_leaves_out_the_first_product_which_is_compiled():
    clock = _Clock()
    pace = Pace(clock)
    clock.now = 30.0
    assert pace.words(1, 101, "products") == "1/101 products"
    clock.now = 31.0
    assert pace.words(11, 101, "products") == "11/101 products, about 9.0 s more"
    assert pace.words(11, None, "products") == "11 products, 0.1 s each"
    clock.now = 30.2
    assert pace.words(11, None, "products") == "11 products, 20 ms each"


def test_a_log_begins_with_the_network_that_is_compiled(capfd):
    model = gnjax.models.MLP((6, 20, 3), activation="tanh", key=jax.random.key(0))
    op = gnjax.gauss_newton(model, np.ones((10, 6)))
    gnjax.trace(op, probes=4, method="hutchinson", progress=True)
    first, *_, products, last = capfd.readouterr().err.splitlines()
    assert first.endswith("compiling the product of a network of 203 parameters")
    assert products.endswith("4/4 products")
    assert last.endswith("evidence: rounding")


def test_ctrl_c_in_a_stage_that_is_optional_ends_this_stage_alone():
    with watch.watching(False) as watched:
        with watched.stage("evidence", optional=True) as evidence:
            raise KeyboardInterrupt
        assert (evidence.skipped, watched.interrupted, watched.stopped) == (True, True, False)
        with stage("more evidence", optional=True) as evidence:
            pass
        assert not evidence.skipped


@pytest.mark.parametrize("send", [False, True])
def test_ctrl_c_in_evidence_is_heard_where_a_run_records_it(send):
    """The handler that asks a run to stop must not swallow what is meant for the evidence."""
    calls = _Calls()
    with watch.watching(calls, stoppable=True) as watched:
        multiply = watched(lambda rows: rows)
        multiply(np.ones((1, 2)))
        with watched.stage("evidence", optional=True) as evidence:
            if send:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1)
            raise KeyboardInterrupt
        assert evidence.skipped
        assert not watched.stopped
        os.kill(os.getpid(), signal.SIGINT)
        multiply(np.ones((1, 2)))
        assert watched.stopped
    assert [done for done, _ in calls.seen] == [1, 2]


def test_an_inner_call_shows_its_products_and_stages_in_the_outer_one(capfd):
    with watch.watching(True, unit="stages") as outer, outer.stage("sharpness", 2):
        gnjax.spectral_density(_SLOW, probes=2, steps=4)
        with watch.watching(None) as inner, inner.stage("evidence", optional=True):
            raise KeyboardInterrupt
        assert outer.interrupted
    lines = [line[16:] for line in capfd.readouterr().err.splitlines()]
    ended = "Ctrl-C ended evidence, and the answer comes without it"
    assert lines == ["sharpness, about 2.0 s", "8/8 products", "evidence", ended]
    seen = _Calls()
    with watch.watching(seen, unit="stages") as outer:
        gnjax.spectral_density(_SLOW, probes=2, steps=4)
        outer.advance()
    assert seen.seen == [(1, None)]


def test_ctrl_c_before_the_answer_is_one_sentence_without_the_frames_of_what_it_ended():
    with pytest.raises(KeyboardInterrupt) as caught:
        gnjax.eigenvalues(_Interrupting(30), k=3, limits=_KRYLOV)
    assert str(caught.value).startswith("interrupted after ")
    assert str(caught.value).endswith(" s, before there was an answer")
    assert caught.value.__suppress_context__
    names = [entry.name for entry in caught.traceback]
    assert "mv" not in names
    assert "watching" in names
    with (
        pytest.raises(KeyboardInterrupt, match=r"s during forming the matrix, before"),
        watch.watching(None),
        stage("forming the matrix"),
    ):
        raise KeyboardInterrupt


class _Shown(Lines):
    """Lines that are kept, at the times of a clock."""

    def __init__(self, clock):
        self.written = []
        super().__init__(self.written.append, clock)


_PLAN = forecast.Products(40, 5000, "kappa by Lanczos", "take fewer samples")


def _watched(seconds=None, stoppable=True, expected=None):
    """A watch, its clock, and a function that makes one product which takes so many seconds."""
    clock = _Clock()
    shown = _Shown(clock)
    options = {"stoppable": stoppable, "seconds": seconds, "expected": expected}
    watched = watch.Watch(shown, clock=clock, **options)

    def product(took):
        clock.now += took
        watched.advance()

    return watched, clock, product, shown.written


def test_products_that_take_days_are_told_after_the_first_one_and_again_when_it_is_known():
    watched, clock, product, written = _watched()
    watched.begins(FIRST_PRODUCT, None, False)
    clock.now = 40.0
    watched.ends(FIRST_PRODUCT, False, False)
    watched.takes(_PLAN)
    assert written[-1] == (
        "gnjax   40.0 s  the first product took 40 s with its compilation, and kappa by Lanczos "
        "makes up to 5,000: at most 2.31 days; take fewer samples\n"
    )
    product(23.0)
    product(23.0)
    told = [line for line in written if "one product takes" in line]
    assert told == [
        "gnjax   86.0 s  one product takes 23 s, and kappa by Lanczos makes up to 5,000: "
        "up to 31.9 h\n"
    ]


def test_products_that_are_soon_made_are_not_told():
    watched, _, product, written = _watched()
    watched.takes(_PLAN)
    for _ in range(5):
        product(0.01)
    assert not written


def test_products_that_the_answer_does_not_count_are_shown_and_tell_the_time():
    watched, clock, _, written = _watched()
    watched.takes(_PLAN)
    with heard_by(watched):
        for done in range(1, 4):
            clock.now += 23.0
            beside(done, 32, "products for the norm")
    assert watched.done == 0
    assert "gnjax   23.0 s  1/32 products for the norm\n" in written
    assert any("one product takes 23 s" in line for line in written)
    assert written[-1].endswith("3/32 products for the norm, about 11 min more\n")


def test_a_time_in_which_there_is_no_answer_is_refused_when_a_product_is_known():
    watched, _, product, _ = _watched(seconds=600)
    watched.takes(_PLAN)
    product(23.0)
    with pytest.raises(
        ValueError, match=r"40 products, which at 23 s each take more than 15 min, "
    ):
        product(23.0)
    watched, clock, _, _ = _watched(seconds=30)
    watched.begins(FIRST_PRODUCT, None, False)
    clock.now = 40.0
    watched.ends(FIRST_PRODUCT, False, False)
    with pytest.raises(
        ValueError, match=r"more than 40 s, and limits allow 30 s; .* fewer samples"
    ):
        watched.takes(_PLAN)


def test_work_ends_with_what_it_has_when_the_time_is_over():
    watched, _, product, _ = _watched(seconds=10)
    for _ in range(10):
        product(1.0)
    assert not watched.stopped
    product(1.0)
    assert (watched.stopped, watched.out_of_time) == (True, True)
    _, _, product, _ = _watched(seconds=10, stoppable=False, expected=20)
    product(1.0)
    with pytest.raises(ValueError, match=r"20 products, which at 1.0 s each take more than 20 s"):
        product(1.0)


class _Sleeping(_Interrupting):
    """Each product takes 10 ms."""

    def __init__(self):
        super().__init__(at=0)

    def mv(self, v):
        time.sleep(0.01)
        return super().mv(v)


def test_kappa_within_a_time_is_refused_or_encloses_the_truth():
    with pytest.raises(ValueError, match=r"limits allow 0.1 s; .* gnjax.eigenvalues"):
        gnjax.condition_number(_Sleeping(), method="krylov", limits=gnjax.Limits(seconds=0.1))
    op = _Sleeping()
    found = gnjax.condition_number(op, method="krylov", limits=gnjax.Limits(seconds=1.0))
    assert (found.finished, found.resolved) == (False, False)
    assert op.made < 150
    assert found.lambda_max == pytest.approx(1.0, rel=0.05)
    with pytest.raises(ValueError, match="there was no answer; pass limits"):
        gnjax.eigenvalues(_Sleeping(), k=30, limits=gnjax.Limits(whole_rows=10, seconds=0.05))
    with pytest.raises(ValueError, match="seconds=0 is not a number above 0"):
        gnjax.Limits(seconds=0)


def test_a_log_of_kappa_says_what_it_will_take_before_it_is_known(capfd, monkeypatch):
    monkeypatch.setattr(forecast, "LONG", 0.1)
    monkeypatch.setattr(watch, "LATE", 0.0)
    gnjax.condition_number(_Sleeping(), method="krylov", progress=True)
    lines = [line[16:] for line in capfd.readouterr().err.splitlines()]
    assert lines[0] == "first product, with its compilation"
    assert lines[1].startswith("the first product took 0.0 s with its compilation, and kappa by ")
    assert "makes up to 432: at most " in lines[1]
    assert "; Ctrl-C or limits=gnjax.Limits(seconds=..) end it with the bounds so far" in lines[1]
    assert any(line.startswith("one product takes 0.0 s, and kappa by") for line in lines[2:])
    assert any("/32 products for the norm" in line for line in lines)


def test_ctrl_c_before_the_answer_says_what_it_would_have_taken(monkeypatch):
    monkeypatch.setattr(forecast, "LONG", 0.1)

    class _Stopped(_Sleeping):
        def mv(self, v):
            if self.made == 20:
                raise KeyboardInterrupt
            return super().mv(v)

    with pytest.raises(KeyboardInterrupt, match=r"an answer; one product takes .*up to 432: up to"):
        gnjax.condition_number(_Stopped(), method="krylov")


def test_a_notice_stays_on_a_terminal_above_the_line_that_goes_away(monkeypatch):
    drawn = io.StringIO()
    terminal = partial(Console, file=drawn, force_terminal=True, width=120)
    monkeypatch.setattr("rich.console.Console", lambda stderr: terminal())
    monkeypatch.setattr(watch, "on_terminal", lambda: True)
    monkeypatch.setattr(watch, "LATE", 0.2)
    with watch.watching(None) as watched:
        watched.display.notice("before it is drawn")
        time.sleep(0.4)
        watched.display.notice("while it is drawn")
    assert "gnjax: before it is drawn" in drawn.getvalue()
    assert "gnjax: while it is drawn" in drawn.getvalue()
    assert drawn.getvalue().endswith("\x1b[2K")
    before = drawn.getvalue()
    with watch.watching(None) as watched:
        watched.display.notice("of a short call")
    assert drawn.getvalue() == before


def test_the_lines_of_a_command_are_written_when_it_takes_long():
    written = []
    lines = Lines(written.append, late=0.2)
    lines.stage("first product", None)
    assert not lines.visible()
    lines.close()
    time.sleep(0.3)
    assert not written
    lines = Lines(written.append, late=0.2)
    lines.stage("first product", None)
    time.sleep(0.4)
    assert lines.visible()
    assert [line[16:] for line in written] == ["first product\n"]
    lines.say("a result")
    assert len(written) == 2
