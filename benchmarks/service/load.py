"""A load generator: connections that each wait for an answer before the next request, over raw sockets.

As a program it is the second process of `throughput.py`: ``python load.py ADDRESS KIND CONNECTIONS SECONDS`` prints one
line of JSON. KIND is ``bandit`` (a decision, then its reward, and so on) or ``bare`` (rows).
"""

import asyncio
import json
import random
import sys
import time


class Connection(asyncio.Protocol):
    """One keep-alive connection in a closed loop; ``turn(body)`` gives the next path and body, or none to stop."""

    def __init__(self, turn, seen):
        self.turn, self.seen, self.buffer = turn, seen, b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        self.send(None, None)

    def send(self, status, body):
        following = self.turn(status, body)
        if following is None:
            self.transport.close()
            return
        path, text = following
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.sent = time.perf_counter()
        self.transport.write(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())

    def data_received(self, data):
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        size = int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(rest) < size:
            return
        self.buffer = rest[size:]
        self.seen(time.perf_counter() - self.sent)
        self.send(int(head[9:12]), rest[:size])

    def connection_lost(self, error):
        if not self.done.done():
            self.done.set_result(error)


def bandit_turns(rng, until):
    """Decide, reward, decide, ..."""
    decided = False

    def turn(status, body):
        nonlocal decided
        if status is not None and status != 200:
            raise SystemExit(f"status {status}: {body!r}")
        if time.perf_counter() > until:
            return None
        decided = not decided
        if decided:
            return "/v1/decisions", '{"bandit":"default"}'
        decision = body.partition(b'"decision_id":"')[2].partition(b'"')[0].decode()
        return "/v1/rewards", f'{{"decision_id":"{decision}","reward":{rng.random():.6f}}}'

    return turn


def bare_turns(rng, until):
    """Rows of the size of a reward."""

    def turn(status, body):
        if status is not None and status != 200:
            raise SystemExit(f"status {status}: {body!r}")
        if time.perf_counter() > until:
            return None
        return "/row", f'{{"decision_id":"12345-0123abcd","reward":{rng.random():.6f}}}'

    return turn


async def run(host, port, kind, connections, seconds):
    loop, latencies = asyncio.get_running_loop(), []
    started = time.perf_counter()
    turns = {"bandit": bandit_turns, "bare": bare_turns}[kind]
    opened = []
    for i in range(connections):
        turn = turns(random.Random(i), started + seconds)
        _, connection = await loop.create_connection(lambda turn=turn: Connection(turn, latencies.append), host, port)
        opened.append(connection.done)
    await asyncio.gather(*opened)
    elapsed = time.perf_counter() - started
    latencies.sort()
    places = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    shown = {
        name: 1e3 * latencies[min(int(share * len(latencies)), len(latencies) - 1)] for name, share in places.items()
    }
    return {"requests": len(latencies), "per_second": len(latencies) / elapsed, **shown}


def main():
    address, kind, connections, seconds = sys.argv[1:5]
    host, _, port = address.removeprefix("http://").rpartition(":")
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    with runner:
        print(json.dumps(runner.run(run(host, int(port), kind, int(connections), float(seconds)))))


if __name__ == "__main__":
    main()
