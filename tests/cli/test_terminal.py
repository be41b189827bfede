"""What a command writes and how it ends, whatever stands behind its streams."""

import io
import os
import sys

import pytest
from rich.progress import Progress
from rich.table import Table

from gnjax.cli.terminal import Terminal, column, exit_status

TEXTS = ("kappa[relu]", "[nan, nan]", "[/or]", "[bold]x[/bold]", ":warning:", "\\[red]", "a [/] b")


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_is_shown_as_it_is(text):
    """Class: a text that comes from elsewhere is read as markup, on all roads to the terminal."""
    console = Terminal(width=100, record=True, quiet=False, file=io.StringIO())
    table = Table(text)
    table.add_row(text)
    console.print(table)
    console.print(text, style="red")
    console.rule(text)
    console.say(text)
    with Progress(column("description"), column("fields[now]"), console=console) as bars:
        bars.add_task(text, total=1, now=text)
    assert console.export_text().count(text) == 7


def _full():
    return open("/dev/full", "w")


def _without_reader():
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "w")


def _line_by_line():
    stream = _full()
    stream.reconfigure(line_buffering=True)
    return stream


def _greet():
    sys.stdout.write("hello\n")
    sys.stderr.write("a message\n")
    return 0


def _help():
    """As argparse, which ignores what its stream refuses."""
    sys.stdout.write("hello\n")
    raise SystemExit(0)


@pytest.mark.parametrize("command", [_greet, _help])
@pytest.mark.parametrize(
    ("made", "status"), [(_full, 1), (_line_by_line, 1), (_without_reader, 141)]
)
def test_an_output_that_cannot_be_written_is_a_status(monkeypatch, capfd, command, made, status):
    stream = made()
    monkeypatch.setattr(sys, "stdout", stream)
    assert exit_status(command) == status
    stream.close()  # as Python does at its end; what was refused is not tried again
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert ("the output cannot be written: No space left" in err) == (status == 1)


@pytest.mark.parametrize("made", [_full, _line_by_line, _without_reader])
def test_a_message_that_cannot_be_written_changes_nothing(monkeypatch, capsys, made):
    stream = made()
    monkeypatch.setattr(sys, "stderr", stream)
    assert exit_status(_greet) == 0
    stream.close()
    assert capsys.readouterr().out == "hello\n"


def test_a_command_without_streams_ends_well(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert exit_status(_greet) == 0
    assert sys.stdout is None


def test_ctrl_c_is_one_line_and_130(capsys):
    def interrupted():
        raise KeyboardInterrupt

    assert exit_status(interrupted, "stopped") == 130
    assert capsys.readouterr().err == "stopped\n"


@pytest.mark.parametrize("error", [FileNotFoundError("a.npy"), BrokenPipeError(), SystemExit(2)])
def test_an_error_of_the_command_itself_is_its_own(error):
    """A broken pipe may be that of a process of the command, and not its output."""

    def fails():
        raise error

    with pytest.raises(type(error)):
        exit_status(fails)
