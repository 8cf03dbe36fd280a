"""How Python waits for operations: in an event loop of asyncio or trio, or on a thread.

Each event loop has one `Hub`, whose notifier it watches. A hub of the process's own thread serves
callbacks of threads and the log. Operations of threads that wait need none of this.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from holdline import _holdline

logger = logging.getLogger("holdline")


class _Event(Protocol):
    """What asyncio's and trio's events have in common."""

    def set(self) -> Any: ...

    async def wait(self) -> Any: ...


class Hub:
    """The operations that somebody waits for, by their keys."""

    def __init__(self, new_event: Callable[[], _Event]) -> None:
        self.notifier = _holdline.Notifier()
        self.waiting: dict[int, Callable[[], object]] = {}
        self.new_event = new_event

    def dispatch(self) -> None:
        """Wakes the waiters of the operations that the notifier names."""
        for key in self.notifier.drain():
            wake = self.waiting.pop(key, None)
            if wake is not None:
                wake()


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = weakref.WeakKeyDictionary()
_trio_hub: Any = None


def _hub_of_trio() -> Hub | None:
    """The hub of the trio run in which we are, if we are in one."""
    global _trio_hub
    trio = sys.modules.get("trio")
    if trio is None or not trio.lowlevel.in_trio_run():
        return None
    if _trio_hub is None:
        _trio_hub = trio.lowlevel.RunVar("holdline", default=None)
    hub: Hub | None = _trio_hub.get()
    if hub is None:
        hub = Hub(trio.Event)
        _trio_hub.set(hub)
        trio.lowlevel.spawn_system_task(_serve_trio, trio, hub)
    return hub


async def _serve_trio(trio: Any, hub: Hub) -> None:
    while True:
        await trio.lowlevel.wait_readable(hub.notifier.fileno())
        hub.dispatch()


def current_hub() -> Hub:
    """The hub of the event loop in which we are."""
    hub = _hub_of_trio()
    if hub is not None:
        return hub
    loop = asyncio.get_running_loop()
    hub = _loops.get(loop)
    if hub is None:
        hub = _loops[loop] = Hub(asyncio.Event)
        loop.add_reader(hub.notifier.fileno(), hub.dispatch)
    return hub


async def wait(operation: _holdline.Operation) -> Any:
    """Waits in the event loop. If the task is cancelled, the operation is given up."""
    hub = current_hub()
    try:
        while not operation.poll(hub.notifier):
            event = hub.new_event()
            hub.waiting[operation.key] = event.set
            await event.wait()
        return operation.take()
    except BaseException:
        operation.cancel()
        raise
    finally:
        hub.waiting.pop(operation.key, None)


class Watch:
    """Calls a function with the value of an operation, once, unless it is stopped before."""

    def __init__(
        self, operation: _holdline.Operation, call: Callable[[Any], object], hub: Hub
    ) -> None:
        self._operation = operation
        self._call = call
        self._hub = hub
        self._lock = threading.Lock()
        self._over = False
        self._look()

    def _look(self) -> None:
        # In this order: a wake-up after the poll finds the entry.
        self._hub.waiting[self._operation.key] = self._look
        with self._lock:
            if self._over or not self._operation.poll(self._hub.notifier):
                return
            self._over = True
            self._hub.waiting.pop(self._operation.key, None)
            value = self._operation.take()
        try:
            self._call(value)
        except Exception:
            logger.exception("a callback failed")

    def stop(self) -> None:
        """From now on the function is not called."""
        with self._lock:
            self._over = True
            self._hub.waiting.pop(self._operation.key, None)
            self._operation.cancel()


class _ThreadHub(Hub):
    """The hub of the process: its thread calls callbacks and hands events to `logging`."""

    def __init__(self) -> None:
        super().__init__(asyncio.Event)
        self.thread = threading.Thread(target=self._run, name="holdline-events", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while self.notifier.wait():
            self.dispatch()
            flush_logs()

    def close(self) -> None:
        """Ends the thread, so that none waits while the interpreter ends."""
        self.notifier.close()
        self.thread.join(timeout=5)


_thread_hub: _ThreadHub | None = None
_thread_hub_lock = threading.Lock()


def thread_hub() -> Hub:
    """The hub of the process, started at its first use."""
    global _thread_hub
    with _thread_hub_lock:
        if _thread_hub is None:
            _thread_hub = _ThreadHub()
        return _thread_hub


def flush_logs() -> None:
    """Hands the events that the library has stored to `logging`."""
    events, left_out = _holdline.take_logs()
    for level, name, message in events:
        logging.getLogger(name).log(level, "%s", message)
    if left_out:
        logger.warning("%d events of the library were left out: too many at once", left_out)


def follow_log_level() -> None:
    """Takes over the level of the logger ``holdline`` for the library's own events."""
    level = min(logger.getEffectiveLevel(), 255)
    _holdline.set_log_level(level, thread_hub().notifier)


_clients: weakref.WeakSet[Any] = weakref.WeakSet()


def register(client: Any) -> None:
    """Has `_after_fork` called in a forked child, and `_at_exit` when the interpreter ends."""
    _clients.add(client)


def _at_exit() -> None:
    for client in list(_clients):
        client._at_exit()
    hub = _thread_hub
    if hub is not None:
        hub.close()
    flush_logs()


def _after_fork() -> None:
    """Forgets what belongs to the threads and event loops of the parent process."""
    global _loops, _trio_hub, _thread_hub, _thread_hub_lock
    _loops = weakref.WeakKeyDictionary()
    _trio_hub = None
    _thread_hub = None
    _thread_hub_lock = threading.Lock()
    _holdline.forget_metrics()
    for client in list(_clients):
        client._after_fork()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
