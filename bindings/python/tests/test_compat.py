"""The drop-in for redis-py's `Lock`, beside the original on one server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.lock
from conftest import SOON, eventually
from redis.exceptions import LockError, LockNotOwnedError

from holdline.compat import redis_lock


@pytest.fixture
def db(url_of: Callable[[str], str]) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url_of("redis")) as client:
        yield client


def test_signatures_are_equal() -> None:
    import inspect

    for method in ("__init__", "acquire", "release", "extend", "reacquire", "locked", "owned"):
        theirs = inspect.signature(getattr(redis.lock.Lock, method)).parameters
        ours = inspect.signature(getattr(redis_lock.Lock, method)).parameters
        assert list(theirs) == list(ours)[: len(theirs)], method
        for name, parameter in theirs.items():
            assert ours[name].default == parameter.default, (method, name)


@pytest.mark.parametrize("timeout", [None, 20])
def test_both_classes_exclude_each_other(db: redis.Redis, name: str, timeout: Any) -> None:
    ours, theirs = redis_lock.Lock(db, name, timeout), redis.lock.Lock(db, name, 20)
    with ours:
        assert ours.locked() and ours.owned() and theirs.locked()
        assert not theirs.acquire(blocking=False)
        assert ours.fencing_token > 0
    with theirs:
        assert ours.locked() and not ours.owned()
        assert not ours.acquire(blocking=False)
        assert not ours.acquire(blocking_timeout=0.05)
        with pytest.raises(LockError), redis_lock.Lock(db, name, blocking=False):
            pytest.fail("it is held")
    assert not ours.locked()


def test_leases_are_extended_as_by_the_original(db: redis.Redis, name: str) -> None:
    lock = redis_lock.Lock(db, name, timeout=10)
    assert lock.acquire()
    assert 9000 < db.pttl(name) <= 10000
    assert lock.extend(30)
    assert 35000 < db.pttl(name) <= 40000
    assert lock.extend(60, replace_ttl=True)
    assert 55000 < db.pttl(name) <= 60000
    # A shorter time leaves it as it is.
    assert lock.reacquire() and lock.extend(1, replace_ttl=True)
    assert db.pttl(name) > 50000
    lock.release()
    for call in (lock.release, lock.reacquire, lambda: lock.extend(1)):
        with pytest.raises(LockError):
            call()


def test_a_lock_without_a_timeout_is_not_extended(db: redis.Redis, name: str) -> None:
    with redis_lock.Lock(db, name) as lock:
        for call in (lock.reacquire, lambda: lock.extend(1)):
            with pytest.raises(LockError):
                call()


def test_a_lost_lock_is_not_owned(db: redis.Redis, name: str) -> None:
    lock = redis_lock.Lock(db, name, timeout=10)
    assert lock.acquire()
    db.set(name, "another's")
    assert not lock.owned()
    with pytest.raises(LockNotOwnedError):
        lock.extend(1)
    with pytest.raises(LockNotOwnedError):
        lock.release()
    db.delete(name)
    with redis_lock.Lock(db, name, timeout=10, raise_on_release_error=False):
        db.delete(name)


@pytest.mark.parametrize("thread_local", [True, False])
def test_other_threads_see_the_lock_or_not(
    db: redis.Redis, name: str, thread_local: bool
) -> None:
    lock = redis_lock.Lock(db, name, timeout=10, thread_local=thread_local)
    assert lock.acquire()
    owned: list[bool] = []
    thread = threading.Thread(target=lambda: owned.append(lock.owned()))
    thread.start()
    thread.join(SOON)
    assert owned == [not thread_local]
    lock.release()


@pytest.mark.parametrize("timeout", [None, 20])
def test_a_block_that_is_left_on_another_thread_raises_as_the_original(
    db: redis.Redis, name: str, timeout: Any
) -> None:
    lock = redis_lock.Lock(db, name, timeout)
    entered, ends = threading.Event(), threading.Event()

    def enters() -> None:
        lock.__enter__()
        entered.set()
        assert ends.wait(SOON)

    thread = threading.Thread(target=enters)
    thread.start()
    assert entered.wait(SOON)
    with pytest.raises(LockError):
        lock.__exit__(None, None, None)
    assert lock.locked()
    ends.set()
    thread.join(SOON)
    if timeout is None:
        # The lease is renewed no longer than the thread lives.
        eventually(lambda: not lock.locked())
    else:
        assert 0 < db.pttl(name) <= 20000


@pytest.mark.parametrize("thread_local", [True, False])
def test_threads_that_share_a_lock_leave_nothing(
    db: redis.Redis, name: str, thread_local: bool
) -> None:
    lock = redis_lock.Lock(db, name, thread_local=thread_local)
    inside: list[int] = []

    def work(_: int) -> None:
        with lock:
            inside.append(1)
            assert len(inside) == 1
            inside.pop()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(20)))
    assert not lock.locked()


def test_what_it_cannot_do_is_refused(db: redis.Redis, name: str) -> None:
    with pytest.raises(ValueError, match="token"):
        redis_lock.Lock(db, name).acquire(token="mine")
    with pytest.raises(ValueError, match="lease"):
        redis_lock.Lock(db, name, timeout=0.001)
    with pytest.raises(TypeError):
        redis_lock.Lock(db, 5)  # type: ignore[arg-type]


def test_urls_of_clients() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "redis://localhost:6379/0?"),
        ({"host": "h", "port": 7, "db": 3}, "redis://h:7/3?"),
        ({"host": "::1", "password": "p/w"}, "redis://:p%2Fw@[::1]:6379/0?"),
        ({"username": "u", "password": "p", "ssl": True}, "rediss://u:p@localhost:6379/0?"),
        ({"unix_socket_path": "/tmp/s", "db": 2}, "redis+unix:///tmp/s?db=2&"),
    ]
    for options, url in cases:
        client = redis.Redis(**options)
        assert redis_lock.url_of(client) == url + "dialect=plain&key_template={name}"
