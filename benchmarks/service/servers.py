"""Servers in processes of their own, for the scripts here."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

from sketchbandits.environments import correlated_arms

HERE = Path(__file__).parent


def write_arms(path, n_arms, dim, group_size=10, seed=0):
    np.save(path, correlated_arms(n_arms=n_arms, dim=dim, group_size=group_size, normalize="max", seed=seed))
    return path


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return bound.getsockname()[1]


class Served:
    """``sketchbandits serve``, on a free port unless one is given; `address` once it is ready."""

    def __init__(self, state, *flags, limits=None, port=0, wait=True, environment=None):
        handle, self.errors = tempfile.mkstemp(suffix=".log")
        command = [
            sys.executable,
            "-m",
            "sketchbandits",
            "serve",
            "--state",
            str(state),
            "--port",
            str(port),
            *map(str, flags),
        ]
        self.started = time.perf_counter()
        self.process = subprocess.Popen(command, stderr=handle, stdout=handle, preexec_fn=limits, env=environment)
        os.close(handle)
        if wait:
            self.wait()

    def wait(self):
        """Until it is ready; whether it is."""
        self.address = self._address()

    def _address(self):
        while self.process.poll() is None:
            if found := re.search(r"serving .* at (http://\S+)\n", self.text()):
                self.ready_seconds = time.perf_counter() - self.started
                return found[1]
            time.sleep(0.01)
        raise RuntimeError(f"the service did not start: {self.text()}")

    def text(self):
        return Path(self.errors).read_text()

    def stop(self, signal=15):
        if self.process.poll() is None:
            self.process.send_signal(signal)
        code = self.process.wait(120)
        Path(self.errors).unlink(missing_ok=True)
        return code

    def close(self):
        """End it in any case."""
        self.stop(9)

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def get(self, path):
        with urllib.request.urlopen(self.address + path, timeout=30) as answer:
            return answer.read()


def cpu_seconds(pid):
    """Processor time of a process so far: less noisy than the clock where others work too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def bare(path):
    process = subprocess.Popen([sys.executable, HERE / "bare.py", str(path)], stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
