"""What a lock costs in Python: `cargo xtask bench python` runs it.

A cycle is an acquire and a release by one thread; a hand-off is an acquire while seven other threads
want the same name. Libraries take turns, round by round, so that a busy machine slows all of
them. Printed is the median of the rounds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import redis
import redis_lock

import holdline

ROUNDS = 7
SECONDS = 0.7
CONTENDERS = 8


def server() -> tuple[subprocess.Popen[str], str]:
    command = [os.environ["HOLDLINE_SERVICES"], "redis"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def cycles(make: Callable[[], Any]) -> float:
    """Cycles a second by one thread."""
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        for _ in range(10):
            with make():
                pass
        count += 10
    return count / (time.perf_counter() - begin)


def hand_offs(make: Callable[[], Any]) -> float:
    """Acquisitions a second by threads that all want one name."""
    counts = [0] * CONTENDERS
    begin = time.perf_counter()

    def work(number: int) -> None:
        while time.perf_counter() - begin < SECONDS:
            with make():
                counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CONTENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begin)


def compare(
    title: str, measure: Callable[[Any], float], entries: dict[str, Callable[[], Any]]
) -> None:
    seen: dict[str, list[float]] = {name: [] for name in entries}
    for _ in range(ROUNDS):
        for name, make in entries.items():
            seen[name].append(measure(make))
    print(f"\n{title}")
    for name, rates in seen.items():
        rate = statistics.median(rates)
        print(f"  {name:<40} {rate:>9,.0f} a second  {1e6 / rate:>8.1f} us")


class Bare:
    """The floor: two bare commands by redis-py, which is no lock."""

    def __init__(self, db: Any) -> None:
        self.db = db

    def __enter__(self) -> None:
        self.db.set("bare", "token", nx=True, px=30_000)

    def __exit__(self, *_: object) -> None:
        self.db.delete("bare")


def main() -> None:
    process, url = server()
    db = redis.Redis.from_url(url)
    memory, store = holdline.Client("memory:bench"), holdline.Client(url)
    plain = holdline.Client(f"{url}?dialect=plain&fencing=off&key_template={{name}}")
    print(f"python {sys.version.split()[0]}, redis-py {redis.__version__}")
    name = "bench"
    compare("cycle, in this process", cycles, {"holdline memory:": lambda: memory.lock(name)})
    entries: dict[str, Callable[[], Any]] = {
        "holdline, fenced": lambda: store.lock(f"{name}/fenced"),
        "holdline, plain keys without tokens": lambda: plain.lock(f"{name}/plain"),
        "redis-py Lock": lambda: db.lock(f"{name}/redis-py", timeout=30),
        "python-redis-lock": lambda: redis_lock.Lock(db, f"{name}/prl", expire=30),
    }
    compare("cycle, one Redis", cycles, {"two bare commands by redis-py": lambda: Bare(db), **entries})
    compare(f"hand-off, one Redis, {CONTENDERS} threads", hand_offs, entries)
    for client in (memory, store, plain):
        client.close()
    db.close()
    process.terminate()
    process.communicate()


main()
