"""Child processes: limits of number and time, a death, a stop, and the end of the parent."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from service_tools import PATIENCE, run

from sketchbandits.service.children import ChildFailed, Children, read_exactly

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="looks into /proc"),
]


def answered(stream):
    pid, rest = int(stream.readline()), stream.read()
    return pid, rest


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def gone(pid):
    limit = time.monotonic() + PATIENCE
    while alive(pid) and time.monotonic() < limit:
        time.sleep(0.02)
    return not alive(pid)


def test_a_child_answers_and_what_it_prints_is_no_part_of_that():
    large = os.urandom(3_000_000)

    async def ask():
        return await Children("made_child", most=1, seconds=PATIENCE).ask([b"echo ", large, large], answered)

    pid, rest = run(ask())
    assert rest == large + large and gone(pid)


@pytest.mark.parametrize(
    ("request_", "seconds", "reason"),
    [
        (b"die ", PATIENCE, "it ended with exit status 3"),
        (b"half 1234567890", PATIENCE, "it ended with exit status 0"),
        (b"sleep 60", 0.7, "it took longer than 0.7 seconds"),
    ],
)
def test_a_child_that_dies_or_takes_too_long_is_an_error(request_, seconds, reason):
    def read(stream):
        into = bytearray(10)
        read_exactly(stream, into)

    async def ask():
        await Children("made_child", most=1, seconds=seconds).ask([request_], read)

    with pytest.raises(ChildFailed, match=reason):
        run(ask())


def test_one_that_cannot_be_started_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ChildFailed, match="could not be started"):
        run(Children("made_child", most=1, seconds=PATIENCE).ask([b"echo"], answered))


def test_no_more_children_than_allowed_and_a_stop_ends_them_all():
    async def crowd():
        children = Children("made_child", most=2, seconds=PATIENCE)
        asked = [asyncio.create_task(children.ask([b"sleep 60"], answered)) for _ in range(4)]
        await asyncio.sleep(0.5)
        running = [child.process.pid for child in children._running]
        children.stop()
        results = await asyncio.gather(*asked, return_exceptions=True)
        return running, [str(result) for result in results]

    started = time.monotonic()
    running, results = run(crowd())
    assert len(running) == 2 and all(gone(pid) for pid in running)
    assert results == ["the service is stopping"] * 4 and time.monotonic() - started < 30


def test_whoever_leaves_takes_the_child_along():
    async def leave():
        children = Children("made_child", most=1, seconds=PATIENCE)
        task = asyncio.create_task(children.ask([b"sleep 60"], answered))
        await asyncio.sleep(0.5)
        (child,) = children._running
        task.cancel()
        await asyncio.wait([task])
        return child.process.pid

    assert gone(run(leave()))


PARENT = """
import asyncio
from sketchbandits.service.children import Children
async def main():
    children = Children("made_child", most=1, seconds=100)
    task = asyncio.create_task(children.ask([b"sleep 100"], lambda stream: stream.read()))
    while not any(child.process for child in children._running):
        await asyncio.sleep(0.01)
    print(next(iter(children._running)).process.pid, flush=True)
    await task
asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_child_ends_with_its_parent_which_does_not_wait(how):
    path = os.pathsep.join(entry for entry in sys.path if entry)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )
    with parent:
        child = int(parent.stdout.readline())
        assert alive(child)
        started = time.monotonic()
        parent.send_signal(how)
        parent.wait(PATIENCE)
    assert time.monotonic() - started < 20 and gone(child)
