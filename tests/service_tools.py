"""A service in this process, asked through its ASGI application; and one in a process of its own."""

import asyncio
import atexit
import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np

from sketchbandits.environments import correlated_arms
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.requests import CreateBandit
from sketchbandits.service.http.api import make_app
from sketchbandits.service.service import Service, Settings

ARMS = correlated_arms(n_arms=12, dim=5, group_size=3, normalize="max", seed=2)
IDS = tuple(f"a{i}" for i in range(len(ARMS)))
PATIENCE = 60.0
COMPILED = {**os.environ, "NUMBA_DISABLE_JIT": "0"}  # a process of its own is the real one, also where tests run plain


def bandit(name="default", **rules):
    return CreateBandit(name, BanditConfig(**{"policy": "ucb1", "reward_range": None, **rules}), IDS, ARMS)


@contextlib.asynccontextmanager
async def service_at(state, *bandits, **settings):
    """A running service and an HTTP client of it; UCB1 by default, whose kernels compile fast."""
    made = Settings(Path(state), **{"open": True, "bandits": bandits or (bandit(),), **settings})
    Path(state).mkdir(exist_ok=True)
    service = Service(made)
    await service.start()
    try:
        async with client_of(service) as client:
            yield service, client
    finally:
        await service.stop()


def client_of(service, key=None):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    transport = httpx.ASGITransport(make_app(service), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers)


def run(coroutine):
    return asyncio.run(coroutine)


class Process:
    """``sketchbandits serve`` on a free port."""

    def __init__(self, state, *flags):
        self.errors = Path(state).with_suffix(".stderr")
        with self.errors.open("a") as file:
            file.write("--- start\n")
            file.flush()
            command = [sys.executable, "-m", "sketchbandits", "serve", "--state", str(state), "--port", "0"]
            self.process = subprocess.Popen([*command, *map(str, flags)], stderr=file, stdout=file, env=COMPILED)
        atexit.register(self.kill)  # nothing outlives a test that fails
        self.address = self._address()

    def text(self):
        return self.errors.read_text().rpartition("--- start\n")[2]

    def _address(self):
        limit = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < limit:
            if found := re.search(r"serving .* at (http://\S+)\n", self.text()):
                return found[1]
            time.sleep(0.02)
        self.kill()
        raise AssertionError(f"not started: {self.text()}")

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self, signal):
        self.process.send_signal(signal)
        return self.process.wait(PATIENCE)


def write_arms(path, arms=ARMS):
    np.save(path, arms)
    return path
