"""Observers: which events they receive, on which thread, and that they delay no renewal."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from conftest import SOON, eventually
from prometheus_client import CollectorRegistry

import holdline
from holdline._observers import _METHODS
from holdline.prometheus import LockCollector


class Log(holdline.Observer):
    """Keeps the events, and the threads that called it."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.threads: set[str] = set()

    def of(self, name: str) -> list[str]:
        events = list(self.events)
        return [method for method, (lock, *_) in events if lock.name == name]

    def last(self, method: str) -> Any:
        return next(arguments for found, arguments in self.events[::-1] if found == method)


def keeping(method: str) -> Callable[..., None]:
    def keep(self: Log, *arguments: Any) -> None:
        self.threads.add(threading.current_thread().name)
        self.events.append((method, arguments))

    return keep


for _method in _METHODS:
    setattr(Log, _method, keeping(_method))


def test_the_events_of_a_lock(name: str, url_of: Callable[[str], str]) -> None:
    log = Log()
    with holdline.Client(url_of("redis"), observers=[log], classes={"python/": "p"}) as client:
        first = client.lock(name, lease_duration=20, renew_interval=0.1).acquire()
        waiter = threading.Thread(target=lambda: client.lock(name).acquire().release())
        waiter.start()
        eventually(lambda: "on_queued" in log.of(name) and "on_renewed" in log.of(name))
        lock, position, holder = log.last("on_queued")
        assert (lock.mode, lock.engine, lock.lock_class) == ("exclusive", "redis", "p")
        assert position == 0
        assert holder is None or holder["pid"] == os.getpid()
        first.release()
        waiter.join()
        eventually(lambda: log.of(name).count("on_ended") == 2)
        once = [event for event in log.of(name) if event not in ("on_queued", "on_renewed")]
        assert once[:2] == ["on_acquired", "on_wait_started"]
        assert sorted(once[2:]) == sorted(
            ["on_released", "on_ended"] * 2 + ["on_acquired", "on_wait_finished"]
        )
        lock, release = log.last("on_released")
        assert release.confirmed and release.held_for is not None
        assert log.last("on_ended")[1] == "released"
        assert log.last("on_acquired")[1] > first.fencing_token
        assert log.threads == {"holdline-observers"}


def test_failures_losses_and_what_was_given_up(name: str) -> None:
    log = Log()
    with holdline.Client("memory:observers", observers=[log]) as client:
        with client.lock(name), pytest.raises(holdline.Busy):
            client.lock(name).try_acquire()
        eventually(lambda: "on_failed" in log.of(name))
        _, error = log.last("on_failed")
        assert isinstance(error, holdline.Busy) and error.holder is not None
        lost = client.lock(name, max_hold=0.05).acquire()
        eventually(lambda: "on_lost" in log.of(name))
        assert log.last("on_lost")[1] == "max_hold"
        lost.release()
        client.lock(name).acquire()  # nobody has it
        gc.collect()
        eventually(lambda: "on_dropped" in log.of(name))
        lease = client.lock(name).acquire().detach()
        grant = client.attach(lease)
        eventually(lambda: "on_attached" in log.of(name))
        assert log.last("on_attached")[1] == grant.fencing_token
        grant.release()


def test_the_health_of_a_quorum(url_of: Callable[[str], str]) -> None:
    log = Log()
    with holdline.Client(url_of("redlock"), observers=[log]):
        eventually(lambda: any(method == "on_quorum_health" for method, _ in log.events))
        (health,) = log.last("on_quorum_health")
        assert (health.engine, health.margin, len(health.nodes)) == ("redlock", 1, 3)
        assert all(node.up and node.votes for node in health.nodes)


