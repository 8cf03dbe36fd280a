"""Context managers: each `with` releases the grant that it acquired, wherever it is left."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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


def elsewhere(call: Callable[[], Any]) -> Any:
    """Calls a function on another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(SOON)


def free(client: holdline.Client, name: str) -> bool:
    """Whether nobody holds the name, or one below it."""
    return not any(state["is_held"] for state in client.list(name))


#: A description of each kind that has one grant, or several.
KINDS: dict[str, Callable[[holdline.Client, str], Any]] = {
    "lock": lambda client, name: client.lock(name),
    "read": lambda client, name: client.rwlock(name).read(),
    "write": lambda client, name: client.rwlock(name).write(),
    "semaphore": lambda client, name: client.semaphore(name, 2),
    "any_of": lambda client, name: client.any_of([f"{name}/a", f"{name}/b"]),
    "many_of": lambda client, name: client.many_of([f"{name}/a", f"{name}/b"], 1),
    "lock_all": lambda client, name: client.lock_all([f"{name}/a", f"{name}/b"]),
    "campaign": lambda client, name: client.election(name).campaign("here"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_may_be_left_on_another_thread(redis: holdline.Client, name: str, kind: str) -> None:
    described = KINDS[kind](redis, name)
    for _ in range(2):
        grant = elsewhere(described.__enter__)
        assert grant.is_valid
        described.__exit__(None, None, None)
        assert not grant.is_valid and free(redis, name)


def test_a_block_may_be_left_in_another_task_asyncio(client: holdline.Client, name: str) -> None:
    async def main() -> None:
        lock = client.lock(name)
        await asyncio.create_task(lock.__aenter__())
        await asyncio.create_task(lock.__aexit__(None, None, None))
        assert free(client, name)

    _asyncio_run(main)


def test_a_block_may_be_left_in_another_task_trio(client: holdline.Client, name: str) -> None:
    async def main() -> None:
        lock = client.lock(name)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lock.__aenter__)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lock.__aexit__, None, None, None)
        assert free(client, name)

    _trio_run(main)


def test_requests_of_threads_leave_no_orphan(redis: holdline.Client, name: str) -> None:
    # As a server handles generator dependencies: a thread of the pool enters, another leaves.
    def dependency(number: int) -> Iterator[holdline.Grant]:
        with redis.lock(f"{name}/{number % 16}", wait=SOON) as grant:
            yield grant

    def request(number: int) -> None:
        steps = dependency(number)
        assert pool.submit(next, steps).result(SOON).is_valid
        assert pool.submit(next, steps, None).result(SOON) is None

    with ThreadPoolExecutor(8) as pool, ThreadPoolExecutor(8) as requests:
        list(requests.map(request, range(200)))
    assert free(redis, name)


def test_threads_that_share_a_description_leave_no_orphan(
    redis: holdline.Client, name: str
) -> None:
    lock = redis.semaphore(name, 4, wait=SOON)

    def request(_: int) -> None:
        with contextlib.ExitStack() as stack:
            grant = elsewhere(lambda: stack.enter_context(lock.acquire()))
            assert grant.is_valid
            elsewhere(stack.pop_all().close)
            assert not grant.is_valid

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(request, range(200)))
    assert free(redis, name)


@pytest.mark.parametrize("kind", ["semaphore", "any_of", "many_of", "read"])
def test_two_holds_of_one_description_may_end_in_any_order(
    client: holdline.Client, name: str, kind: str
) -> None:
    described = KINDS[kind](client, name)
    first, second = described.acquire(), described.acquire()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not first.is_valid and second.is_valid
    second.__exit__(None, None, None)
    assert free(client, name)


def test_two_holds_in_with_statements_may_end_in_any_order(
    client: holdline.Client, name: str
) -> None:
    devices = client.any_of([f"{name}/a", f"{name}/b"])

    def use(described: Any) -> Iterator[holdline.Grant]:
        with described as grant:
            yield grant

    # Either the second is refused, or each of them ends its own.
    one = use(devices)
    first = next(one)
    with pytest.raises(holdline.Invalid):
        next(use(devices))
    other = use(devices.acquire())
    second = next(other)
    assert next(one, None) is None
    assert not first.is_valid and second.is_valid
    assert client.inspect(second.name)["is_held"]
    assert next(other, None) is None
    assert free(client, name)


