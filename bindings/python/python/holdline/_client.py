"""The client, and what it describes: locks, elections, and jobs that run once per slot."""

from __future__ import annotations

import functools
import os
import pwd
import sys
import threading
import time
import weakref
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar

from holdline import _holdline
from holdline._errors import Invalid, LockError
from holdline._grants import (
    Callback,
    Callbacks,
    Grant,
    Grants,
    Leadership,
    Lease,
    OnceRun,
    Release,
)
from holdline._observers import Observer, Observing, checked
from holdline._reentrant import OwnedGrant, Owner
from holdline._waiting import Hub, current_hub, follow_log_level, register, wait

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, Self, Unpack

    P = ParamSpec("P")

Seconds = float | timedelta
G = TypeVar("G", bound=Grant | Grants)
T = TypeVar("T")


def _url_of_environment() -> str:
    """The URL if none is given: that of the environment, or `local:` unless a server is
    required."""
    url = os.environ.get("HOLDLINE_URL")
    required = os.environ.get("HOLDLINE_REQUIRE_SERVER", "")
    has_no_server = url is None or url.lower().startswith(("local:", "memory:"))
    if has_no_server and required not in ("", "0", "false", "no", "off"):
        found = "is not set" if url is None else "names no server"
        message = f"HOLDLINE_URL: {found}, and HOLDLINE_REQUIRE_SERVER requires a server"
        raise Invalid(message, details={"field": "HOLDLINE_URL"})
    return "local:" if url is None else url


class Options(TypedDict, total=False):
    """The options of a lock: `Client.lock` says what they mean. A time is a number of seconds or a
    `timedelta`; None is as if it was not set."""

    #: How long to wait for the name; for ever if it is not set.
    wait: Seconds | None
    #: How long the store keeps a grant without a renewal; that of the client if it is not set.
    lease_duration: Seconds | None
    #: How often the lease is renewed; a third of the lease if it is not set.
    renew_interval: Seconds | None
    #: After this time the lease is lost, although it could be renewed; no limit if it is not set.
    max_hold: Seconds | None
    #: Whether waiters are served in order, on engines that do so only on request.
    fair: bool | None
    #: Whether an outage of the store ends the wait with its error within seconds; it waits through
    #: the outage if this is not set.
    fail_in_outage: bool | None
    #: How the lease is kept; renewed in the background if it is not set.
    keep: Literal["renewed", "fixed", "detached", "live"] | None
    #: Why it is held, for people.
    reason: str | None
    #: Labels, for people and tools.
    labels: dict[str, str] | None
    #: The W3C trace context of the holder.
    traceparent: str | None
    #: The class of the lock, which metrics are labelled with.
    lock_class: str | None
    #: Called with the grant when the lease is lost: in the event loop that acquired it, else on a
    #: thread of the library.
    on_lost: Callback | None
    #: Called with the grant when the lease is at risk or an operator has revoked it, in the same
    #: place as `on_lost`.
    on_at_risk: Callback | None


class SlotOptions(Options, total=False):
    """The options of a job that runs once per slot: `every` or `cron`, and those of its lock.
    `Client.once` says what they mean."""

    #: The length of a slot, counted from 1970-01-01 00:00 UTC.
    every: Seconds | None
    #: A cron expression: a slot begins when it fires.
    cron: str | None
    #: The time zone of `cron`, an IANA name; UTC if it is not set.
    zone: str | None
    #: Keep the slot whatever becomes of the job.
    at_most_once: bool | None
    #: Keep the slot also when the job fails.
    keep_on_failure: bool | None
    #: By how much the clocks of two machines may differ; 1 s if it is not set.
    max_skew: Seconds | None


