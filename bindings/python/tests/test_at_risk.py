"""A lease that is at risk: what a holder learns of a revocation while it can still stop."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from conftest import PROGRAM, SOON, Services, eventually

import holdline

#: A lease that no slow machine loses.
LONG = 60


class Operator:
    """Somebody who asks holders to stop, with the command line."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._processes: list[subprocess.Popen[str]] = []

    def revokes(self, grant: holdline.Grant) -> subprocess.Popen[str]:
        """Asks the holder to stop; the program ends when the name is free, or after a minute."""
        command = [PROGRAM, "--url", self._url, "revoke", grant.name, "--reason", "roll back"]
        command += ["--if-fencing-token", str(grant.fencing_token), "--grace", f"{SOON}s"]
        self._processes.append(subprocess.Popen(command, text=True))
        return self._processes[-1]

    def leaves(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(SOON)


def state(risk: holdline.RiskEvent) -> tuple[object, ...]:
    return risk.is_set(), risk.reason, risk.message


@pytest.fixture(params=["local", "redis"])
def engine(request: Any) -> str:
    name: str = request.param
    return name


@pytest.fixture
def client(engine: str, clients: Callable[[str], holdline.Client]) -> holdline.Client:
    return clients(engine)


@pytest.fixture
def operator(engine: str, url_of: Callable[[str], str]) -> Iterator[Operator]:
    operator = Operator(url_of(engine))
    yield operator
    operator.leaves()


def test_a_holder_stops_when_it_is_revoked(
    client: holdline.Client, operator: Operator, name: str
) -> None:
    stop = threading.Event()
    calls: list[tuple[object, ...]] = []

    def on_at_risk(grant: holdline.Grant) -> None:
        calls.append((grant.at_risk.reason, grant.is_valid, grant.lost.is_set()))
        stop.set()

    losses: list[object] = []
    options: Any = {"on_at_risk": on_at_risk, "on_lost": losses.append}
    with client.lock(name, lease_duration=LONG, **options) as grant:
        assert state(grant.at_risk) == (False, None, None)
        revoke = operator.revokes(grant)
        assert stop.wait(SOON)
        assert state(grant.at_risk) == (True, "revoked", "revoked by an operator: roll back")
        assert revoke.poll() is None, "it waits for the holder"
    # The name is free since the release, not since the end of the lease.
    assert revoke.wait(SOON) == 0
    assert calls == [("revoked", True, False)] and losses == []
    assert state(grant.at_risk) == (False, None, None)


def test_a_thread_waits_for_the_risk(
    client: holdline.Client, operator: Operator, name: str
) -> None:
    with client.lock(name, lease_duration=LONG) as grant:
        assert not grant.at_risk.wait(0)
        revoke = operator.revokes(grant)
        assert grant.at_risk.wait(SOON) and grant.at_risk.reason == "revoked"
        assert grant.is_valid and not grant.lost.is_set()
    assert revoke.wait(SOON) == 0


def test_a_task_of_asyncio_stops(client: holdline.Client, operator: Operator, name: str) -> None:
    async def main() -> None:
        calls: list[tuple[str | None, threading.Thread]] = []

        async def on_at_risk(grant: holdline.Grant) -> None:
            calls.append((grant.at_risk.reason, threading.current_thread()))

        async with client.alock(name, lease_duration=LONG, on_at_risk=on_at_risk) as grant:
            revoke = operator.revokes(grant)
            assert await grant.at_risk == "revoked" and grant.is_valid
            while not calls:
                await asyncio.sleep(0.01)  # event: it is looked at again
        assert await asyncio.to_thread(revoke.wait, SOON) == 0
        assert calls == [("revoked", threading.current_thread())]
        assert await grant.at_risk == "released"

    asyncio.run(asyncio.wait_for(main(), 2 * SOON))


def test_a_task_of_trio_stops(client: holdline.Client, operator: Operator, name: str) -> None:
    async def main() -> None:
        calls: list[str | None] = []

        def on_at_risk(grant: holdline.Grant) -> None:
            calls.append(grant.at_risk.reason)

        with trio.fail_after(2 * SOON):
            async with client.alock(name, lease_duration=LONG, on_at_risk=on_at_risk) as grant:
                revoke = operator.revokes(grant)
                assert await grant.at_risk == "revoked" and grant.is_valid
                while not calls:
                    await trio.sleep(0.01)  # event: it is looked at again
            assert await trio.to_thread.run_sync(revoke.wait, SOON) == 0
        assert calls == ["revoked"]

    trio.run(main)


def test_a_revocation_after_another_risk_is_reported_too(
    client: holdline.Client, operator: Operator, name: str
) -> None:
    calls: list[str | None] = []
    options: Any = {"on_at_risk": lambda grant: calls.append(grant.at_risk.reason)}
    # It cannot be renewed beyond its end, and is at risk once half of the time has passed.
    with client.lock(name, max_hold=16, **options) as grant:
        eventually(lambda: calls == ["runs_out"])
        revoke = operator.revokes(grant)
        eventually(lambda: len(calls) > 1)
    assert revoke.wait(SOON) == 0
    assert calls == ["runs_out", "revoked"]


def test_a_release_is_no_risk(client: holdline.Client, name: str) -> None:
    calls: list[object] = []
    grant = client.lock(name, on_at_risk=calls.append).acquire()
    seen: list[bool] = []
    thread = threading.Thread(target=lambda: seen.append(grant.at_risk.wait(SOON)))
    thread.start()
    grant.release()
    thread.join(SOON)
    assert seen == [False] and calls == [] and not grant.at_risk.is_set()
    assert not grant.at_risk.wait(SOON)


def test_a_loss_is_a_risk(client: holdline.Client, name: str) -> None:
    calls: list[object] = []
    grant = client.lock(name, max_hold=0.3, on_at_risk=calls.append).acquire()
    assert grant.at_risk.wait(SOON)
    assert grant.lost.wait(SOON)
    assert grant.at_risk.is_set() and grant.at_risk.reason == "max_hold"
    eventually(lambda: calls)
    grant.release()
    assert calls == [grant], "one call for the risk and the loss that follows"
    assert grant.at_risk.is_set() and grant.at_risk.reason == "max_hold"


def test_failing_renewals_are_a_risk(services: Services, name: str) -> None:
    url, stop = services.mortal("redis")
    client = holdline.Client(url)
    reasons: list[str | None] = []
    options: Any = {"on_at_risk": lambda grant: reasons.append(grant.at_risk.reason)}
    grant = client.lock(name, lease_duration=12, **options).acquire()
    stop()
    assert grant.at_risk.wait(SOON) and grant.is_valid
    eventually(lambda: reasons)
    assert reasons == ["not_renewed"]


@pytest.mark.parametrize(
    "acquire",
    [
        lambda client, name, options: client.rwlock(name, **options).write().acquire(),
        lambda client, name, options: client.semaphore(name, 2, **options).acquire(),
        lambda client, name, options: client.any_of([name], **options).acquire(),
        lambda client, name, options: client.lock_all([name], **options).acquire()[0],
        lambda client, name, options: client.many_of([name], 1, **options).acquire()[0],
        lambda client, name, options: client.election(name, **options).campaign().acquire(),
        lambda client, name, options: client.once(name, every=3600, **options).begin(),
    ],
    ids=["rwlock", "semaphore", "any_of", "lock_all", "many_of", "election", "once"],
)
def test_each_kind_takes_the_callback(
    acquire: Callable[[holdline.Client, str, Any], holdline.Grant],
    clients: Callable[[str], holdline.Client],
    name: str,
) -> None:
    calls: list[object] = []
    options = {"max_hold": 0.3, "on_at_risk": calls.append}
    grant = acquire(clients("memory"), name, options)
    eventually(lambda: calls)
    assert calls == [grant]
    grant.release()
