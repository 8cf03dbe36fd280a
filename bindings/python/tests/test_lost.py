"""A lost lease: what the holder's threads learn, and when."""

from __future__ import annotations

import logging
import threading

import pytest
from conftest import SOON, eventually

import holdline


def test_a_thread_waits_for_the_loss(client: holdline.Client, name: str) -> None:
    grant = client.lock(name, max_hold=0.3).acquire()
    assert grant.lost.wait(SOON)
    assert grant.lost.is_set() and grant.lost.reason == "max_hold" and grant.remaining == 0
    assert grant.release().lost == "max_hold"
    assert grant.lost.is_set()


def test_a_release_is_no_loss(client: holdline.Client, name: str) -> None:
    calls: list[object] = []
    grant = client.lock(name, on_lost=calls.append).acquire()
    assert not grant.lost.wait(0) and not grant.lost.is_set()
    seen: list[bool] = []
    thread = threading.Thread(target=lambda: seen.append(grant.lost.wait(SOON)))
    thread.start()
    grant.release()
    thread.join(SOON)
    assert seen == [False] and calls == [] and grant.lost.reason is None


def test_a_grant_that_nobody_has_is_released(client: holdline.Client, name: str) -> None:
    grant: object = client.lock(name, on_lost=print).acquire()
    assert client.inspect(name)["is_held"]
    del grant
    eventually(lambda: not client.inspect(name)["is_held"])


def test_on_lost_is_called_once_with_the_grant(client: holdline.Client, name: str) -> None:
    calls: list[tuple[holdline.Grant, str | None]] = []
    lock = client.lock(name, max_hold=0.3, on_lost=lambda g: calls.append((g, g.lost.reason)))
    grant = lock.acquire()
    eventually(lambda: calls)
    grant.release()
    assert calls == [(grant, "max_hold")]


def test_an_error_of_on_lost_is_logged(
    client: holdline.Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: object) -> None:
        raise LookupError("as planned")

    grant = client.lock(name, max_hold=0.3, on_lost=fails).acquire()
    eventually(lambda: "a callback failed" in caplog.text)
    assert grant.release().lost == "max_hold"


def test_a_block_that_lost_its_lease_raises(client: holdline.Client, name: str) -> None:
    with pytest.raises(holdline.Lost) as lost, client.lock(name, max_hold=0.3) as grant:
        grant.lost.wait(SOON)
    assert (lost.value.kind, lost.value.reason) == ("lost", "max_hold")
    assert str(lost.value).endswith("before the end of the block: held for as long as max_hold allows")


def test_a_store_that_forgets(redis: holdline.Client, url_of: object, name: str) -> None:
    from redis import Redis

    url = url_of("redis")  # type: ignore[operator]
    grant = redis.lock(name, lease_duration=2).acquire()
    with Redis.from_url(url) as store:
        store.flushall()
    assert grant.lost.wait(SOON) and grant.lost.reason == "missing"


def test_a_lease_that_another_process_released(
    client: holdline.Client, clients: object, name: str
) -> None:
    grant = client.lock(name, lease_duration=2).acquire()
    lease = grant.detach()
    taken = client.attach(lease)
    assert client.release(lease).is_released
    with pytest.raises(holdline.Lost):
        taken.renew()
    assert taken.lost.wait(SOON)


def test_events_of_the_library_are_logged(
    url_of: object, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="holdline")
    # The level is taken over when a client is made.
    client = holdline.Client("memory:logged")
    grant = client.lock(name, max_hold=0.3).acquire()
    grant.lost.wait(SOON)
    eventually(lambda: [r for r in caplog.records if name in r.getMessage()])
    record = next(r for r in caplog.records if name in r.getMessage())
    assert record.name.startswith("holdline") and record.levelno >= logging.DEBUG
    caplog.set_level(logging.WARNING, logger="holdline")
    holdline.Client("memory:logged")


def test_leases_are_renewed_while_nobody_else_gets_the_interpreter(
    redis: holdline.Client, name: str
) -> None:
    import ctypes

    with redis.lock(name, lease_duration=6) as grant:
        # Functions of a `PyDLL` keep the interpreter's lock.
        ctypes.PyDLL(None).usleep(8_000_000)  # event: it is longer than the lease
        assert grant.is_valid
        assert redis.inspect(name)["holders"][0]["fencing_token"] == grant.fencing_token