class AcquireContext(Coroutine[Any, Any, G]):
    """An acquisition in an event loop, for one use: ``grant = await lock.aacquire()``, or
    ``async with lock.aacquire() as grant:``, which releases that grant.

    Nothing is asked of the store before it is awaited or entered.
    """

    # It is a coroutine, as event loops start tasks of nothing else.
    def __init__(self, acquiring: Coroutine[Any, Any, G]) -> None:
        self._acquiring = acquiring
        self._grant: G | None = None

    def __await__(self) -> Generator[Any, Any, G]:
        return self._acquiring.__await__()

    def send(self, value: Any) -> Any:
        return self._acquiring.send(value)

    def throw(self, *error: Any) -> Any:
        return self._acquiring.throw(*error)

    def close(self) -> None:
        self._acquiring.close()

    async def __aenter__(self) -> G:
        grant = self._grant = await self._acquiring
        return grant

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._grant is not None
        await self._grant.__aexit__(kind, error, traceback)


class Lock(Generic[G]):
    """A lock that can be acquired, any number of times: a description, which holds nothing.

    Threads and tasks may share one description. Each `acquire` returns a grant of its own, which is
    a context manager: ``with lock.acquire() as grant:`` and ``async with lock.aacquire() as
    grant:``.

    ``with lock as grant:`` and ``async with lock as grant:`` are short forms for one use at a time.
    To enter the description again before that block is left raises `Invalid`. The block may be left
    on any thread and in any task.
    """

    def __init__(
        self,
        client: Client,
        describe: Callable[[_holdline.Client], _holdline.Lock],
        wrap: Callable[[Any, Hub | None], G],
    ) -> None:
        self._client = client
        self._describe = describe
        self._wrap = wrap
        self._made_by = client._native
        self._native = describe(self._made_by)
        # The grant of the `with` block that has entered this description, by the process that
        # entered it: a forked child inherits the entry of its parent, and may have one of its own.
        # The list is empty while that block acquires. No lock guards this: the garbage collector
        # may leave a block in the midst of any other. `setdefault` and `pop` are atomic.
        self._entered: dict[int, list[G]] = {}

    def _lock(self) -> _holdline.Lock:
        """The native lock of the client in this process."""
        client = self._client._native
        if client is not self._made_by:
            self._made_by, self._native = client, self._describe(client)
        return self._native

    def acquire(self) -> G:
        """Waits until the lock is held, or raises `TimedOut` after the option `wait`."""
        return self._wrap(self._lock().acquire().wait(), None)

    def aacquire(self) -> AcquireContext[G]:
        """As `acquire`, in an event loop: await it, or use it in ``async with``. A cancelled task
        leaves nothing behind."""
        return AcquireContext(self._aacquire())

    async def _aacquire(self) -> G:
        return self._wrap(await wait(self._lock().acquire()), current_hub())

    def try_acquire(self) -> G:
        """Acquires the lock without waiting, or raises `Busy`."""
        return self._wrap(self._lock().try_acquire().wait(), None)

    def atry_acquire(self) -> AcquireContext[G]:
        """As `try_acquire`, in an event loop: await it, or use it in ``async with``."""
        return AcquireContext(self._atry_acquire())

    async def _atry_acquire(self) -> G:
        return self._wrap(await wait(self._lock().try_acquire()), current_hub())

    def _enter(self) -> list[G]:
        """Claims the description for one `with` block; its grant comes into the list."""
        entry: list[G] = []
        if self._entered.setdefault(os.getpid(), entry) is not entry:
            message = (
                "lock: a `with` block has entered this description and not left it: use `with "
                "lock.acquire() as grant:` or `async with lock.aacquire() as grant:`, or describe "
                "a lock for each use"
            )
            raise Invalid(message, engine=self._client.engine, details={"field": "lock"})
        return entry

    def _leave(self) -> G:
        """Ends the claim, so that the description can be entered again; returns the grant."""
        process = os.getpid()
        if process not in self._entered and self._entered:
            # A forked child leaves the block of its parent.
            process = next(reversed(self._entered))
        try:
            grant = self._entered[process].pop()
        except LookupError:
            message = "lock: no `with` block has entered this description"
            details = {"field": "lock"}
            raise Invalid(message, engine=self._client.engine, details=details) from None
        del self._entered[process]
        return grant

    def __enter__(self) -> G:
        entry = self._enter()
        try:
            grant = self.acquire()
            entry.append(grant)
        except BaseException:
            del self._entered[os.getpid()]
            raise
        return grant

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave().__exit__(kind, error, traceback)

    async def __aenter__(self) -> G:
        entry = self._enter()
        try:
            grant = await self._aacquire()
            entry.append(grant)
        except BaseException:
            del self._entered[os.getpid()]
            raise
        return grant

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave().__aexit__(kind, error, traceback)


