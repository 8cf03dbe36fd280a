"""What is held: grants, several at once, leaderships, slots, and detached leases."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from holdline import _holdline
from holdline._errors import Lost
from holdline._waiting import Hub, Watch, thread_hub, wait

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

#: What `on_lost=` and `on_at_risk=` take: it is called with the grant. In an event loop of asyncio
#: it may be async.
Callback = Callable[[Any], object]


@dataclass(frozen=True)
class Callbacks:
    """The functions that a program wants to be called, by the options of these names."""

    on_lost: Callback | None = None
    on_at_risk: Callback | None = None

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> Callbacks:
        """Takes them out of options, of which the others go to the library."""
        taken = {key: options.pop(key, None) for key in ("on_lost", "on_at_risk")}
        for key, call in taken.items():
            if call is not None and not callable(call):
                raise TypeError(f"`{key}` is a function, not {type(call).__name__}")
        return cls(**taken)


def seconds_of(value: float | timedelta | None, field: str) -> float | None:
    """Reads a time that is no option of the library."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"`{field}` is seconds or a timedelta, not {type(value).__name__}")
    return float(value)


@dataclass(frozen=True)
class Release:
    """What became of a release."""

    #: The store confirmed it. Otherwise the release goes on in the background.
    confirmed: bool
    #: How many seconds the grant was held, if it was released.
    held_for: float | None
    #: Why the lease had been lost before: somebody else may have held the name since.
    lost: str | None
    #: Why the store did not confirm.
    failure: str | None
    #: What `lost` means, for people.
    lost_message: str | None = None

    @property
    def is_released(self) -> bool:
        """Whether the lease was certainly held until the release."""
        return self.confirmed

    @classmethod
    def _of(cls, raw: Any) -> Release:
        if raw is None:
            return cls(True, None, None, None)
        confirmed, held_for, lost, failure = raw
        word, text = lost or (None, None)
        return cls(confirmed, held_for, word, failure, text)


class LostEvent:
    """Reports the loss of a lease: for threads as a `threading.Event`, for async code to await."""

    # It knows the native grant only: a cycle would keep a grant that nobody has from its release.
    def __init__(self, native: _holdline.Grant) -> None:
        self._native = native
        self._ended = False
        self._reason: str | None = None

    def is_set(self) -> bool:
        """Whether the lease was lost. A release is no loss."""
        return self._reason is not None or (not self._ended and not self._native.is_valid)

    @property
    def reason(self) -> str | None:
        """Why it was lost: a word, as in `Lost.reason`."""
        if self._reason is None and not self._ended:
            lost = self._native.lost_reason()
            self._reason = lost and lost[0]
            if self._reason is None and not self._native.is_valid:
                return "expired"
        return self._reason

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Waits until the lease is lost; false after `timeout`, or once the grant is released."""
        self._native.lost().wait_for(seconds_of(timeout, "timeout"))
        return self.is_set()

    def __await__(self) -> Generator[Any, Any, str]:
        return self._wait().__await__()

    async def _wait(self) -> str:
        """Resolves with the reason; ``released`` once the grant is released."""
        word, _ = await wait(self._native.lost())
        return str(word)

    def _end(self) -> None:
        """The grant ends here: what is not known as a loss by now is none."""
        if not self._ended:
            lost = self._native.lost_reason()
            self._reason = lost and lost[0]
            self._ended = True


class RiskEvent:
    """Reports that the holder should stop: for threads as a `threading.Event`, for async code to
    await.

    It is set once an operator has revoked the lease, and while one renewal interval is left of it,
    or half of the time from its last confirmation to its end, if that is less. The lease is still
    valid then, unless it is lost: there is time to stop and to release. A renewal that succeeds
    late ends the risk; a revocation stays.
    """

    # It knows no grant, as `LostEvent`.
    def __init__(self, native: _holdline.Grant, lost: LostEvent) -> None:
        self._native = native
        self._lost = lost

    def _risk(self) -> tuple[str, str] | None:
        return None if self._lost._ended else self._native.risk()

    def is_set(self) -> bool:
        """Whether the lease is at risk, revoked or lost. A release is no risk."""
        return self._lost.is_set() or self._risk() is not None

    @property
    def reason(self) -> str | None:
        """Why: ``revoked``, ``not_renewed`` (renewals fail), ``runs_out`` (it is not renewed, or
        not beyond `max_hold`), or the word of `Lost.reason` once the lease is lost."""
        risk = self._risk()
        return risk[0] if risk is not None else self._lost.reason

    @property
    def message(self) -> str | None:
        """A text for people: the operator's reason, or the last failure of a renewal. None once
        the grant has ended."""
        risk = self._risk()
        return risk and risk[1]

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Waits until the lease is at risk; false after `timeout`, or once the grant is
        released."""
        operation = self._native.at_risk()
        if not operation.wait_for(seconds_of(timeout, "timeout")):
            return self.is_set()
        # A late renewal may have ended the risk meanwhile.
        word, _ = operation.take()
        return word != "released" or self.is_set()

    def __await__(self) -> Generator[Any, Any, str]:
        return self._wait().__await__()

    async def _wait(self) -> str:
        """Resolves with the reason; ``released`` once the grant is released."""
        word, _ = await wait(self._native.at_risk())
        return str(word)


