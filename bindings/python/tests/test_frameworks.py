"""The examples for frameworks, and servers that fork their workers, each as users run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, SOON, eventually

import holdline

EXAMPLES = ROOT / "bindings" / "python" / "examples"


@contextmanager
def process(command: list[str], directory: Path, **environment: str) -> Iterator[Any]:
    log = (directory / "log").open("w+")
    # A package of the directory goes first, and no warning of a framework ends it.
    path = os.pathsep.join([str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])])
    started = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=directory,
        env=os.environ | environment | {"PYTHONPATH": path},
        stdout=log,
        stderr=subprocess.STDOUT,
    )

    def said() -> str:
        assert started.poll() is None, (directory / "log").read_text()
        return (directory / "log").read_text()

    try:
        yield said
    finally:
        started.terminate()
        started.wait(SOON)
        log.close()


def test_fastapi(
    url_of: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("HOLDLINE_URL", url_of("redis"))
    monkeypatch.setenv("DATABASE", f"sqlite:///{tmp_path / 'db'}")
    import fastapi_stock
    from fastapi.testclient import TestClient

    item = os.getpid()
    with TestClient(fastapi_stock.app) as server:
        answers = [server.post(f"/stock/{item}/sell").json() for _ in range(3)]
        assert [answer["left"] for answer in answers] == [9, 8, 7]
        tokens = [answer["fencing_token"] for answer in answers]
        assert tokens == sorted(set(tokens))
        with holdline.Client(url_of("redis")).lock(f"stock/{item}"):
            busy = server.post(f"/stock/{item}/sell")
            assert (busy.status_code, busy.headers["retry-after"]) == (423, "1")
    fastapi_stock.engine.dispose()


def test_django(
    url_of: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("HOLDLINE_URL", url_of("redis"))
    monkeypatch.setenv("DATABASE", str(tmp_path / "db"))
    import django_stock
    from django.db import connection
    from django.test import Client

    from holdline.fence import SqlFence, Stale

    item = os.getpid() + 1
    django_stock.prepare()
    browser = Client()
    answers = [browser.get(f"/stock/{item}/sell").json() for _ in range(3)]
    assert [answer["left"] for answer in answers] == [9, 8, 7]
    with django_stock.locks.lock(f"stock/{item}"):
        assert browser.get(f"/stock/{item}/sell").status_code == 423
    with pytest.raises(Stale), SqlFence(f"stock/{item}").writing(connection, 1):
        pytest.fail("a late writer")
    connection.close()


ASKS = """
import sys
from celery_report import report
asked = [report.delay(sys.argv[1]) for _ in range(6)]
print(*[one.get(timeout=60) for one in asked])
print(report.delay(sys.argv[1] + "/other").get(timeout=60))
"""


def test_celery_runs_a_task_once_in_forked_workers(
    url_of: Callable[[str], str], tmp_path: Path, name: str
) -> None:
    stores = {"BROKER": url_of("redis"), "HOLDLINE_URL": url_of("redis")}
    worker = ["celery", "-A", "celery_report", "worker", "--pool=prefork", "--concurrency=3"]
    with process(worker, tmp_path, **stores):
        asked = subprocess.run(
            [sys.executable, "-c", ASKS, name],
            cwd=EXAMPLES,
            env=os.environ | stores,
            capture_output=True,
            text=True,
            timeout=2 * SOON,
        )
    assert asked.returncode == 0, asked.stderr
    first, other = asked.stdout.splitlines()
    # One ran, or two if the hour ended between two of them.
    assert first.split().count("None") in (4, 5), first
    assert other.isdigit()


def test_the_decorator_without_a_worker(redis: holdline.Client, name: str) -> None:
    import holdline.celery

    calls: list[str] = []

    @holdline.celery.once(lambda: redis, name + "/{0}/{mark}", cron="0 0 1 1 *", retries=1)
    def task(number: int, mark: str) -> str:
        calls.append(f"{number}{mark}")
        return mark

    assert [task(1, mark="a"), task(1, mark="b"), task(2, mark="a")] == ["a", "b", "a"]
    assert task(1, mark="a") is None
    assert calls == ["1a", "1b", "2a"]
    assert task.__name__ == "task"
    with pytest.raises(TypeError):
        holdline.celery.once("redis://localhost", every=60)  # type: ignore[arg-type]


APP = """
import json, os, holdline
client = holdline.Client()  # before the fork, as with `--preload`
with client.lock("warm"):
    pass

def app(environ, start_response):
    # Only another worker can count the rest: each of them handles one request at a time.
    all_here = client.latch("here" + environ["PATH_INFO"])
    all_here.count_down()
    all_here.wait()
    with client.lock(environ["PATH_INFO"], wait=60) as grant:
        body = json.dumps({"pid": os.getpid(), "token": grant.fencing_token}).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


def test_workers_of_gunicorn_that_are_forked_share_locks(
    url_of: Callable[[str], str], tmp_path: Path, name: str
) -> None:
    (tmp_path / "preloaded.py").write_text(APP)
    socket = ["gunicorn", "--preload", "--workers", "3", "--bind", "127.0.0.1:0", "preloaded:app"]
    with process(socket, tmp_path, HOLDLINE_URL=url_of("redis")) as said:
        eventually(lambda: "Listening at: " in said())
        address = said().split("Listening at: ")[1].split()[0]

        def ask(_: int) -> Any:
            with urllib.request.urlopen(f"{address}/{name}", timeout=SOON) as answer:
                return json.load(answer)

        assert holdline.Client(url_of("redis")).latch(f"here/{name}").set(3)
        with ThreadPoolExecutor(3) as threads:
            answers = list(threads.map(ask, range(3)))
    assert len({answer["token"] for answer in answers}) == 3
    assert len({answer["pid"] for answer in answers}) == 3