class ReentrantLock(Lock[OwnedGrant]):
    """A lock that its owner may acquire again while holding it, as a `threading.RLock`.

    ``with lock:`` and ``async with lock:`` may stand in each other. Every acquisition returns a
    grant with the fencing token of the first one, and is released once; the last release frees the
    name. `release` ends the innermost acquisition. A release in another order, or by an owner that
    does not hold the name, raises `Invalid` and changes nothing. Once the lease is lost, `acquire`
    raises `Lost` until all acquisitions are released.
    """

    def __init__(
        self, client: Client, name: str, owner: Owner, options: dict[str, Any]
    ) -> None:
        if not isinstance(owner, Owner):
            raise TypeError(f"`owner` is an Owner, not {type(owner).__name__}")
        self.name = name
        self.owner = owner
        kind = functools.partial(OwnedGrant, held_by=(owner, client))
        wrap = client._wrapping(kind, Callbacks.taken_from(options))
        super().__init__(
            client, lambda native: native.rlock(name, owner._native, **options), wrap
        )

    @property
    def depth(self) -> int:
        """How often the owner holds it: 0 if it does not."""
        return len(self.owner._levels(self._client, self.name))

    def _leave(self) -> OwnedGrant:
        return self.owner._innermost(self._client, self.name)

    def release(self) -> Release:
        """Releases the innermost acquisition of the owner."""
        return self._leave().release()

    async def arelease(self) -> Release:
        """As `release`, in an event loop."""
        return await self._leave().arelease()

    def __enter__(self) -> OwnedGrant:
        return self.acquire()

    async def __aenter__(self) -> OwnedGrant:
        return await self._aacquire()


class RwLock:
    """A lock that many may read or one may write."""

    def __init__(self, client: Client, name: str, options: dict[str, Any]) -> None:
        self.name = name
        self._client = client
        self._wrap = client._wrapping(Grant, Callbacks.taken_from(options))
        self._options = options
        # Refused here rather than at the first use.
        client._native.rwlock(name, **options)

    def _side(self, side: Literal[0, 1]) -> Lock[Grant]:
        def describe(native: _holdline.Client) -> _holdline.Lock:
            return native.rwlock(self.name, **self._options)[side]

        return Lock[Grant](self._client, describe, self._wrap)

    def read(self) -> Lock[Grant]:
        """The shared side: a new description for each call, so that readers may overlap."""
        return self._side(0)

    def write(self) -> Lock[Grant]:
        """The exclusive side: a new description for each call."""
        return self._side(1)


@dataclass(frozen=True)
class Leader:
    """Who leads."""

    #: The number of its term.
    term: int
    #: What it proclaims.
    value: str
    #: Since when it leads, in seconds since 1970 by this machine's clock.
    since: float | None
    #: The machine on which it runs.
    host: str


def _leader(raw: Any) -> Leader | None:
    return raw and Leader(*raw)


class Leaders:
    """The leaders of an election, one after the other. It ends only by an error."""

    def __init__(self, native: _holdline.Leaders) -> None:
        self._native = native

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Leader:
        leader = _leader(self._native.next().wait())
        if leader is None:
            raise StopIteration
        return leader

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Leader:
        leader = _leader(await wait(self._native.next()))
        if leader is None:
            raise StopAsyncIteration
        return leader


