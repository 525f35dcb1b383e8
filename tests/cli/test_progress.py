"""The one bar: when it opens, what it shows, who gets none."""

import contextlib
import io
import subprocess
import sys

import pytest

from sketchbandits.progress import Bar, stages


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal_there(monkeypatch):
    """Makes stderr a terminal that keeps what is drawn; to be called in the test, before which pytest sets its own."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")

    def begin():
        screen = Terminal()
        monkeypatch.setattr(sys, "stderr", screen)
        return screen

    return begin


def due(wanted):
    """A bar whose second is over."""
    bar = Bar(wanted)
    bar.opens -= 2.0
    return bar


@pytest.mark.parametrize(("wanted", "opens"), [(True, True), (None, True), (False, False)])
def test_a_bar_opens_after_a_second_where_it_is_wanted(terminal_there, wanted, opens):
    screen = terminal_there()
    with Bar(wanted) as bar:
        bar.show(0.1, "sorting arms")
        assert bar.display is None and screen.getvalue() == ""
        bar.opens -= 2.0
        bar.show(0.25, "sorting arms")
        assert (bar.display is not None) is opens
        if opens:
            (task,) = bar.display.tasks
            assert (task.description, task.completed, task.total) == ("sorting arms", 0.25, 1.0)
    drawn = screen.getvalue()
    assert ("sorting arms" in drawn and "25%" in drawn and "left" in drawn) is opens


@pytest.mark.parametrize(("wanted", "opens"), [(True, True), (None, False)])
def test_without_a_terminal_only_an_explicit_wish_opens_one(wanted, opens):
    with due(wanted) as bar:
        bar.show(0.5, "anything")
        assert (bar.display is not None) is opens


def test_a_function_is_called_in_place_of_a_bar(terminal_there):
    screen = terminal_there()
    seen = []
    with due(lambda share, what: seen.append((share, what))) as bar:
        for share in (0.0, 0.5, 1.0):
            bar.show(share, "clusters")
    assert seen == [(0.0, "clusters"), (0.5, "clusters"), (1.0, "clusters")]
    assert screen.getvalue() == ""


def test_a_bar_inside_another_stays_quiet_until_that_is_gone(terminal_there):
    terminal_there()
    with due(True) as outer, due(True) as inner:
        outer.show(0.3, "outer")
        inner.show(0.6, "inner")
        assert outer.display is not None and inner.display is None
    with due(True) as next_one:
        next_one.show(0.6, "next")
        assert next_one.display is not None


def test_a_failure_inside_takes_the_bar_away(terminal_there):
    terminal_there()
    bar = due(True)
    with contextlib.suppress(KeyboardInterrupt), bar:
        bar.show(0.3, "outer")
        assert Bar._shown is bar
        raise KeyboardInterrupt
    assert bar.display is None and Bar._shown is None


def test_a_worker_process_draws_nothing_on_its_parents_terminal(terminal_there, monkeypatch):
    terminal_there()
    monkeypatch.setattr("multiprocessing.parent_process", lambda: "a parent")
    assert not Bar(None).wanted
    assert Bar(True).wanted


def test_a_share_of_nothing_starts_the_clock_again(terminal_there):
    terminal_there()
    with due(True) as bar:
        bar.show(0.5, "compiling")
        (task,) = bar.display.tasks
        task.start_time -= 100.0
        bar.show(0.5, "compiling")
        assert task.elapsed > 99.0
        bar.show(0.0, "playing")
        assert (task.description, task.completed) == ("playing", 0)
        assert task.elapsed < 50.0


def test_the_command_line_draws_the_same_bar_at_once(terminal_there):
    screen = terminal_there()
    with stages() as watch:
        assert Bar._shown.display.tasks[0].description == "starting"
        watch("playing", "3 of 4 runs", 0.75)
        (task,) = Bar._shown.display.tasks
        assert (task.description, task.completed) == ("playing: 3 of 4 runs", 0.75)
    assert "75%" in screen.getvalue()


@pytest.mark.process
def test_a_bar_that_does_not_open_loads_no_rich():
    code = (
        "import sys; from sketchbandits.progress import Bar, stages\n"
        "with Bar(True) as bar: bar.show(0.5, 'quick')\n"
        "print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False" and done.stderr == ""
