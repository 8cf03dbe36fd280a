"""The exceptions: one class for each kind of failure, with what is certain about it."""

from __future__ import annotations

from typing import Any, Literal

Certainty = Literal["applied", "not_applied", "unknown"]


class LockError(Exception):
    """A failure of a lock operation.

    ``certainty`` says whether the request took effect in the store: ``"applied"``,
    ``"not_applied"`` or ``"unknown"``. Each kind is a class of its own; ``kind`` is its word.
    """

    kind: str = "other"
    certainty: Certainty
    engine: str
    name: str | None
    details: dict[str, Any]

    def __init__(
        self,
        message: str,
        certainty: Certainty = "not_applied",
        engine: str = "holdline",
        name: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.certainty = certainty
        self.engine = engine
        self.name = name
        self.details = details or {}

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (str(self), self.certainty, self.engine, self.name, self.details)
        return type(self), fields


class Busy(LockError):
    """Another client holds the name, or is ahead in its queue. ``holder`` is who, if known."""

    kind = "busy"

    @property
    def holder(self) -> dict[str, Any] | None:
        """Who holds the name, where the engine knows it; docs/python.md, Errors, lists the keys."""
        holder: dict[str, Any] | None = self.details.get("holder")
        return holder


class TimedOut(LockError, TimeoutError):
    """The wait limit passed while another client held the name."""

    kind = "timed_out"

    @property
    def holder(self) -> dict[str, Any] | None:
        """What the holder reported about itself at the last look."""
        holder: dict[str, Any] | None = self.details.get("holder")
        return holder

    @property
    def waited(self) -> float:
        """How many seconds the client waited."""
        return float(self.details.get("waited", 0.0))


class Cancelled(LockError):
    """This client gave the request up."""

    kind = "cancelled"


class Lost(LockError):
    """The client no longer holds the lease."""

    kind = "lost"

    @property
    def reason(self) -> str:
        """Why: ``expired``, ``max_hold``, ``ran_out``, ``missing``, ``revoked``, ``store_gone`` or
        ``released``."""
        return str(self.details.get("reason", "expired"))


class TooManyWaiters(LockError):
    """The queue of the name is full."""

    kind = "too_many_waiters"


class NoQuorum(LockError):
    """Too few nodes answered. ``details["nodes"]`` has one line for each."""

    kind = "no_quorum"


class Quarantined(LockError):
    """The store may have lost its data, and refuses requests for ``details["left"]`` seconds."""

    kind = "quarantined"


class NotInitialised(LockError):
    """The store has not been set up for locks."""

    kind = "not_initialised"


class Unsupported(LockError):
    """The engine cannot do this."""

    kind = "unsupported"


class Foreign(LockError):
    """The data under the name is not ours. It was left as it is."""

    kind = "foreign"


class Refused(LockError):
    """The store refused the request: authentication, rights, read-only, full."""

    kind = "refused"


class Unavailable(LockError, ConnectionError):
    """The store did not answer."""

    kind = "unavailable"


class Protocol(LockError):
    """The store sent an invalid reply."""

    kind = "protocol"


class Invalid(LockError, ValueError):
    """The request itself is wrong. ``details["field"]`` names what is wrong."""

    kind = "invalid"


CLASSES: dict[str, type[LockError]] = {
    error.kind: error
    for error in (
        Busy,
        TimedOut,
        Cancelled,
        Lost,
        TooManyWaiters,
        NoQuorum,
        Quarantined,
        NotInitialised,
        Unsupported,
        Foreign,
        Refused,
        Unavailable,
        Protocol,
        Invalid,
    )
}

# Tracebacks show the name that a program writes in `except`.
for _error in (LockError, *CLASSES.values()):
    _error.__module__ = "holdline"


def make(
    kind: str,
    message: str,
    certainty: Certainty,
    engine: str,
    name: str | None,
    details: dict[str, Any],
) -> LockError:
    """Makes the exception of a kind; the native module calls this."""
    error = CLASSES.get(kind, LockError)(message, certainty, engine, name, details)
    error.kind = kind
    return error
