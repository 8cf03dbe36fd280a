"""Each engine by its URL, on its real server: what Python adds must fit all of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from conftest import SOON, eventually

import holdline

ENGINES = {
    "redis-cluster": "redis",
    "sentinel": "redis",
    "redlock": "redlock",
    "postgres": "postgres",
    "mariadb": "mysql",
    "etcd": "etcd",
    "zookeeper": "zookeeper",
    "http": "http",
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


def test_threads_and_tasks_exclude_each_other(
    clients: Callable[[str], holdline.Client], engine: str, name: str
) -> None:
    client = clients(engine)
    assert client.engine == ENGINES[engine]
    lock = client.lock(name, wait=SOON)
    tokens: list[int] = []

    def work() -> None:
        for _ in range(3):
            with lock.acquire() as grant:
                tokens.append(grant.fencing_token)

    async def main() -> None:
        for _ in range(3):
            async with lock.aacquire() as grant:
                tokens.append(grant.fencing_token)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    asyncio.run(main())
    for thread in threads:
        thread.join(SOON)
    assert len(tokens) == 9 and tokens == sorted(set(tokens))
    with lock:
        with pytest.raises(holdline.Busy):
            client.lock(name).try_acquire()
        with pytest.raises(holdline.TimedOut):
            client.lock(name, wait=0.05).acquire()
    eventually(lambda: not client.inspect(name)["is_held"])


def test_readers_share(
    clients: Callable[[str], holdline.Client], engine: str, name: str
) -> None:
    client = clients(engine)
    if engine == "redlock":
        with pytest.raises(holdline.Unsupported):
            client.rwlock(name)
        return
    rwlock = client.rwlock(name)
    with rwlock.read(), rwlock.read(), pytest.raises(holdline.Busy):
        rwlock.write().try_acquire()
