"""Signals, forks and the end of the interpreter, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from conftest import SOON, eventually

import holdline


def started(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ran(program: str, *arguments: str) -> str:
    process = started(program, *arguments)
    out, errors = process.communicate(timeout=SOON)
    assert process.returncode == 0, errors
    assert not errors, errors
    return out


WAITS = """
import sys, holdline
client = holdline.Client(sys.argv[1])
try:
    client.lock(sys.argv[2]).acquire()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    # The place in the queue is given up in the background, not only at the exit.
    sys.stdin.readline()
"""

WAITS_ASYNC = """
import sys, asyncio, holdline
async def main():
    client = await holdline.Client.aconnect(sys.argv[1])
    async with client.alock(sys.argv[2]):
        print("got")
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("engine", ["local", "redis"])
@pytest.mark.parametrize("program", [WAITS, WAITS_ASYNC], ids=["thread", "asyncio"])
def test_an_interrupt_ends_a_wait_and_leaves_nothing(
    clients: Callable[[str], holdline.Client],
    url_of: Callable[[str], str],
    name: str,
    engine: str,
    program: str,
) -> None:
    client = clients(engine)
    with client.lock(name):
        process = started(program, url_of(engine), name)
        eventually(lambda: client.inspect(name)["queue_length"] == 1)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "interrupted\n"
        eventually(lambda: client.inspect(name)["queue_length"] == 0)
        _, errors = process.communicate("\n", timeout=SOON)
        assert (process.returncode, errors) == (0, "")
    assert not client.inspect(name)["is_held"]


def test_an_interrupt_that_ends_the_program_leaves_nothing(
    redis: holdline.Client, url_of: Callable[[str], str], name: str
) -> None:
    program = WAITS.split("try:")[0] + "client.lock(sys.argv[2]).acquire()"
    with redis.lock(name):
        process = started(program, url_of("redis"), name)
        eventually(lambda: redis.inspect(name)["queue_length"] == 1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SOON)
        assert "KeyboardInterrupt" in errors
        # Without a heartbeat: the process is gone, and had given up its place before.
        assert redis.inspect(name)["queue_length"] == 0


def test_what_is_held_at_the_end_is_released(
    redis: holdline.Client, url_of: Callable[[str], str], name: str
) -> None:
    held = "import sys, holdline\ng = holdline.Client(sys.argv[1]).lock(sys.argv[2]).acquire()"
    assert ran(held, url_of("redis"), name) == ""
    assert not redis.inspect(name)["is_held"]


def test_threads_that_wait_do_not_hold_up_the_end(
    redis: holdline.Client, url_of: Callable[[str], str], name: str
) -> None:
    program = """
import sys, threading, holdline
client = holdline.Client(sys.argv[1])
grant = client.lock(sys.argv[2]).acquire()
for wait in (client.lock(sys.argv[2]).acquire, grant.lost.wait):
    threading.Thread(target=wait, daemon=True).start()
print("ends")
"""
    assert ran(program, url_of("redis"), name) == "ends\n"


FORKS = """
import os, sys, holdline
client = holdline.Client(sys.argv[1])
lock = client.lock(sys.argv[2], wait=60)
looked, has_looked = os.pipe()
with lock as grant:
    child = os.fork()
    if child == 0:
        assert not grant.is_valid
        try:
            client.lock(sys.argv[2]).try_acquire()
        except holdline.Busy as busy:
            assert busy.holder["pid"] == os.getppid(), busy.holder
        else:
            os._exit(3)
        with client.lock(sys.argv[2] + "/child") as own:
            assert own.is_valid
            assert client.inspect(own.name)["holders"][0]["pid"] == os.getpid()
        assert not grant.release().confirmed
        del grant
        os.write(has_looked, b"!")
        with lock as later:
            os._exit(0 if later.is_valid else 4)
    assert os.read(looked, 1) == b"!"
    assert grant.is_valid
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
print("ok")
"""


@pytest.mark.parametrize("engine", ["local", "redis"])
def test_a_forked_child_connects_again(
    url_of: Callable[[str], str], name: str, engine: str
) -> None:
    program = FORKS if sys.version_info < (3, 12) else _quiet(FORKS)
    assert ran(program, url_of(engine), name) == "ok\n"


def _quiet(program: str) -> str:
    """Newer interpreters warn of a fork beside threads."""
    return "import warnings; warnings.simplefilter('ignore', DeprecationWarning)" + program


def test_the_locks_of_memory_do_not_cross_a_fork(name: str) -> None:
    program = """
import os, sys, holdline
client = holdline.Client("memory:")
lock = client.lock(sys.argv[1])
child = os.fork()
if child == 0:
    for ask in (lock.acquire, lambda: client.lock("other")):
        try:
            ask()
        except holdline.Invalid as invalid:
            assert "fork" in str(invalid)
        else:
            os._exit(3)
    with holdline.Client("memory:").lock("mine"):
        os._exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
print("ok")
"""
    assert ran(_quiet(program), name) == "ok\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_exclude_each_other(
    redis: holdline.Client, url_of: Callable[[str], str], name: str, method: str, tmp_path: Any
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import multiprocessing, sys, warnings, holdline
warnings.simplefilter("ignore", DeprecationWarning)
client = holdline.Client(sys.argv[1])

def work(_):
    with client.lock(sys.argv[2], wait=60) as grant:
        return grant.fencing_token

if __name__ == "__main__":
    with client.lock(sys.argv[2]):
        pass
    with multiprocessing.get_context(sys.argv[3]).Pool(4) as pool:
        tokens = pool.map(work, range(20), chunksize=1)
    assert len(set(tokens)) == 20
    print("ok")
"""
    )
    process = subprocess.run(
        [sys.executable, str(program), url_of("redis"), name, method],
        capture_output=True,
        text=True,
        timeout=SOON,
    )
    assert (process.stdout, process.stderr, process.returncode) == ("ok\n", "", 0)


def test_the_variable_of_the_environment(url_of: Callable[[str], str], name: str) -> None:
    program = """
import os, holdline
assert holdline.Client().engine == os.environ["ENGINE"]
"""
    for url, engine in [(url_of("redis"), "redis"), ("memory:", "memory")]:
        environment = os.environ | {"HOLDLINE_URL": url, "ENGINE": engine}
        subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=SOON)
