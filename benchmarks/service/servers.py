"""Servers in processes of their own, for the scripts here."""

import contextlib
import os
import re
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


class Served:
    """``sketchbandits serve`` on a free port; `address` once it is ready."""

    def __init__(self, state, *flags, limits=None):
        self.errors = tempfile.NamedTemporaryFile("w+", suffix=".log", delete=False)
        command = [
            sys.executable,
            "-m",
            "sketchbandits",
            "serve",
            "--state",
            str(state),
            "--port",
            "0",
            *map(str, flags),
        ]
        self.started = time.perf_counter()
        self.process = subprocess.Popen(command, stderr=self.errors, stdout=self.errors, preexec_fn=limits)
        self.address = self._address()

    def _address(self):
        while self.process.poll() is None:
            if found := re.search(r"serving .* at (http://\S+): ", self.text()):
                self.ready_seconds = time.perf_counter() - self.started
                return found[1]
            time.sleep(0.01)
        raise RuntimeError(f"the service did not start: {self.text()}")

    def text(self):
        return Path(self.errors.name).read_text()

    def stop(self, signal=15):
        if self.process.poll() is None:
            self.process.send_signal(signal)
        code = self.process.wait(120)
        self.errors.close()
        os.unlink(self.errors.name)
        return code

    def get(self, path):
        with urllib.request.urlopen(self.address + path, timeout=30) as answer:
            return answer.read()


@contextlib.contextmanager
def bare(path):
    process = subprocess.Popen([sys.executable, HERE / "bare.py", str(path)], stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