class Grant:
    """A held name, until it is released or lost. Its lease is renewed in the background.

    `at_risk` reports that an operator has revoked the lease or that renewals fail, while it is
    still valid; `lost` reports its end.

    Use it as a context manager, or call `release`. A pause of this process can outlast the lease:
    if two writers at once would do harm, hand `fencing_token` to the resource.
    """

    def __init__(
        self, native: _holdline.Grant, callbacks: Callbacks | None, hub: Hub | None
    ) -> None:
        self._native = native
        self.lost = LostEvent(native)
        self.at_risk = RiskEvent(native, self.lost)
        self._watches: list[Watch] = []
        callbacks = callbacks or Callbacks()
        if callbacks.on_at_risk is not None:
            _watch_risk(self, callbacks.on_at_risk, hub)
        if callbacks.on_lost is not None:
            _watch_loss(self, callbacks.on_lost, hub)

    @property
    def name(self) -> str:
        """The lock name."""
        return self._native.name

    @property
    def fencing_token(self) -> int:
        """The number to hand to the resource, which rejects smaller ones."""
        return self._native.fencing_token

    @property
    def lease_id(self) -> str:
        """The proof of the grant: a program that knows it can renew and release. Keep it out of logs."""
        return self._native.lease_id

    @property
    def mode(self) -> str:
        """How it is held: ``exclusive``, ``shared`` or ``permits``."""
        return self._native.mode

    @property
    def is_valid(self) -> bool:
        """Whether the lease is valid. It looks at the clock only, and asks no store."""
        return self._native.is_valid

    @property
    def remaining(self) -> float:
        """For how many seconds the lease is still valid, without a further renewal."""
        return self._native.remaining

    def renew(self) -> float:
        """Renews the lease now; returns for how many seconds it is valid."""
        return float(self._native.renew().wait())

    async def arenew(self) -> float:
        """As `renew`, in an event loop."""
        return float(await wait(self._native.renew()))

    def release(self) -> Release:
        """Releases the name. If the store does not answer, it goes on in the background."""
        return self._released(self._end(self._native.release).wait())

    async def arelease(self) -> Release:
        """As `release`, in an event loop."""
        return self._released(await wait(self._end(self._native.release)))

    def detach(self) -> Lease:
        """Gives the lease out of this process: it is not renewed, and ends after its duration."""
        lease = Lease(self._native.detach().wait())
        self._stop()
        return lease

    async def adetach(self) -> Lease:
        """As `detach`, in an event loop."""
        lease = Lease(await wait(self._native.detach()))
        self._stop()
        return lease

    @property
    def _ended(self) -> bool:
        return self.lost._ended

    def _stop(self) -> None:
        self.lost._end()
        for watch in self._watches:
            watch.stop()

    def _end(self, start: Callable[[], T]) -> T:
        """Starts the request that ends the grant."""
        self._stop()
        return start()

    def _released(self, raw: Any) -> Release:
        release = Release._of(raw)
        if release.lost is not None:
            self.lost._reason = release.lost
        return release

    def _check(self, release: Release, error: BaseException | None) -> None:
        """At the end of a `with` block: its work may have been done without the lock."""
        if release.lost is not None and error is None:
            why = release.lost_message or release.lost
            message = f"{self.name}: the lease was lost before the end of the block: {why}"
            details = {"reason": release.lost}
            raise Lost(message, "unknown", name=self.name, details=details)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._ended:
            self._check(self.release(), error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._ended:
            self._check(await self.arelease(), error)

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"<{kind} {self.name!r} token={self.fencing_token} valid={self.is_valid}>"


def _watch_loss(grant: Grant, on_lost: Callback, hub: Hub | None) -> None:
    """Has `on_lost` called when the lease is lost."""

    def lost(grant: Grant, reason: str) -> None:
        grant.lost._reason = reason
        _call(on_lost, grant)

    _watch(grant, grant._native.lost(), lost, hub)


def _watch_risk(grant: Grant, on_at_risk: Callback, hub: Hub | None) -> None:
    """Has `on_at_risk` called at the first risk, and at a revocation that comes after it."""
    known: set[str] = set()
    # The two may be noticed on two threads.
    lock = threading.Lock()

    def at_risk(grant: Grant, reason: str) -> None:
        with lock:
            if known and (reason != "revoked" or reason in known):
                return
            known.add(reason)
        _call(on_at_risk, grant)

    _watch(grant, grant._native.at_risk(), at_risk, hub)
    _watch(grant, grant._native.revoked(), at_risk, hub)


def _watch(
    grant: Grant,
    operation: _holdline.Operation,
    call: Callable[[Grant, str], None],
    hub: Hub | None,
) -> None:
    """Has a function called with the grant and the word of the operation: in the event loop of the
    hub, or else on the thread of the process."""

    # A grant that nobody has any more is released, and then there is nobody to call.
    remembered = weakref.ref(grant)

    def look(value: tuple[str, str]) -> None:
        grant = remembered()
        if grant is not None:
            call(grant, value[0])

    grant._watches.append(Watch(operation, look, hub or thread_hub()))


def _call(callback: Callback, grant: Grant) -> None:
    outcome = callback(grant)
    if isinstance(outcome, Awaitable):
        _run_soon(outcome)


_tasks: set[Any] = set()


def _run_soon(outcome: Any) -> None:
    import asyncio

    try:
        task = asyncio.ensure_future(outcome)
    except RuntimeError:
        if hasattr(outcome, "close"):
            outcome.close()
        raise TypeError("an async callback needs an event loop of asyncio") from None
    # The loop itself keeps only weak references.
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


class Leadership(Grant):
    """The leadership of an election, until it is resigned or lost."""

    @property
    def term(self) -> int:
        """The number of the term: a fencing token that grows with each leader."""
        return self._native.fencing_token

    def proclaim(self, value: str) -> None:
        """Replaces the value that observers see."""
        self._native.proclaim(value).wait()

    async def aproclaim(self, value: str) -> None:
        """As `proclaim`, in an event loop."""
        await wait(self._native.proclaim(value))

    def resign(self) -> Release:
        """Ends the leadership: the next candidate leads."""
        return self.release()

    async def aresign(self) -> Release:
        """As `resign`, in an event loop."""
        return await self.arelease()


class OnceRun(Grant):
    """A slot that is ours while the job runs. `release` gives it back: another may run the job."""

    @property
    def slot_start(self) -> float:
        """When the slot began, in seconds since 1970."""
        return self._native.slot_start or 0.0

    def finish(self) -> None:
        """Keeps the slot until its end: the job is done."""
        self._end(self._native.finish).wait()

    async def afinish(self) -> None:
        """As `finish`, in an event loop."""
        await wait(self._end(self._native.finish))

    def fail(self) -> bool:
        """Ends a job that has failed; whether the slot stays taken, as its options say."""
        return bool(self._end(self._native.fail).wait())

    async def afail(self) -> bool:
        """As `fail`, in an event loop."""
        return bool(await wait(self._end(self._native.fail)))


class Grants(Sequence[Grant]):
    """Several grants that were acquired together, and are released together."""

    def __init__(self, grants: Sequence[Grant]) -> None:
        self._grants = list(grants)

    def __getitem__(self, at: Any) -> Any:
        return self._grants[at]

    def __len__(self) -> int:
        return len(self._grants)

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._grants)

    @property
    def is_valid(self) -> bool:
        """Whether all leases are valid."""
        return all(grant.is_valid for grant in self._grants)

    def _start(self) -> list[tuple[Grant, _holdline.Operation]]:
        """Starts to release all that are still held."""
        return [(grant, grant._end(grant._native.release)) for grant in self._held()]

    def release(self) -> list[Release]:
        """Releases all that are still held."""
        started = self._start()
        try:
            return [grant._released(operation.wait()) for grant, operation in started]
        finally:
            _give_up(started)

    async def arelease(self) -> list[Release]:
        """As `release`, in an event loop."""
        started = self._start()
        try:
            return [grant._released(await wait(operation)) for grant, operation in started]
        finally:
            _give_up(started)

    def _check(
        self, held: list[Grant], released: list[Release], error: BaseException | None
    ) -> None:
        for grant, release in zip(held, released, strict=True):
            grant._check(release, error)

    def _held(self) -> list[Grant]:
        return [grant for grant in self._grants if not grant._ended]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        held = self._held()
        self._check(held, self.release(), error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        held = self._held()
        self._check(held, await self.arelease(), error)


def _give_up(started: list[tuple[Grant, _holdline.Operation]]) -> None:
    """Has the grants released in the background that an interrupt or a cancellation left. Their
    operations would not be dropped soon: the traceback has them."""
    for _, operation in started:
        operation.cancel()


class Lease:
    """A detached lease as plain data: any process that has it can renew and release it.

    It contains the proof of the grant, so protect it as a secret.
    """

    def __init__(self, native: _holdline.Lease) -> None:
        self._native = native

    @classmethod
    def from_json(cls, text: str) -> Lease:
        """Reads what `to_json` wrote, here or in another language."""
        return cls(_holdline.Lease.from_json(text))

    def to_json(self) -> str:
        """Writes it as JSON, which every Holdline library reads."""
        return self._native.to_json()

    @property
    def name(self) -> str:
        """The lock name."""
        return self._native.name

    @property
    def lease_id(self) -> str:
        """The proof of the grant."""
        return self._native.lease_id

    @property
    def fencing_token(self) -> int:
        """The number to hand to the resource."""
        return self._native.fencing_token

    @property
    def mode(self) -> str:
        """How the name is held."""
        return self._native.mode

    @property
    def lease_duration(self) -> float:
        """For how many seconds the store keeps the grant after each renewal."""
        return self._native.lease_duration

    def __reduce__(self) -> tuple[Any, ...]:
        return Lease.from_json, (self.to_json(),)

    def __repr__(self) -> str:
        return f"<Lease {self.name!r} token={self.fencing_token}>"
