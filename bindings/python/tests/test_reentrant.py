"""Re-entry by an owner: depth, and errors of wrong order, of a wrong owner, and after a loss."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from conftest import SOON, eventually

import holdline


def test_blocks_stand_in_each_other(client: holdline.Client, name: str) -> None:
    owner = holdline.Owner()
    lock = client.rlock(name, owner)
    with lock as outer:
        # Another description, as a function that is called has one.
        with client.rlock(name, owner) as inner:
            assert inner.fencing_token == outer.fencing_token
            assert (lock.depth, lock.try_acquire().fencing_token) == (2, outer.fencing_token)
            assert lock.release().is_released
        assert lock.depth == 1
        assert outer.is_valid
        assert inner.lost.reason is None
        with pytest.raises(holdline.Busy):
            client.lock(name).try_acquire()
    assert lock.depth == 0
    with client.lock(name).try_acquire() as after:
        assert after.fencing_token > outer.fencing_token


def test_acquire_and_release_as_of_a_lock_of_threading(client: holdline.Client, name: str) -> None:
    lock = client.rlock(name, holdline.Owner())
    lock.acquire()
    lock.acquire()
    assert lock.release().confirmed
    assert client.inspect(name)["is_held"]
    release = lock.release()
    assert release.confirmed and release.held_for is not None
    assert not client.inspect(name)["is_held"]


def test_other_owners_wait(client: holdline.Client, name: str) -> None:
    entered: list[str] = []

    def work() -> None:
        with client.rlock(name, holdline.Owner()):
            entered.append("waiter")

    with client.rlock(name, holdline.Owner()):
        waiter = threading.Thread(target=work)
        waiter.start()
        eventually(lambda: client.inspect(name)["queue_length"] == 1)
        entered.append("first")
        with pytest.raises(holdline.TimedOut):
            client.rlock(name, holdline.Owner(), wait=0).acquire()
    waiter.join()
    assert entered == ["first", "waiter"]


def test_the_wrong_owner_releases_nothing(client: holdline.Client, name: str) -> None:
    lock = client.rlock(name, holdline.Owner())
    other = client.rlock(name, holdline.Owner())
    elsewhere = client.rlock(f"{name}/other", lock.owner)
    with lock as grant:
        for wrong in (other, elsewhere):
            with pytest.raises(holdline.Invalid, match="this owner does not hold it") as invalid:
                wrong.release()
            assert (invalid.value.certainty, invalid.value.details) == (
                "not_applied",
                {"field": "owner"},
            )
        assert grant.is_valid
    with pytest.raises(holdline.Invalid, match=f"{name}: this owner does not hold it"):
        lock.release()


def test_a_release_in_the_wrong_order_changes_nothing(client: holdline.Client, name: str) -> None:
    lock = client.rlock(name, holdline.Owner())
    outer = lock.acquire()
    inner = lock.acquire()
    innermost = lock.acquire()
    with pytest.raises(holdline.Invalid, match="wrong order.*first: 2 inner") as invalid:
        outer.release()
    assert (invalid.value.name, invalid.value.certainty) == (name, "not_applied")
    with pytest.raises(holdline.Invalid, match="first: 1 inner"):
        inner.release()
    assert (lock.depth, outer.is_valid, inner.is_valid) == (3, True, True)
    for grant in (innermost, inner, outer):
        assert grant.release().is_released
    with pytest.raises(holdline.Lost):
        outer.release()
    with client.lock(name).try_acquire():
        pass


def test_after_a_loss_all_are_released_before_the_next(client: holdline.Client, name: str) -> None:
    lock = client.rlock(name, holdline.Owner(), max_hold=0.1)
    with pytest.raises(holdline.Lost, match="max_hold|longer than"), lock as outer, lock as inner:
        assert outer.lost.wait(SOON) and inner.lost.wait(SOON)
        with pytest.raises(holdline.Lost) as lost:
            lock.acquire()
        assert lost.value.reason == "max_hold"
        assert lock.depth == 2
    assert lock.depth == 0
    with lock as again:
        assert again.fencing_token > outer.fencing_token


def test_a_release_after_a_loss_says_so(client: holdline.Client, name: str) -> None:
    lock = client.rlock(name, holdline.Owner(), max_hold=0.1)
    grant = lock.acquire()
    lock.acquire()
    assert grant.lost.wait(SOON)
    for _ in range(2):
        release = lock.release()
        assert (release.lost, release.is_released) == ("max_hold", False)


def test_in_an_event_loop(client: holdline.Client, name: str) -> None:
    async def main() -> None:
        owner = holdline.Owner()
        lock = client.rlock(name, owner)
        async with lock as outer, client.rlock(name, owner) as inner:
            assert inner.fencing_token == outer.fencing_token
            with pytest.raises(holdline.Invalid):
                await outer.arelease()
            other = client.rlock(name, holdline.Owner())
            waiter = asyncio.ensure_future(other.aacquire())
            with pytest.raises(holdline.Invalid):
                await other.arelease()
            await asyncio.sleep(0)
            assert not waiter.done()
        grant = await waiter
        assert grant.fencing_token > outer.fencing_token
        again = await other.atry_acquire()
        assert (other.depth, again.fencing_token) == (2, grant.fencing_token)
        await other.arelease()
        await other.arelease()
        assert not (await client.ainspect(name))["is_held"]

    asyncio.run(main())


def test_tasks_with_one_owner_are_inside_together(client: holdline.Client, name: str) -> None:
    async def main() -> None:
        lock = client.rlock(name, holdline.Owner())
        inside = 0
        both = asyncio.Event()

        async def work() -> int:
            nonlocal inside
            async with lock as grant:
                inside += 1
                if inside == 2:
                    both.set()
                await both.wait()
                return grant.fencing_token

        first, second = await asyncio.gather(work(), work())
        assert first == second
        assert not (await client.ainspect(name))["is_held"]

    asyncio.run(main())


def test_a_cancelled_wait_leaves_nothing(client: holdline.Client, name: str) -> None:
    async def main() -> None:
        lock = client.rlock(name, holdline.Owner())
        async with client.lock(name):
            waiter = asyncio.ensure_future(lock.aacquire())
            while not (await client.ainspect(name))["queue"]:
                await asyncio.sleep(0.01)  # event: it queues
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
        assert lock.depth == 0
        async with lock:
            pass

    asyncio.run(main())


def test_an_owner_that_nobody_has_releases(client: holdline.Client, name: str) -> None:
    lock = client.rlock(name, holdline.Owner())
    lock.acquire()
    lock.acquire()
    assert client.inspect(name)["is_held"]
    del lock
    gc.collect()
    eventually(lambda: not client.inspect(name)["is_held"])


def test_what_cannot_nest_is_refused(redis: holdline.Client, name: str) -> None:
    with pytest.raises(TypeError, match="`owner` is an Owner, not str"):
        redis.rlock(name, "me")  # type: ignore[arg-type]
    lock = redis.rlock(name, holdline.Owner())
    grant = lock.acquire()
    with pytest.raises(holdline.LockError):
        grant.detach()
    assert (lock.depth, grant.is_valid) == (1, True)
    assert lock.release().confirmed


FORKS = """
import os, sys, holdline

client = holdline.Client(sys.argv[1])
lock = client.rlock(sys.argv[2], holdline.Owner())
with lock as grant:
    child = os.fork()
    if child == 0:
        try:
            lock.try_acquire()
        except holdline.Busy:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert grant.is_valid and lock.depth == 1
"""


def test_a_forked_child_is_not_inside(name: str, url_of: Callable[[str], str]) -> None:
    # Newer interpreters warn of a fork beside threads.
    command = [sys.executable, "-W", "ignore", "-c", FORKS, url_of("redis"), name]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SOON)
    assert ran.returncode == 0, ran.stderr