class Election:
    """An election: its holder leads, and has a value that observers see."""

    def __init__(self, client: Client, name: str, options: dict[str, Any]) -> None:
        self.name = name
        self._client = client
        self._callbacks = Callbacks.taken_from(options)
        self._options = options
        # Refused here rather than at the first campaign.
        client._native.campaign(name, "", **options)

    def campaign(self, value: str = "") -> Lock[Leadership]:
        """A candidacy: acquire it, or use it in ``with``, to lead."""
        return Lock[Leadership](
            self._client,
            lambda native: native.campaign(self.name, value, **self._options),
            self._client._wrapping(Leadership, self._callbacks),
        )

    def leader(self) -> Leader | None:
        """Who leads now."""
        return _leader(self._client._native.leader(self.name).wait())

    async def aleader(self) -> Leader | None:
        """As `leader`, in an event loop."""
        return _leader(await wait(self._client._native.leader(self.name)))

    def observe(self) -> Leaders:
        """The leaders, one after the other, for ``for`` or ``async for``. Terms grow."""
        return Leaders(self._client._native.leaders(self.name))


class Latch:
    """A count-down latch: a number in the store, and waiters wait for zero.

    It has no lease. One that was never set is open, so set it before anybody waits.
    """

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._client = client
        client._native.latch(name)

    def _latch(self) -> _holdline.Latch:
        return self._client._native.latch(self.name)

    def set(self, count: int) -> bool:
        """Sets the number, if the latch is open; returns whether it did."""
        return bool(self._latch().set(count).wait())

    async def aset(self, count: int) -> bool:
        """As `set`, in an event loop."""
        return bool(await wait(self._latch().set(count)))

    def count_down(self, by: int = 1) -> int:
        """Counts down; returns what is left."""
        return int(self._latch().count_down(by).wait())

    async def acount_down(self, by: int = 1) -> int:
        """As `count_down`, in an event loop."""
        return int(await wait(self._latch().count_down(by)))

    def count(self) -> int:
        """What is left to count."""
        return int(self._latch().count().wait())

    async def acount(self) -> int:
        """As `count`, in an event loop."""
        return int(await wait(self._latch().count()))

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Waits until the latch is open; false once `timeout` has passed."""
        return bool(self._latch().wait(timeout).wait())

    async def await_(self, timeout: Seconds | None = None) -> bool:
        """As `wait`, in an event loop: `await` itself is a word of the language."""
        return bool(await wait(self._latch().wait(timeout)))


@dataclass(frozen=True)
class Taken:
    """The slot is another's."""

    #: ``already_ran``, or ``running_elsewhere`` if the wait limit has passed.
    outcome: Literal["already_ran", "running_elsewhere"]
    #: What the machine that took the slot reports about itself.
    by: dict[str, Any]


@dataclass(frozen=True)
class OnceOutcome(Generic[T]):
    """What came of a start of a job that runs once per slot."""

    #: ``unmarked``: it ran here, but the store did not confirm; another machine may run it again.
    outcome: Literal["ran", "unmarked", "already_ran", "running_elsewhere"]
    #: What the job returned, if it ran here.
    value: T | None = None
    #: Why the store did not confirm.
    error: LockError | None = None
    #: Who took the slot, if it did not run here.
    by: dict[str, Any] | None = None

    @property
    def ran(self) -> bool:
        """Whether the job ran here to its end."""
        return self.outcome in ("ran", "unmarked")


