"""The yardstick: the same framework and group commit, one row stored per request, and nothing else.

``python bare.py FILE`` serves it on a free port and prints the address.
"""

import asyncio
import socket
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class Rows:
    """Rows that wait for the next commit."""

    def __init__(self, path):
        self.database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.database.execute("PRAGMA journal_mode=WAL")
        self.database.execute("PRAGMA synchronous=FULL")
        self.database.execute("CREATE TABLE rows (seq INTEGER PRIMARY KEY, body TEXT)")
        self.waiting, self.wake, self.disk = [], asyncio.Event(), ThreadPoolExecutor(1)

    def store(self, bodies):
        self.database.execute("BEGIN IMMEDIATE")
        marks = ",".join(["(?)"] * len(bodies))  # one statement: sqlite3 waits for the interpreter at every one
        self.database.execute(f"INSERT INTO rows (body) VALUES {marks}", bodies)
        self.database.execute("COMMIT")

    async def run(self):
        loop = asyncio.get_running_loop()
        while True:
            await self.wake.wait()
            self.wake.clear()
            while self.waiting:
                group, self.waiting = self.waiting, []
                await loop.run_in_executor(self.disk, self.store, [body for body, _ in group])
                for _, future in group:
                    future.set_result(None)


async def main():
    rows = Rows(sys.argv[1])

    async def row(request: Request) -> Response:
        body = (await request.body()).decode()
        future = asyncio.get_running_loop().create_future()
        rows.waiting.append((body, future))
        rows.wake.set()
        await future
        return Response(b'{"stored":true}', media_type="application/json")

    bound = socket.create_server(("127.0.0.1", 0), backlog=2048)
    config = uvicorn.Config(
        Starlette(routes=[Route("/row", row, methods=["POST"])]),
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    writing = asyncio.create_task(rows.run())
    print(f"http://127.0.0.1:{bound.getsockname()[1]}", flush=True)
    await uvicorn.Server(config).serve(sockets=[bound])
    writing.cancel()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
