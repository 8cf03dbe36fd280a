"""Observers, which receive the events of a client's locks."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from holdline import _holdline
from holdline._errors import LockError
from holdline._grants import Release

logger = logging.getLogger("holdline")


@dataclass(frozen=True)
class Subject:
    """Which attempt or grant an event is about."""

    #: The lock name.
    name: str
    #: The first digits of the lease id.
    lease_id: str
    #: The mode in which the name is or would be held: ``exclusive``, ``shared`` or ``permits``.
    mode: str
    #: The short name of the engine.
    engine: str
    #: The class of the lock: what metrics know it by.
    lock_class: str


@dataclass(frozen=True)
class NodeHealth:
    """The state of one node of a quorum."""

    #: Its address, without user and password.
    address: str
    #: Whether it answered the last time that it was asked.
    up: bool
    #: Whether it votes.
    votes: bool
    #: For how many seconds it does not vote yet; 0 without a quarantine.
    quarantine: float
    #: By how many seconds its clock is ahead of the median; None if it does not answer.
    clock_drift: float | None


@dataclass(frozen=True)
class QuorumHealth:
    """The state of a quorum, as a client has seen it."""

    engine: str
    #: How many nodes more than a majority vote; below 0 nothing can be acquired.
    margin: int
    nodes: tuple[NodeHealth, ...]

    @classmethod
    def _of(cls, raw: Any) -> QuorumHealth:
        engine, margin, nodes = raw
        return cls(engine, margin, tuple(NodeHealth(*node) for node in nodes))


class Observer:
    """Receives the events of a client's locks: for metrics, logs or alerts of your own. They are
    those of Rust's `Observer`.

    Derive from it, define the methods that you want, and pass it to `Client(observers=[...])`.
    Every other method does nothing, and its events are not stored.

    All methods are called on the thread ``holdline-observers`` of the client, one after the other,
    soon after the event. No lock waits for them: a slow observer delays later events only. At most
    10,000 events wait; later ones are left out, and `on_events_left_out` has their number. An
    exception is logged, and only that call is lost. Times are seconds.
    """

    def on_acquired(self, lock: Subject, fencing_token: int, waited: float) -> None:
        """The name is held, after this wait."""

    def on_queued(self, lock: Subject, position: int | None, holder: dict[str, Any] | None) -> None:
        """The attempt is queued at this position, if the engine reports it; the next one has
        position 0. Called again when that changes. `holder` has the fields of `Busy.holder`."""

    def on_without_store(self, lock: Subject, error: LockError) -> None:
        """The store serves nobody at the moment, and the attempt waits until it does."""

    def on_requeued(self, lock: Subject) -> None:
        """The attempt lost its queue entry and queues again."""

    def on_failed(self, lock: Subject, error: LockError) -> None:
        """The attempt ended without the name."""

    def on_renewed(self, lock: Subject, slack: float) -> None:
        """The lease was renewed; `slack` is how long it would still have been valid."""

    def on_at_risk(self, lock: Subject, remaining: float) -> None:
        """No renewal has succeeded for too long, or an operator has revoked the lease."""

    def on_lost(self, lock: Subject, reason: str) -> None:
        """The lease is no longer valid. `reason` is a word, as in `Lost.reason`."""

    def on_released(self, lock: Subject, release: Release) -> None:
        """The lease was released on purpose."""

    def on_dropped(self, lock: Subject, confirmed: bool) -> None:
        """What a grant that nobody has any more, or a cancelled attempt, had in the store was
        given up."""

    def on_wait_started(self, lock: Subject) -> None:
        """The attempt begins to wait: once, before the first `on_queued`."""

    def on_wait_finished(self, lock: Subject) -> None:
        """The attempt waits no longer: once for each `on_wait_started`."""

    def on_cancelled(self, lock: Subject, waited: float) -> None:
        """The attempt was cancelled after this time."""

    def on_attached(self, lock: Subject, fencing_token: int) -> None:
        """A detached lease was attached."""

    def on_ended(self, lock: Subject, end: str, held_for: float) -> None:
        """The hold is over for this process: once for each `on_acquired` and `on_attached`.
        `end` is ``released``, ``dropped``, ``detached`` or ``lost``."""

    def on_quorum_health(self, health: QuorumHealth) -> None:
        """The client of a quorum has asked its nodes for their state, as it does every 5 s."""

    def on_events_left_out(self, count: int) -> None:
        """So many events were left out, since the observers were too slow. Logs a warning unless
        defined."""
        logger.warning("%d events were left out: the observers are too slow", count)


_METHODS = [name for name in vars(Observer) if name.startswith("on_")]
#: What makes an object of the last argument of a method.
_MADE_BY: dict[str, Callable[[Any], Any]] = {
    "on_released": Release._of,
    "on_quorum_health": QuorumHealth._of,
}


def checked(observers: Iterable[Observer]) -> list[Observer]:
    """Refuses what is no observer."""
    given = list(observers)
    for observer in given:
        if not isinstance(observer, Observer):
            raise TypeError(f"an observer is a holdline.Observer, not {type(observer).__name__}")
    return given


class Observing:
    """The thread that calls the observers of one client. It ends with this object."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        wanted = {
            method
            for method in _METHODS
            for observer in observers
            if getattr(type(observer), method) is not getattr(Observer, method)
        }
        notifier = _holdline.Notifier()
        self.events = _holdline.Events(notifier, wanted)
        self._thread = threading.Thread(
            # It knows no client: a client that nobody has any more ends the thread.
            target=_run,
            args=(notifier, self.events, observers),
            name="holdline-observers",
            daemon=True,
        )
        self._thread.start()
        self._close = weakref.finalize(self, notifier.close)
        self._close.atexit = False

    def close(self, limit: float) -> None:
        """Has the observers called for what has happened, for at most so many seconds."""
        self._close()
        if self._thread is not threading.current_thread():
            self._thread.join(limit)


def _run(
    notifier: _holdline.Notifier, events: _holdline.Events, observers: Sequence[Observer]
) -> None:
    goes_on = True
    while goes_on:
        goes_on = notifier.wait()
        notifier.drain()
        taken, left_out = events.take()
        for method, lock, arguments in taken:
            make = _MADE_BY.get(method)
            if make is not None:
                arguments = (make(arguments[0]),)
            about = () if lock is None else (Subject(*lock),)
            _call(observers, method, *about, *arguments)
        if left_out:
            _call(observers, "on_events_left_out", left_out)


def _call(observers: Sequence[Observer], method: str, *arguments: Any) -> None:
    for observer in observers:
        try:
            getattr(observer, method)(*arguments)
        except BaseException:
            logger.exception("an observer failed in %s", method)
