"""What others do to one bandit, seen from its clients: latencies of a closed loop, or of a look at ``/healthz``.

    python watch.py ADDRESS load CONNECTIONS SECONDS      decide, reward, decide, ... for the bandit "default"
    python watch.py ADDRESS health 1 SECONDS              look at ``/healthz``

Every connection waits so many seconds after an answer. A process of its own for `isolation.py`. A line on standard
input is answered by a line of JSON: the latencies in
milliseconds since the line before, the seconds that took, and how many requests failed. The end of the input ends it.
"""

import asyncio
import contextlib
import json
import random
import sys
import threading
import time

import load

REFUSED_PAUSE = 0.05  # seconds after an answer that is no answer


class Watched:
    """What was seen since the last line."""

    def __init__(self):
        self.latencies, self.failed, self.since = [], 0, time.perf_counter()

    def taken(self):
        """As a line of JSON; begins anew."""
        now = time.perf_counter()
        found = {
            "ms": [round(1e3 * seconds, 3) for seconds in self.latencies],
            "seconds": now - self.since,
            "failed": self.failed,
        }
        self.latencies, self.failed, self.since = [], 0, now
        return json.dumps(found)


class Connection(load.Connection):
    """One that goes on after a refusal, and waits between requests where it should."""

    def __init__(self, turn, watched, pause=0.0):
        super().__init__(turn, lambda seconds: watched.latencies.append(seconds))
        self.watched, self.pause = watched, pause

    def send(self, status, body):
        refused = status is not None and status != 200
        self.watched.failed += refused
        pause = REFUSED_PAUSE if refused else self.pause
        if status is None or not pause:
            super().send(status, body)
        else:
            asyncio.get_running_loop().call_later(pause, super().send, status, body)


def bandit_turns(rng):
    """Decide, reward, decide, ...; after a refusal a new decision."""
    decided = False

    def turn(status, body):
        nonlocal decided
        decided = not decided or (status is not None and status != 200)
        if decided:
            return "/v1/decisions", '{"bandit":"default"}'
        decision = body.partition(b'"decision_id":"')[2].partition(b'"')[0].decode()
        return "/v1/rewards", f'{{"decision_id":"{decision}","reward":{rng.random():.6f}}}'

    return turn


class Health(Connection):
    """Asks with GET, which has no body."""

    def send(self, status, body):
        if status is None:
            self.ask()
        else:
            self.watched.failed += status != 200
            asyncio.get_running_loop().call_later(self.pause, self.ask)

    def ask(self):
        self.sent = time.perf_counter()
        self.transport.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")


async def run(host, port, make, count):
    """Open the connections, again where one is closed, and answer lines until there are none."""
    loop, watched, over = asyncio.get_running_loop(), Watched(), asyncio.Event()

    async def connected(number):
        while True:
            with contextlib.suppress(OSError):
                _, protocol = await loop.create_connection(lambda: make(number, watched), host, port)
                await protocol.done
            watched.failed += 1
            await asyncio.sleep(REFUSED_PAUSE)

    def read():
        for _ in sys.stdin:
            loop.call_soon_threadsafe(lambda: print(watched.taken(), flush=True))
        loop.call_soon_threadsafe(over.set)

    tasks = [asyncio.create_task(connected(number)) for number in range(count)]
    threading.Thread(target=read, daemon=True).start()
    await over.wait()
    for task in tasks:
        task.cancel()


def main():
    address, kind, count, pause = sys.argv[1:5]
    host, _, port = address.removeprefix("http://").rpartition(":")

    def loaded(number, watched):
        return Connection(bandit_turns(random.Random(number)), watched, float(pause))

    def healthy(number, watched):
        return Health(None, watched, float(pause))

    make = {"load": loaded, "health": healthy}[kind]
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    with runner:
        runner.run(run(host, int(port), make, int(count)))


if __name__ == "__main__":
    main()
