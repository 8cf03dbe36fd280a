"""What is held: grants, several at once, leaderships, slots, and detached leases."""

from __future__ import annotations

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

#: What `on_lost=` takes: it is called with the grant. In an event loop of asyncio it may be async.
OnLost = Callable[[Any], object]


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

    @property
    def is_released(self) -> bool:
        """Whether the lease was certainly held until the release."""
        return self.confirmed

    @classmethod
    def _of(cls, raw: Any) -> Release:
        if raw is None:
            return cls(True, None, None, None)
        confirmed, held_for, lost, failure = raw
        return cls(confirmed, held_for, lost and lost[0], failure)


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


class Grant:
    """A held name, until it is released or lost. Its lease is renewed in the background.

    Use it as a context manager, or call `release`. A pause of this process can outlast the lease:
    if two writers at once would do harm, hand `fencing_token` to the resource.
    """

    def __init__(self, native: _holdline.Grant, on_lost: OnLost | None, hub: Hub | None) -> None:
        self._native = native
        self.lost = LostEvent(native)
        self._watch: Watch | None = None
        if on_lost is not None:
            self._watch = _watch_loss(self, on_lost, hub)

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
        if self._watch is not None:
            self._watch.stop()

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
            message = f"{self.name}: the lease was lost before the end: {release.lost}"
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


def _watch_loss(grant: Grant, on_lost: OnLost, hub: Hub | None) -> Watch:
    """Calls `on_lost` in the event loop of the hub, or else on the thread of the process."""

    # A grant that nobody has any more is released, and then there is nobody to call.
    remembered = weakref.ref(grant)

    def call(lost: tuple[str, str]) -> None:
        grant = remembered()
        if grant is None:
            return
        grant.lost._reason = lost[0]
        outcome = on_lost(grant)
        if isinstance(outcome, Awaitable):
            _run_soon(outcome, hub)

    return Watch(grant._native.lost(), call, hub or thread_hub())


_tasks: set[Any] = set()


def _run_soon(outcome: Any, hub: Hub | None) -> None:
    import asyncio

    try:
        task = asyncio.ensure_future(outcome)
    except RuntimeError:
        if hasattr(outcome, "close"):
            outcome.close()
        raise TypeError("an async `on_lost` needs an event loop of asyncio") from None
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

    def release(self) -> list[Release]:
        """Releases all that are still held."""
        held = [grant for grant in self._grants if not grant._ended]
        started = [(grant, grant._end(grant._native.release)) for grant in held]
        return [grant._released(operation.wait()) for grant, operation in started]

    async def arelease(self) -> list[Release]:
        """As `release`, in an event loop."""
        held = [grant for grant in self._grants if not grant._ended]
        started = [(grant, grant._end(grant._native.release)) for grant in held]
        return [grant._released(await wait(operation)) for grant, operation in started]

    def _check(self, released: list[Release], error: BaseException | None) -> None:
        for grant, release in zip(self._grants, released, strict=False):
            grant._check(release, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._check(self.release(), error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._check(await self.arelease(), error)


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
