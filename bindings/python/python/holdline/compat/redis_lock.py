"""The `Lock` of redis-py, held by Holdline: change the import and keep the calls.

    from holdline.compat.redis_lock import Lock

    with Lock(redis_client, "stock/17", timeout=10):
        ...

It locks the same key, so programs with redis-py's own class exclude it, and it them. What differs:

- Without `timeout` the lease is renewed, and ends with the process. redis-py would keep the key
  for ever.
- A `timeout` is from 50 ms to 24 h.
- `extend` and `reacquire` never shorten a lease, also with `replace_ttl`.
- `sleep` has no effect: Holdline chooses its own pauses.
- A `token` of the caller's own is refused: Holdline draws them.
- `fencing_token` is new: the number to hand to the resource.

As in redis-py, only the thread that acquired it can release it, unless `thread_local` is false. To
leave a ``with`` block on another thread raises `LockError`; a lease without `timeout` is renewed
until the first thread ends. `holdline.Client.lock` has no such limit.
"""

from __future__ import annotations

import logging
import threading
import time
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from redis.exceptions import LockError, LockNotOwnedError

import holdline

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("holdline")

_clients: dict[str, holdline.Client] = {}
_clients_lock = threading.Lock()


def url_of(redis: Any) -> str:
    """The URL of the server to which a client of redis-py connects."""
    options = redis.connection_pool.connection_kwargs
    if options.get("credential_provider") is not None:
        raise ValueError("a client with a credential provider has no URL: pass `client=`")
    user, password = options.get("username") or "", options.get("password") or ""
    login = f"{quote(user, '')}:{quote(password, '')}@" if user or password else ""
    kind = redis.connection_pool.connection_class
    if "path" in options:
        place = f"redis+unix://{login}{options['path']}?db={options.get('db', 0)}&"
    else:
        scheme = "rediss" if "SSL" in kind.__name__ else "redis"
        host = options.get("host", "localhost")
        host = f"[{host}]" if ":" in host else host
        port, db = options.get("port", 6379), options.get("db", 0)
        place = f"{scheme}://{login}{host}:{port}/{db}?"
    return place + "dialect=plain&key_template={name}"


def _client_of(redis: Any) -> holdline.Client:
    """One client for each server, for all locks of the process."""
    url = url_of(redis)
    with _clients_lock:
        if url not in _clients:
            _clients[url] = holdline.Client(url)
        return _clients[url]


class _Held:
    """What one thread holds: a grant that is renewed, or a lease until a point in time."""

    def __init__(self, grant: holdline.Grant, lease: holdline.Lease | None, until: float) -> None:
        self.grant = grant
        self.lease = lease
        self.until = until


class Lock:
    """A lock with the signature of `redis.lock.Lock`; see the module for what differs."""

    def __init__(
        self,
        redis: Any,
        name: str,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        *,
        client: holdline.Client | None = None,
    ) -> None:
        self.redis = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.local: Any = threading.local() if self.thread_local else SimpleNamespace()
        self._client = client if client is not None else _client_of(redis)
        # Wrong options are refused here.
        self._lock(None)

    def _lock(self, wait: float | None) -> holdline.Lock[holdline.Grant]:
        if not self.timeout:
            return self._client.lock(self.name, wait=wait)
        return self._client.lock(
            self.name, wait=wait, lease_duration=self.timeout, keep="detached"
        )

    @property
    def _held(self) -> _Held | None:
        held: _Held | None = getattr(self.local, "held", None)
        return held

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: object = None,
    ) -> bool:
        """Acquires the lock; false if it was not free in time."""
        if token is not None:
            raise ValueError("tokens are drawn by Holdline: leave `token` out")
        if blocking is None:
            blocking = self.blocking
        if blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        began = time.monotonic()
        try:
            lock = self._lock(blocking_timeout)
            grant = lock.acquire() if blocking else lock.try_acquire()
        except (holdline.Busy, holdline.TimedOut):
            return False
        if self.timeout:
            # The first request may have been the last of a long wait.
            began = max(began, time.monotonic() - self.timeout + grant.remaining)
            self.local.held = _Held(grant, grant.detach(), began + self.timeout)
        else:
            self.local.held = _Held(grant, None, float("inf"))
        return True

    @property
    def fencing_token(self) -> int:
        """The number to hand to the resource, which rejects smaller ones."""
        return self._mine("read the fencing token of").grant.fencing_token

    def locked(self) -> bool:
        """Whether anybody holds the lock."""
        return bool(self._client.inspect(self.name)["is_held"])

    def owned(self) -> bool:
        """Whether this thread holds it, by the answer of the server."""
        held = self._held
        if held is None:
            return False
        holders = self._client.inspect(self.name)["holders"]
        return any(held.grant.lease_id.startswith(holder["lease_id"]) for holder in holders)

    def _mine(self, what: str) -> _Held:
        held = self._held
        if held is None:
            raise LockError(f"Cannot {what} an unlocked lock", lock_name=self.name)
        return held

    def release(self) -> None:
        """Releases the lock, or raises `LockNotOwnedError` if it was lost."""
        held = self._mine("release")
        self.local.held = None
        released = (
            held.grant.release() if held.lease is None else self._client.release(held.lease)
        )
        if released.lost is not None:
            says = f"Cannot release a lock that's no longer owned: {released.lost}"
            raise LockNotOwnedError(says, lock_name=self.name)

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        """Adds time to the lease, or replaces what is left of it."""
        held = self._mine("extend")
        if held.lease is None:
            raise LockError("Cannot extend a lock with no timeout", lock_name=self.name)
        left = 0.0 if replace_ttl else max(0.0, held.until - time.monotonic())
        return self._renew(held, left + additional_time)

    def reacquire(self) -> bool:
        """Sets the lease back to `timeout`."""
        held = self._mine("reacquire")
        if held.lease is None or not self.timeout:
            raise LockError("Cannot reacquire a lock with no timeout", lock_name=self.name)
        return self._renew(held, self.timeout)

    def _renew(self, held: _Held, duration: float) -> bool:
        assert held.lease is not None
        now = time.monotonic()
        try:
            self._client.renew(held.lease, duration)
        except holdline.Lost as lost:
            says = f"Cannot extend a lock that's no longer owned: {lost.reason}"
            raise LockNotOwnedError(says, lock_name=self.name) from lost
        held.until = max(held.until, now + duration)
        return True

    def __enter__(self) -> Self:
        if self.acquire():
            return self
        says = "Unable to acquire lock within the time specified"
        raise LockError(says, lock_name=self.name)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except LockError:
            if self.raise_on_release_error:
                raise
            logger.warning("Lock was unlocked or no longer owned when exiting context manager.")
