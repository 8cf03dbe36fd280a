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
#: The command line, with the feature `server`: it serves locks over HTTP, and founds quorums.
PROGRAM = os.environ.get("HOLDLINE_PROGRAM", str(ROOT / "target" / "debug" / "holdline"))


class Services:
    """Starts servers at their first use; they end with the tests."""

    def __init__(self) -> None:
        self._urls: dict[str, str] = {}
        self._processes: list[subprocess.Popen[str]] = []

    def url(self, kind: str) -> str:
        if kind not in self._urls:
            start = {"http": self._serve, "redlock": self._redlock}.get(kind)
            self._urls[kind] = start() if start else self._services(kind)[0]
        return self._urls[kind]

    def mortal(self, kind: str) -> tuple[str, Callable[[], object]]:
        """A server of one test, and what stops it."""
        url = self._services(kind)[0]
        process = self._processes[-1]

        def stop() -> None:
            process.terminate()
            process.wait(SOON)

        return url, stop

    def prometheus(self, rules: Path, target: str) -> str:
        """A Prometheus that scrapes a target and evaluates rules."""
        return self._services("prometheus", str(rules), target)[0]

    def _services(self, kind: str, *words: str, count: int = 1) -> list[str]:
        program = os.environ.get("HOLDLINE_SERVICES")
        command = [program] if program else ["cargo", "xtask", "services"]
        words = words or ("--count", str(count))
        process = self._started([*command, kind, *words], "stdout")
        assert process.stdout is not None
        urls = [process.stdout.readline().strip() for _ in range(count)]
        assert all(urls), f"`services {kind}` started too little"
        return urls

    def _started(self, command: list[str], says: str) -> subprocess.Popen[str]:
        pipes: Any = {"stdin": subprocess.PIPE, says: subprocess.PIPE}
        process = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)
        self._processes.append(process)
        return process

    def _redlock(self) -> str:
        hosts = [url.removeprefix("redis://") for url in self._services("redis", count=3)]
        url = "redlock://" + ",".join(hosts)
        for step in (["init"], ["vouch", "--yes"]):
            done = [PROGRAM, "--url", url, "quorum", *step]
            subprocess.run(done, check=True, capture_output=True, timeout=SOON)
        return url

    def _serve(self) -> str:
        command = [PROGRAM, "serve", "--url", self.url("redis"), "--listen", "127.0.0.1:0"]
        process = self._started(command, "stderr")
        assert process.stderr is not None
        for line in process.stderr:
            if "serves http://" in line:
                return line.split("serves ")[1].strip()
        raise AssertionError("`holdline serve` ended")

    def stop(self) -> None:
        # In reverse: a server of ours before the one of its store.
        for process in reversed(self._processes):
            process.terminate()
            process.communicate(timeout=SOON)


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