class Stuck(holdline.Observer):
    """Does not return from its first call until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()
        self.acquired = 0
        self.left_out = 0

    def on_acquired(self, lock: holdline.Subject, fencing_token: int, waited: float) -> None:
        self.entered.set()
        self.let_go.wait()
        self.acquired += 1

    def on_events_left_out(self, count: int) -> None:
        self.left_out += count


def test_an_observer_that_does_not_return_delays_no_renewal(
    name: str, url_of: Callable[[str], str]
) -> None:
    registry = CollectorRegistry()
    registry.register(LockCollector())
    labels = {"engine": "redis", "class": "stuck"}

    def renewals() -> float:
        return registry.get_sample_value("holdline_lease_slack_seconds_count", labels) or 0

    stuck = Stuck()
    with holdline.Client(url_of("redis"), metrics=True, observers=[stuck]) as client:
        grant = client.lock(name, lock_class="stuck", renew_interval=0.1).acquire()
        assert stuck.entered.wait(SOON)
        before = renewals()
        eventually(lambda: renewals() >= before + 10)
        assert grant.is_valid and grant.lost.reason is None
        # Nor is a callback of another kind delayed, or a release.
        called = threading.Event()
        short = client.lock(f"{name}/other", max_hold=0.05, on_lost=lambda _: called.set())
        lost = short.acquire()
        assert called.wait(SOON)
        lost.release()
        assert grant.release().confirmed
        assert stuck.acquired == 0
        stuck.let_go.set()


def test_more_events_than_are_kept_are_counted(name: str) -> None:
    stuck = Stuck()
    with holdline.Client("memory:observers", observers=[stuck]) as client:
        lock = client.lock(name)
        lock.acquire().release()
        assert stuck.entered.wait(SOON)
        for _ in range(10_050):
            lock.acquire().release()
        stuck.let_go.set()
        eventually(lambda: stuck.left_out)
        assert (stuck.acquired, stuck.left_out) == (10_001, 50)


def test_an_observer_that_raises_is_logged_and_goes_on(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Raises(holdline.Observer):
        def on_acquired(self, lock: holdline.Subject, fencing_token: int, waited: float) -> None:
            raise SystemExit(f"no {fencing_token}")

    log = Log()
    with holdline.Client("memory:observers", observers=[Raises(), log]) as client:
        for _ in range(2):
            with client.lock(name) as grant:
                assert grant.is_valid
        eventually(lambda: log.of(name).count("on_ended") == 2)
    failed = "an observer failed in on_acquired"
    assert [record.getMessage() for record in caplog.records].count(failed) == 2


def test_only_observers_are_taken() -> None:
    with pytest.raises(TypeError, match=r"an observer is a holdline\.Observer, not str"):
        holdline.Client("memory:", observers=["log"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="classes"):
        holdline.Client("memory:", classes={"a": 1})  # type: ignore[dict-item]


def threads() -> int:
    return sum(thread.name == "holdline-observers" for thread in threading.enumerate())


def test_the_thread_ends_with_the_client() -> None:
    gc.collect()
    client = holdline.Client("memory:observers", observers=[Log()])
    before = threads()
    del client
    gc.collect()
    eventually(lambda: threads() < before)


PROGRAM = """
import os, sys, holdline

class Print(holdline.Observer):
    def on_ended(self, lock, end, held_for):
        os.write(1, f"{lock.name} {end}\\n".encode())

client = holdline.Client(sys.argv[1], observers=[Print()])
with client.lock(sys.argv[2] + "/parent"):
    pass
child = os.fork()
if child == 0:
    grant = client.lock(sys.argv[2] + "/child").acquire()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
grant = client.lock(sys.argv[2] + "/end").acquire()
"""


def test_events_arrive_in_a_forked_child_and_until_the_end(
    name: str, url_of: Callable[[str], str]
) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, url_of("redis"), name],
        capture_output=True,
        text=True,
        timeout=SOON,
    )
    assert ran.returncode == 0, ran.stderr
    ends = [f"{name}/{which} released" for which in ("parent", "child", "end")]
    assert ran.stdout.splitlines() == ends, ran.stderr
