"""The servers of the tests: real ones, started by the repository's own `services`."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdline

ROOT = Path(__file__).resolve().parents[3]
#: How long what must happen may take on a slow machine.
SOON = 60


class Services:
    """Starts servers at their first use; they end with the tests."""

    def __init__(self) -> None:
        self._urls: dict[str, str] = {}
        self._processes: list[subprocess.Popen[str]] = []

    def url(self, kind: str) -> str:
        if kind not in self._urls:
            program = os.environ.get("HOLDLINE_SERVICES")
            command = [program] if program else ["cargo", "xtask", "services"]
            process = subprocess.Popen(
                [*command, kind],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._processes.append(process)
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url, f"`services {kind}` started nothing"
            self._urls[kind] = url
        return self._urls[kind]

    def stop(self) -> None:
        for process in self._processes:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
            process.wait(timeout=SOON)
            process.stdout.close()


@pytest.fixture(scope="session")
def services() -> Iterator[Services]:
    services = Services()
    yield services
    services.stop()


_numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    """A lock name of this test alone."""
    return f"python/{os.getpid()}/{next(_numbers)}"


@pytest.fixture(scope="session")
def url_of(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    def url_of(engine: str) -> str:
        if engine == "memory":
            return "memory:tests"
        if engine == "local":
            return f"local:{tmp_path_factory.getbasetemp() / 'locks'}"
        return services.url(engine)

    return url_of


@pytest.fixture(scope="session")
def clients(url_of: Callable[[str], str]) -> Iterator[Callable[[str], holdline.Client]]:
    """One client for each engine."""
    made: dict[str, holdline.Client] = {}

    def client_of(engine: str) -> holdline.Client:
        if engine not in made:
            made[engine] = holdline.Client(url_of(engine))
        return made[engine]

    yield client_of
    for client in made.values():
        assert client.close(), client.engine


@pytest.fixture(params=["memory", "local", "redis"])
def client(request: Any, clients: Callable[[str], holdline.Client]) -> holdline.Client:
    """A client of each engine that needs no long start."""
    return clients(request.param)


@pytest.fixture
def redis(clients: Callable[[str], holdline.Client]) -> holdline.Client:
    return clients("redis")


def eventually(condition: Callable[[], object]) -> None:
    """Waits until the condition holds."""
    import time

    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)  # event: the condition is looked at again
