"""A real PostgreSQL server for tests: in a temporary folder, on a unix socket only, gone when the test is over."""

import getpass
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SECONDS_TO_START = 30.0


class NoServer(Exception):
    """Why no server can be started here."""


class Server:
    """A server that can be stopped and started; `address` is what a client connects to."""

    def __init__(self, folder: Path, user: str) -> None:
        self._folder, self._user, self._process = folder, user, None
        self.address = f"postgresql://tester@/postgres?host={folder}"
        self._run(_binary("initdb"), "-D", folder / "data", "-U", "tester", "-A", "trust", "--no-sync", "--no-locale")

    def start(self) -> None:
        options = ["-k", self._folder, "-c", "listen_addresses=", "-c", "max_connections=20", "-F"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [_binary("postgres"), "-D", self._folder / "data", *options],
                **self._as_user(),
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + _SECONDS_TO_START
        while subprocess.run([_binary("pg_isready"), "-q", "-h", self._folder], check=False).returncode:
            if self._process.poll() is not None or time.monotonic() > end:
                raise NoServer((self._folder / "log").read_text(errors="replace")[-1000:])
            time.sleep(0.05)

    def stop(self) -> None:
        """End every session immediately, as a crash of the server does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._process = None

    def _run(self, *command: object) -> None:
        done = subprocess.run([str(part) for part in command], **self._as_user(), capture_output=True, check=False)
        if done.returncode:
            raise NoServer(done.stderr.decode(errors="replace")[-1000:])

    def _as_user(self) -> dict:
        identity = {"user": self._user, "group": self._user, "extra_groups": []} if os.geteuid() == 0 else {}
        return {"cwd": self._folder, **identity}


@contextmanager
def running_server() -> Iterator[Server]:
    """A running server, or `NoServer` with the reason."""
    user = "postgres" if os.geteuid() == 0 else getpass.getuser()
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    server = None
    try:
        if os.geteuid() == 0:
            _hand_over(folder, user)
        server = Server(folder, user)
        server.start()
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _hand_over(folder: Path, user: str) -> None:
    try:
        shutil.chown(folder, user, user)
    except LookupError as error:
        raise NoServer(f"PostgreSQL does not run as root, and there is no user {user!r} ({error})") from None


def _binary(name: str) -> str:
    found = shutil.which(name) or max(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), default=None)
    if found is None:
        raise NoServer(f"PostgreSQL is not installed: there is no {name}")
    return found
