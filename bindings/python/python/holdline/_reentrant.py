"""Re-entry: an owner, and the grants of a lock that it acquires again while holding it."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from holdline import _holdline
from holdline._errors import Invalid
from holdline._grants import Callbacks, Grant
from holdline._waiting import Hub

if TYPE_CHECKING:
    from holdline._client import Client

T = TypeVar("T")


class Owner:
    """Who may acquire a `ReentrantLock` again while holding it: what the thread is to a
    `threading.RLock`.

    Make one for each thread or task, and pass it on to the functions that it calls. Two threads
    with the same owner do not exclude each other.
    """

    def __init__(self) -> None:
        self._native = _holdline.Owner()
        # What it holds, the innermost last. No lock guards this: the garbage collector may leave a
        # block in the midst of any other. Each change is one atomic step.
        self._held: list[OwnedGrant] = []

    def _levels(self, client: Client, name: str) -> list[OwnedGrant]:
        """Its grants of a name, the innermost last."""
        levels = [one for one in self._held if one.name == name and one._client() is client]
        own = [one for one in levels if one._process == os.getpid()]
        # A forked child leaves the blocks of its parent.
        return own or levels

    def _innermost(self, client: Client, name: str) -> OwnedGrant:
        """Its innermost grant of a name, which is taken out."""
        while levels := self._levels(client, name):
            try:
                self._held.remove(levels[-1])
            except ValueError:
                continue  # another thread with this owner has released it
            return levels[-1]
        message = (
            f"{name}: this owner does not hold it: only the owner that acquired it releases it, "
            "once for each time"
        )
        raise Invalid(message, engine=client.engine, name=name, details={"field": "owner"})


class OwnedGrant(Grant):
    """One acquisition of a `ReentrantLock`. Those of one owner share the lease and the fencing
    token; the release of the outermost one, which comes last, frees the name."""

    def __init__(
        self,
        native: _holdline.Grant,
        callbacks: Callbacks | None,
        hub: Hub | None,
        held_by: tuple[Owner, Client],
    ) -> None:
        super().__init__(native, callbacks, hub)
        owner, client = held_by
        # An owner that nobody has any more releases what it holds.
        self._owner = weakref.ref(owner)
        self._client = weakref.ref(client)
        self._process = os.getpid()
        owner._held.append(self)

    def _end(self, start: Callable[[], T]) -> T:
        owner = self._owner()
        client = self._client()
        if owner is not None and client is not None:
            levels = owner._levels(client, self.name)
            if self in levels[:-1]:
                inner = len(levels) - 1 - levels.index(self)
                message = (
                    f"{self.name}: released in the wrong order: its owner has acquired it again, "
                    f"and must release that first: {inner} inner"
                )
                details = {"field": "owner"}
                raise Invalid(message, engine=client.engine, name=self.name, details=details)
        return super()._end(start)

    def _stop(self) -> None:
        super()._stop()
        owner = self._owner()
        if owner is not None:
            with contextlib.suppress(ValueError):
                owner._held.remove(self)
