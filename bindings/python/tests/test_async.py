"""The same locks in event loops of asyncio and trio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from conftest import SOON, eventually

import holdline

Run = Callable[[Callable[[], Awaitable[None]]], None]


def _asyncio_run(main: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(main(), SOON))


def _trio_run(main: Callable[[], Any]) -> None:
    async def limited() -> None:
        with trio.fail_after(SOON):
            await main()

    trio.run(limited)


@pytest.fixture(params=[_asyncio_run, _trio_run], ids=["asyncio", "trio"])
def run(request: Any) -> Run:
    runner: Run = request.param
    return runner


def test_async_with_holds_the_name(client: holdline.Client, name: str, run: Run) -> None:
    async def main() -> None:
        async with client.alock(name, wait=10) as grant:
            assert grant.is_valid
            assert (await client.ainspect(name))["is_held"]
            with pytest.raises(holdline.TimedOut):
                await client.lock(name, wait=0.05).aacquire()
            with pytest.raises(holdline.Busy):
                await client.lock(name).atry_acquire()
            assert await grant.arenew() > 0
        assert not (await client.ainspect(name))["is_held"]

    run(main)


def test_a_client_connects_in_an_event_loop(redis: holdline.Client, url_of: Any, run: Run) -> None:
    async def main() -> None:
        async with await holdline.Client.aconnect(url_of("redis")) as client:
            assert client.engine == "redis"
        with pytest.raises(holdline.Invalid):
            await holdline.Client.aconnect("redsi://localhost")

    run(main)


def test_other_tasks_run_while_one_waits_asyncio(client: holdline.Client, name: str) -> None:
    async def main() -> None:
        lock = client.alock(name, wait=SOON)
        tokens: list[int] = []

        async def work() -> None:
            for _ in range(5):
                async with lock.aacquire() as grant:
                    tokens.append(grant.fencing_token)

        await asyncio.gather(*(work() for _ in range(4)))
        assert len(tokens) == 20 and tokens == sorted(set(tokens))

    _asyncio_run(main)


def test_other_tasks_run_while_one_waits_trio(client: holdline.Client, name: str) -> None:
    async def main() -> None:
        lock = client.alock(name, wait=SOON)
        tokens: list[int] = []

        async def work() -> None:
            for _ in range(5):
                async with lock.aacquire() as grant:
                    tokens.append(grant.fencing_token)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(work)
        assert len(tokens) == 20 and tokens == sorted(set(tokens))

    _trio_run(main)


async def _queued(client: holdline.Client, name: str, pause: Callable[[float], Any]) -> None:
    while (await client.ainspect(name))["queue_length"] == 0:
        await pause(0.01)  # event: it is looked at again


def test_a_cancelled_task_leaves_nothing_asyncio(client: holdline.Client, name: str) -> None:
    async def main() -> None:
        async with client.alock(name):
            waiting = asyncio.ensure_future(client.lock(name).aacquire())
            await _queued(client, name, asyncio.sleep)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.lock(name).aacquire(), 0.05)
        # It may be handed the name before it has given up its place.
        eventually(lambda: not client.inspect(name)["is_held"])
        assert client.inspect(name)["queue_length"] == 0

    asyncio.run(main())


def test_a_cancelled_task_leaves_nothing_trio(client: holdline.Client, name: str) -> None:
    async def main() -> None:
        async with client.alock(name):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.lock(name).aacquire)
                await _queued(client, name, trio.sleep)
                nursery.cancel_scope.cancel()
        # It may be handed the name before it has given up its place.
        eventually(lambda: not client.inspect(name)["is_held"])
        assert client.inspect(name)["queue_length"] == 0

    _trio_run(main)


def test_all_kinds_in_an_event_loop(client: holdline.Client, name: str, run: Run) -> None:
    async def job(grant: holdline.OnceRun) -> float:
        return grant.slot_start

    async def main() -> None:
        async with client.rwlock(f"{name}/rw").read() as grant:
            assert grant.mode == "shared"
        async with client.semaphore(f"{name}/s", 2, 2) as grant:
            assert grant.mode == "permits"
        async with client.any_of([f"{name}/a", f"{name}/b"]) as grant:
            assert grant.name.startswith(name)
        async with client.lock_all([f"{name}/a", f"{name}/b"]) as grants:
            assert grants.is_valid
        election = client.election(f"{name}/e")
        async with election.campaign("here") as leadership:
            await leadership.aproclaim("there")
            leader = await election.aleader()
            assert leader is not None and leader.value == "there"
            async for leader in election.observe():
                assert leader.term == leadership.term
                break
        outcome = await client.once(f"{name}/o", every=86400 * 300).arun(job)
        assert outcome.ran
        outcome = await client.once(f"{name}/o", every=86400 * 300).arun(job)
        assert outcome.outcome == "already_ran"
        grant = await client.lock(f"{name}/d").aacquire()
        lease = await grant.adetach()
        assert await client.arenew(lease) > 0
        grant = await client.aattach(lease)
        assert (await client.arelease(await grant.adetach())).is_released

    run(main)


def test_a_loss_is_awaited(client: holdline.Client, name: str, run: Run) -> None:
    async def main() -> None:
        grant = await client.lock(name, max_hold=0.3).aacquire()
        assert await grant.lost == "max_hold"
        assert grant.lost.is_set() and grant.lost.reason == "max_hold" and not grant.is_valid
        assert (await grant.arelease()).lost == "max_hold"

    run(main)


def test_the_end_of_a_block_reports_a_loss(client: holdline.Client, name: str, run: Run) -> None:
    async def main() -> None:
        with pytest.raises(holdline.Lost) as lost:
            async with client.lock(name, max_hold=0.3) as grant:
                await grant.lost
        assert (lost.value.reason, lost.value.certainty) == ("max_hold", "unknown")
        # An error of the block's own is not hidden.
        with pytest.raises(LookupError):
            async with client.lock(name, max_hold=0.3) as grant:
                await grant.lost
                raise LookupError

    run(main)


def test_on_lost_runs_in_the_loop(client: holdline.Client, name: str) -> None:
    async def main() -> None:
        loop, here = asyncio.get_running_loop(), threading.get_ident()
        called, awaited = loop.create_future(), loop.create_future()

        async def on_lost(grant: holdline.Grant) -> None:
            await asyncio.sleep(0)  # event: a task of its own
            awaited.set_result(grant.lost.reason)

        def sync(grant: holdline.Grant) -> None:
            called.set_result((grant.lost.reason, threading.get_ident()))

        one = await client.lock(name, max_hold=0.3, on_lost=sync).aacquire()
        assert await called == ("max_hold", here)
        other = await client.lock(f"{name}/2", max_hold=0.3, on_lost=on_lost).aacquire()
        assert await awaited == "max_hold"
        assert not one.is_valid and not other.is_valid

    _asyncio_run(main)


def test_blocks_of_tasks_that_take_turns_keep_their_own_grants(
    client: holdline.Client, name: str
) -> None:
    async def main() -> None:
        pool = client.semaphore(name, 2)
        entered, left = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            # A block without `async`, in an event loop.
            with pool.acquire() as grant:
                await entered.wait()
                assert grant.is_valid
            assert not grant.is_valid
            left.set()

        async def second() -> None:
            with pool.acquire() as grant:
                entered.set()
                await left.wait()
                assert grant.is_valid

        await asyncio.gather(first(), second())

    _asyncio_run(main)


def test_many_tasks_wait_with_one_descriptor(redis: holdline.Client, name: str) -> None:
    import os

    async def main() -> None:
        async with redis.alock(name):
            before = len(os.listdir("/proc/self/fd"))
            waiting = [asyncio.ensure_future(redis.lock(name).aacquire()) for _ in range(200)]
            while (await redis.ainspect(name))["queue_length"] < 200:
                await asyncio.sleep(0.01)  # event: it is looked at again
            assert len(os.listdir("/proc/self/fd")) <= before + 2
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    _asyncio_run(main)