class Once:
    """A job that runs once per slot of time, on one of all machines that start it."""

    def __init__(
        self, client: Client, name: str, options: dict[str, Any], retries: int
    ) -> None:
        if isinstance(retries, bool) or not isinstance(retries, int):
            raise TypeError(f"`retries` is a number, not {type(retries).__name__}")
        if retries < 0 or (retries and options.get("at_most_once")):
            details = {"field": "retries"}
            raise Invalid("retries: not negative, and none at most once", details=details)
        self.name = name
        self._client = client
        self._options = options
        self._retries = retries
        self._wrap = client._wrapping(OnceRun, Callbacks.taken_from(options))
        self._made_by = client._native
        self._native = self._made_by.once(name, **options)

    def _once(self) -> _holdline.Once:
        client = self._client._native
        if client is not self._made_by:
            self._made_by, self._native = client, client.once(self.name, **self._options)
        return self._native

    def _begun(self, raw: Any, hub: Hub | None) -> OnceRun | Taken:
        word, value = raw
        return self._wrap(value, hub) if word == "run" else Taken(word, value)

    def begin(self) -> OnceRun | Taken:
        """Takes the slot without running anything."""
        return self._begun(self._once().begin().wait(), None)

    async def abegin(self) -> OnceRun | Taken:
        """As `begin`, in an event loop."""
        return self._begun(await wait(self._once().begin()), current_hub())

    def run(self, job: Callable[[OnceRun], T]) -> OnceOutcome[T]:
        """Runs the job, unless it has run in this slot or runs elsewhere.

        An exception of the job is raised after the slot was given back, or kept, as the options
        say.
        """
        begun = self.begin()
        if isinstance(begun, Taken):
            return OnceOutcome(begun.outcome, by=begun.by)
        retries = self._retries
        while True:
            try:
                value = job(begun)
                break
            except BaseException as error:
                if retries and isinstance(error, Exception):
                    retries -= 1
                    continue
                begun.fail()
                raise
        try:
            begun.finish()
        except LockError as error:
            return OnceOutcome("unmarked", value, error)
        return OnceOutcome("ran", value)

    async def arun(self, job: Callable[[OnceRun], Awaitable[T]]) -> OnceOutcome[T]:
        """As `run`, for an async job."""
        begun = await self.abegin()
        if isinstance(begun, Taken):
            return OnceOutcome(begun.outcome, by=begun.by)
        retries = self._retries
        while True:
            try:
                value = await job(begun)
                break
            except BaseException as error:
                if retries and isinstance(error, Exception):
                    retries -= 1
                    continue
                await begun.afail()
                raise
        try:
            await begun.afinish()
        except LockError as error:
            return OnceOutcome("unmarked", value, error)
        return OnceOutcome("ran", value)

    def __call__(self, function: Callable[P, T]) -> Callable[P, OnceOutcome[T]]:
        """As a decorator: each call of the function is a start of the job."""

        @functools.wraps(function)
        def start(*args: P.args, **kwargs: P.kwargs) -> OnceOutcome[T]:
            return self.run(lambda _: function(*args, **kwargs))

        return start


