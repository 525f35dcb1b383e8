"""The OpenAPI document and the service agree: what it allows is answered as it says, never by a server error."""

import asyncio
import threading

import hypothesis
import pytest
import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance
from service_tools import bandit, service_at

from sketchbandits.service.http.api import make_app
from sketchbandits.service.http.openapi import document
from sketchbandits.service.keys import ADMIN


class Running:
    """A service whose loop runs in a thread: its application may then be called from anywhere."""

    def __init__(self, folder):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.context = service_at(folder, bandit(), bandit("second", exploration=0.5))
        self.service, _ = self.wait(self.context.__aenter__())
        self.app = make_app(self.service)
        self.headers = {"Authorization": f"Bearer {self.service.keys.create('a test', ADMIN)}"}

    def wait(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    async def __call__(self, scope, receive, send):
        """The application, in the service's own loop."""
        here = asyncio.get_running_loop()

        def over_here(function):
            async def call(*arguments):
                future = asyncio.run_coroutine_threadsafe(function(*arguments), here)
                return await asyncio.wrap_future(future)

            return call

        there = asyncio.run_coroutine_threadsafe(self.app(scope, over_here(receive), over_here(send)), self.loop)
        await asyncio.wrap_future(there)

    def close(self):
        self.wait(self.context.__aexit__(None, None, None))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    service = Running(tmp_path_factory.mktemp("openapi") / "state")
    yield service
    service.close()


# Equally many features in every arm, a policy's own options: more than a schema can say, so 422 is right.
BEYOND = {(path, "POST"): [positive_data_acceptance] for path in ("/v1/arms", "/v1/bandits")}
OPERATIONS = [(path, method.upper()) for path, methods in document()["paths"].items() for method in methods]


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_answer_is_as_described(running, path, method):
    operation = schemathesis.openapi.from_asgi("/openapi.json", running)[path][method]

    def check(case):
        case.call_and_validate(headers=running.headers, excluded_checks=BEYOND.get((path, method), []))

    hypothesis.settings(
        max_examples=60,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )(hypothesis.given(case=operation.as_strategy())(check))()