def test_a_description_that_is_entered_refuses_a_second_use(
    client: holdline.Client, name: str, run: Run
) -> None:
    pool = client.semaphore(name, 2)

    def refused(error: pytest.ExceptionInfo[holdline.Invalid]) -> None:
        assert error.value.details["field"] == "lock" and "acquire()" in str(error.value)

    with pool as grant:
        for enter in (pool.__enter__, lambda: elsewhere(pool.__enter__)):
            with pytest.raises(holdline.Invalid) as error:
                enter()
            refused(error)
        assert grant.is_valid and client.inspect(name)["holder_count"] == 1
        with pool.acquire() as other:
            assert other.lease_id != grant.lease_id

        async def main() -> None:
            with pytest.raises(holdline.Invalid) as error:
                async with pool:
                    pytest.fail("it is entered")
            refused(error)
            async with pool.aacquire() as other:
                assert other.is_valid and client.inspect(name)["holder_count"] == 2

        run(main)
        assert grant.is_valid
    assert free(client, name)


def test_while_one_thread_waits_in_with_another_is_refused(
    client: holdline.Client, name: str
) -> None:
    lock = client.lock(name, wait=SOON)
    tokens: list[int] = []

    def waits() -> None:
        with lock as grant:
            tokens.append(grant.fencing_token)

    with client.lock(name):
        waiter = threading.Thread(target=waits)
        waiter.start()
        eventually(lambda: client.inspect(name)["queue_length"] == 1)
        with pytest.raises(holdline.Invalid), lock:
            pytest.fail("it is entered")
        assert client.inspect(name)["queue_length"] == 1
    waiter.join(SOON)
    assert len(tokens) == 1 and free(client, name)


def test_what_fails_to_enter_may_be_entered_again(
    client: holdline.Client, name: str, run: Run
) -> None:
    lock = client.lock(name, wait=0.01)

    async def main() -> None:
        async with client.lock(name):
            for _ in range(2):
                with pytest.raises(holdline.TimedOut), lock:
                    pytest.fail("it is held")
                with pytest.raises(holdline.TimedOut):
                    await lock.__aenter__()
        async with lock as grant:
            assert grant.is_valid

    run(main)
    with pytest.raises(holdline.Invalid):
        lock.__exit__(None, None, None)


def test_a_cancelled_entry_may_be_entered_again(client: holdline.Client, name: str) -> None:
    async def main() -> None:
        lock = client.lock(name)
        async with client.lock(name):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(lock.__aenter__(), 0.05)
        async with lock as grant:
            assert grant.is_valid
        assert free(client, name)

    _asyncio_run(main)


def test_a_cancelled_exit_releases(redis: holdline.Client, name: str, run: Run) -> None:
    lock = redis.lock(name)

    async def main() -> None:
        if run is _asyncio_run:
            await lock.__aenter__()
            leaves = asyncio.create_task(lock.__aexit__(None, None, None))
            await asyncio.sleep(0)  # event: it has sent its request
            leaves.cancel()
            await asyncio.gather(leaves, return_exceptions=True)
        else:
            with trio.CancelScope() as scope:
                async with lock:
                    scope.cancel()

    run(main)
    eventually(lambda: free(redis, name))
    with lock as grant:
        assert grant.is_valid


@pytest.mark.parametrize("fails", [False, True])
def test_generators_hold_their_own(redis: holdline.Client, name: str, fails: bool) -> None:
    async def dependency() -> AsyncIterator[holdline.Grant]:
        async with redis.alock(name) as grant:
            yield grant

    async def main() -> None:
        steps: Any = dependency()
        grant = await asyncio.create_task(steps.__anext__())
        assert grant.is_valid
        if fails:
            with pytest.raises(LookupError):
                await asyncio.create_task(steps.athrow(LookupError()))
        else:
            await asyncio.create_task(steps.aclose())
        assert not grant.is_valid and free(redis, name)

    _asyncio_run(main)


def test_exit_stacks_are_closed_elsewhere(client: holdline.Client, name: str, run: Run) -> None:
    described = [kind(client, f"{name}/{word}") for word, kind in KINDS.items()]
    stack = contextlib.ExitStack()
    for one in described:
        stack.enter_context(one)
    elsewhere(stack.close)
    assert free(client, name)

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            for one in described:
                await stack.enter_async_context(one)
            await stack.enter_async_context(client.lock(f"{name}/more").aacquire())

    run(main)
    assert free(client, name)