class Client:
    """A connection to one store of locks, with the background work for them.

    The URL names the store: ``local:`` this machine, ``redis://``, ``redlock://``, ``postgres://``,
    ``mysql://``, ``etcd://``, ``zk://``, ``http://`` a Holdline server, ``memory:`` this process.
    Without one it is that of the variable ``HOLDLINE_URL``, or ``local:``.

    One client is enough for a process, and threads and event loops may share it. In a forked child
    it connects again when it is first used; grants stay the parent's.

    `lease_duration` is the lease of locks that name none: 30 s unless set, or the engine's longest
    if that is shorter. `answer_within` is how long a request may go unanswered before it is
    repeated or given up: 10 s unless set. Both are seconds or a `timedelta`.

    With `metrics` the client adds up metrics, for `holdline.prometheus` or
    `holdline.opentelemetry`. They are labelled with the class of a lock: `classes` has one for each
    prefix of names, as in ``{"order/": "order/{id}"}``, and the longest prefix counts. `observers`
    receive the events of the client's locks.
    """

    _made: _holdline.Client | None

    def __init__(
        self,
        url: str | None = None,
        *,
        lease_duration: Seconds | None = None,
        answer_within: Seconds | None = None,
        metrics: bool = False,
        classes: Mapping[str, str] | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        self._connecting(
            url,
            observers,
            lease_duration=lease_duration,
            answer_within=answer_within,
            metrics=metrics,
            classes=classes and dict(classes),
        )
        self._made = _connected(self._connect())

    @classmethod
    async def aconnect(
        cls,
        url: str | None = None,
        *,
        lease_duration: Seconds | None = None,
        answer_within: Seconds | None = None,
        metrics: bool = False,
        classes: Mapping[str, str] | None = None,
        observers: Iterable[Observer] = (),
    ) -> Self:
        """Connects in an event loop."""
        client = cls.__new__(cls)
        client._connecting(
            url,
            observers,
            lease_duration=lease_duration,
            answer_within=answer_within,
            metrics=metrics,
            classes=classes and dict(classes),
        )
        client._made = await wait(client._connect())
        return client

    def _connecting(
        self, url: str | None, observers: Iterable[Observer], **options: Any
    ) -> None:
        if url is None:
            url = _url_of_environment()
        self._made = None
        self._lock = threading.Lock()
        self._grants: weakref.WeakSet[Grant] = weakref.WeakSet()
        self._observers = checked(observers)
        self._observing: Observing | None = None
        # It is tried before anything starts, so that wrong types leave nothing behind.
        self._native_connect = functools.partial(
            _holdline.connect, url, _this_process(), **options
        )
        self._native_connect().cancel()
        self._url = url
        follow_log_level()
        register(self)

    def _connect(self) -> _holdline.Operation:
        if not self._observers:
            return self._native_connect()
        self._observing = Observing(self._observers)
        return self._native_connect(events=self._observing.events)

    @property
    def _native(self) -> _holdline.Client:
        made = self._made
        return made if made is not None else self._reconnect()

    def _reconnect(self) -> _holdline.Client:
        """Connects again in a forked child."""
        with self._lock:
            made = self._made
            if made is None:
                if self._url.lower().startswith("memory:"):
                    message = (
                        "client: the locks of memory: exist in the process that made them: "
                        "make a new client after a fork"
                    )
                    raise Invalid(message, engine="memory", details={"field": "client"})
                follow_log_level()
                made = self._made = _connected(self._connect())
            return made

    def _after_fork(self) -> None:
        self._made = None
        self._lock = threading.Lock()
        self._grants = weakref.WeakSet()
        self._observing = None

    def _at_exit(self) -> None:
        """Releases what is held, and waits for what was given up; for two seconds at most."""
        if self._made is None:
            return
        end = time.monotonic() + 2
        operations = [g._native.release() for g in list(self._grants) if not g._ended]
        operations.append(self._made.shutdown(2))
        for operation in operations:
            operation.wait_for(max(0.0, end - time.monotonic()))
        if self._observing is not None:
            self._observing.close(max(0.0, end - time.monotonic()))

    def _wrapping(
        self, kind: Callable[[Any, Callbacks | None, Hub | None], Any], callbacks: Callbacks | None
    ) -> Callable[[Any, Any], Any]:
        """What turns a native grant into one of `kind`."""

        def wrap(native: Any, hub: Hub | None) -> Any:
            grant = kind(native, callbacks, hub)
            self._grants.add(grant)
            return grant

        return wrap

    def _wrapping_many(self, callbacks: Callbacks) -> Callable[[Any, Any], Grants]:
        wrap = self._wrapping(Grant, callbacks)
        return lambda natives, hub: Grants([wrap(native, hub) for native in natives])

    @property
    def engine(self) -> str:
        """The short name of the engine, such as ``redis``."""
        return self._native.engine

    def lock(self, name: str, **options: Unpack[Options]) -> Lock[Grant]:
        """An exclusive lock. Nothing is asked of the store until it is acquired.

        Times are numbers of seconds or a `timedelta`. These are the options; one that is None is
        not set:

        - `wait`: how long to wait for the name, before `TimedOut` is raised; 0 does not wait. For
          ever unless set.
        - `lease_duration`: how long the store keeps the grant without a renewal, from 0.05 to
          86400 s and within the engine's range. That of the client unless set, which is 30 s if
          the client names none.
        - `renew_interval`: how often the lease is renewed. A third of the lease unless set.
        - `max_hold`: after this time the lease is lost, although it could be renewed. No limit
          unless set.
        - `keep`: how the lease is kept, ``"renewed"`` unless set.
          ``"renewed"``: it is renewed in the background until the grant is released.
          ``"fixed"``: it is not renewed, and is lost after `lease_duration`, unless the program
          calls `Grant.renew`.
          ``"detached"``: as fixed, and the death of the process does not end it. Without it, the
          engine `local:` frees the names of a dead process at once. The end of the interpreter
          releases it, as all grants: `Grant.detach` gives it out of the process.
          ``"live"``: it has no time limit, and lasts until it is released or the process dies.
          Engine `local:` only.
        - `fair`: serve waiters in the order in which they queued, False unless set. Only Redis with
          `dialect=redisson` needs it: most engines always serve in order, and the others refuse it.
        - `fail_in_outage`: an outage of the store ends the wait with its error within seconds. False
          unless set: the call waits through the outage, until `wait` is over.
        - `reason`: why the lock is held, a string for people.
        - `labels`: a dict of strings, for people and tools.
        - `traceparent`: the W3C trace context of the holder, a string.
        - `lock_class`: the class of the lock, a string such as ``"order/{id}"``: metrics are
          labelled with it, never with the name. That of the client's `classes` unless set.
        - `on_at_risk`: called with the grant when an operator has revoked the lease, when its
          renewals fail or when it runs out, while it is still valid. The program should stop then.
        - `on_lost`: called with the grant when the lease is lost. Both callbacks run in the event
          loop that acquired the grant, or else on a thread of the library.
        """
        given: dict[str, Any] = {**options}
        wrap = self._wrapping(Grant, Callbacks.taken_from(given))
        return Lock[Grant](self, lambda native: native.lock(name, **given), wrap)

    #: The same object serves ``with`` and ``async with``; this name shows which is meant.
    alock = lock

    def rlock(self, name: str, owner: Owner, **options: Unpack[Options]) -> ReentrantLock:
        """An exclusive lock that `owner` may acquire again while holding it.

        Its options are those of `lock`; those of the first acquisition count for the lease.
        """
        given: dict[str, Any] = {**options}
        return ReentrantLock(self, name, owner, given)

    def rwlock(self, name: str, **options: Unpack[Options]) -> RwLock:
        """A lock that many may read or one may write. Its options are those of `lock`."""
        given: dict[str, Any] = {**options}
        return RwLock(self, name, given)

    def semaphore(
        self, name: str, permits: int, count: int = 1, **options: Unpack[Options]
    ) -> Lock[Grant]:
        """`count` of the `permits` permits of a semaphore. Its options are those of `lock`."""
        given: dict[str, Any] = {**options}
        wrap = self._wrapping(Grant, Callbacks.taken_from(given))
        return Lock[Grant](
            self, lambda native: native.semaphore(name, permits, count, **given), wrap
        )

    def any_of(self, names: Iterable[str], **options: Unpack[Options]) -> Lock[Grant]:
        """One of several names, whichever is free first. Its options are those of `lock`."""
        chosen = _names(names)
        given: dict[str, Any] = {**options}
        wrap = self._wrapping(Grant, Callbacks.taken_from(given))
        return Lock[Grant](self, lambda native: native.any_of(chosen, None, **given), wrap)

    def many_of(
        self, names: Iterable[str], count: int, **options: Unpack[Options]
    ) -> Lock[Grants]:
        """`count` of several names. Its options are those of `lock`."""
        chosen = _names(names)
        given: dict[str, Any] = {**options}
        wrap = self._wrapping_many(Callbacks.taken_from(given))
        return Lock[Grants](self, lambda native: native.any_of(chosen, count, **given), wrap)

    def lock_all(self, names: Iterable[str], **options: Unpack[Options]) -> Lock[Grants]:
        """All of several names or none. Overlapping sets never cause a deadlock.

        Its options are those of `lock`.
        """
        chosen = _names(names)
        given: dict[str, Any] = {**options}
        wrap = self._wrapping_many(Callbacks.taken_from(given))
        return Lock[Grants](self, lambda native: native.lock_all(chosen, **given), wrap)

    def election(self, name: str, **options: Unpack[Options]) -> Election:
        """An election: one leader of several candidates. Its options are those of `lock`."""
        given: dict[str, Any] = {**options}
        return Election(self, name, given)

    def once(self, name: str, retries: int = 0, **options: Unpack[SlotOptions]) -> Once:
        """A job that runs once per slot: `every` so many seconds, or by a `cron` expression.

        `retries` is how often `run` runs a job again that raised an error. The options are those of
        `lock`, where `wait` is how long to wait for a job that runs elsewhere, and:

        - `every`: the length of a slot in seconds or as a `timedelta`, counted from 1970-01-01
          00:00 UTC.
        - `cron`: a cron expression instead: a slot begins when it fires.
        - `zone`: the time zone of `cron`, an IANA name. UTC unless set.
        - `at_most_once`: keep the slot whatever becomes of the job. False unless set.
        - `keep_on_failure`: keep the slot also when the job fails. False unless set.
        - `max_skew`: by how much the clocks of two machines may differ. 1 s unless set.
        """
        given: dict[str, Any] = {**options}
        return Once(self, name, given, retries)

    def latch(self, name: str) -> Latch:
        """A count-down latch, on engines that have them."""
        return Latch(self, name)

    def attach(self, lease: Lease) -> Grant:
        """Takes a detached lease over: it is renewed now, and from then on."""
        native = self._native.attach(_lease(lease)).wait()
        grant: Grant = self._wrapping(Grant, None)(native, None)
        return grant

    async def aattach(self, lease: Lease) -> Grant:
        """As `attach`, in an event loop."""
        native = await wait(self._native.attach(_lease(lease)))
        grant: Grant = self._wrapping(Grant, None)(native, None)
        return grant

    def renew(self, lease: Lease, lease_duration: Seconds | None = None) -> float:
        """Renews a detached lease for its whole duration, or for another.

        Returns for how many seconds it is valid.
        """
        return float(self._native.renew(_lease(lease), lease_duration).wait())

    async def arenew(self, lease: Lease, lease_duration: Seconds | None = None) -> float:
        """As `renew`, in an event loop."""
        return float(await wait(self._native.renew(_lease(lease), lease_duration)))

    def release(self, lease: Lease) -> Release:
        """Releases a detached lease."""
        return Release._of(self._native.release(_lease(lease)).wait())

    async def arelease(self, lease: Lease) -> Release:
        """As `release`, in an event loop."""
        return Release._of(await wait(self._native.release(_lease(lease))))

    def inspect(self, name: str) -> dict[str, Any]:
        """The holders and the queue of a name: the fields of `holdline who --json`, with times in
        seconds (`left_ms` is `left`), `is_held`, and `frozen`, the reason of a freeze.
        """
        state: dict[str, Any] = self._native.inspect(name).wait()
        return state

    async def ainspect(self, name: str) -> dict[str, Any]:
        """As `inspect`, in an event loop."""
        state: dict[str, Any] = await wait(self._native.inspect(name))
        return state

    def list(self, prefix: str = "") -> Iterator[dict[str, Any]]:
        """The names that are held or waited for, as `inspect` returns each."""
        after: str | None = None
        while True:
            page, after = self._native.list(prefix, after, 1000).wait()
            yield from page
            if after is None:
                return

    def close(self, limit: Seconds = 5) -> bool:
        """Refuses new attempts, and waits until what was given up is gone from the store.

        Grants that are still held stay held. Returns whether nothing is left.
        """
        return bool(self._native.shutdown(limit).wait())

    async def aclose(self, limit: Seconds = 5) -> bool:
        """As `close`, in an event loop."""
        return bool(await wait(self._native.shutdown(limit)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _connected(operation: _holdline.Operation) -> _holdline.Client:
    client: _holdline.Client = operation.wait()
    return client


def _this_process() -> tuple[str, str, str]:
    """What holders report about themselves: host, user and program, not longer than they may be."""
    user = os.environ.get("USER") or os.environ.get("LOGNAME")
    if not user:
        try:
            user = pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:
            user = f"uid {os.geteuid()}"
    program = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
    return os.uname().nodename[:64], user[:32], program[:64]


def _names(names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise TypeError("`names` is several names, not one string")
    return list(names)


def _lease(lease: Lease) -> _holdline.Lease:
    if not isinstance(lease, Lease):
        raise TypeError(f"`lease` is a Lease, not {type(lease).__name__}")
    return lease._native