def test_contextvars_do_not_matter(client: holdline.Client, name: str) -> None:
    lock = client.lock(name)
    for _ in range(2):
        contextvars.Context().run(lock.__enter__)
        contextvars.Context().run(lock.__exit__, None, None, None)
        assert free(client, name)


def test_an_error_at_the_exit_leaves_the_description_usable(
    client: holdline.Client, name: str, run: Run
) -> None:
    lock = client.lock(name, max_hold=0.3)

    async def main() -> None:
        with pytest.raises(holdline.Lost):
            async with lock as grant:
                await grant.lost
        with pytest.raises(LookupError):
            async with lock as grant:
                await grant.lost
                raise LookupError

    run(main)
    with pytest.raises(holdline.Lost), lock as grant:
        grant.lost.wait(SOON)
    with lock as grant:
        assert grant.is_valid
    assert free(client, name)


def test_a_grant_that_was_released_by_hand_frees_the_description(
    client: holdline.Client, name: str
) -> None:
    for _ in range(2):
        with client.lock(name) as grant:
            grant.release()
    with client.lock_all([f"{name}/a", f"{name}/b"]) as grants:
        grants[0].release()
    assert free(client, name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_context_that_nobody_leaves_is_released(
    redis: holdline.Client, name: str, kind: str
) -> None:
    def suspended() -> Iterator[None]:
        # The generator holds the description and the grant alone.
        described = KINDS[kind](redis, name)
        described.__enter__()
        yield

    steps = suspended()
    next(steps)
    assert not free(redis, name)
    del steps
    gc.collect()
    eventually(lambda: free(redis, name))


def test_a_lock_with_callbacks_that_nobody_leaves_is_released(
    client: holdline.Client, name: str, run: Run
) -> None:
    def hold() -> holdline.Lock[holdline.Grant]:
        return client.lock(name, on_lost=print, on_at_risk=print)

    lock = hold()
    lock.__enter__()
    del lock
    eventually(lambda: free(client, name))

    async def main() -> None:
        lock = hold()
        await lock.__aenter__()
        del lock

    run(main)
    eventually(lambda: free(client, name))


def test_a_later_grant_is_awaited_or_entered_once(
    client: holdline.Client, name: str, run: Run
) -> None:
    async def main() -> None:
        for ask in ("aacquire", "atry_acquire"):
            described = client.lock(name)
            grant = await getattr(described, ask)()
            await grant.arelease()
            later = getattr(described, ask)()
            assert free(client, name)  # nothing is asked before
            async with later as grant:
                assert grant.is_valid
            with pytest.raises(RuntimeError):
                await later
            with pytest.raises(RuntimeError):
                await later.__aenter__()
            assert free(client, name)

    run(main)


def test_a_later_grant_that_nobody_awaits_asks_nothing(client: holdline.Client, name: str) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        client.lock(name).aacquire()
        gc.collect()
    assert [one.category for one in seen] == [RuntimeWarning]
    assert "never awaited" in str(seen[0].message)
    assert free(client, name)


def test_readers_of_one_rwlock_overlap(client: holdline.Client, name: str) -> None:
    rwlock = client.rwlock(name)

    def read() -> Iterator[holdline.Grant]:
        with rwlock.read() as grant:
            yield grant

    one, other = read(), read()
    first, second = next(one), next(other)
    assert next(one, None) is None
    assert not first.is_valid and second.is_valid
    assert next(other, None) is None
    assert free(client, name)


def test_a_cancelled_release_of_several_releases_all(
    redis: holdline.Client, name: str, run: Run
) -> None:
    async def main() -> None:
        grants = await redis.lock_all([f"{name}/{one}" for one in range(5)]).aacquire()
        if run is _asyncio_run:
            leaves = asyncio.create_task(grants.__aexit__(None, None, None))
            await asyncio.sleep(0)  # event: it waits for the first of them
            leaves.cancel()
            await asyncio.gather(leaves, return_exceptions=True)
        else:
            with trio.CancelScope() as scope:
                async with grants:
                    scope.cancel()
        # The program still has the grants.
        while not free(redis, name):
            await (asyncio if run is _asyncio_run else trio).sleep(0.01)  # event: looks again
        assert len(grants) == 5

    run(main)
