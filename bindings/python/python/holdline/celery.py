"""A Celery task that runs once per slot of time, on one of all workers that receive it.

    @app.task
    @holdline.celery.once(client, every=3600)
    def report(): ...

Beat on two machines, a task that a broker delivers twice, and a retry by hand are starts of one
job: one of them runs it, and the others return None.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import holdline

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, Unpack

    P = ParamSpec("P")

T = TypeVar("T")
logger = logging.getLogger("holdline.celery")


def once(
    client: holdline.Client | Callable[[], holdline.Client],
    name: str | None = None,
    retries: int = 0,
    **options: Unpack[holdline.SlotOptions],
) -> Callable[[Callable[P, T]], Callable[P, T | None]]:
    """Makes a task run once per slot: `every` so many seconds, or by a `cron` expression.

    `name` is the lock name, by default ``celery/MODULE.FUNCTION``. It may contain arguments of the
    task in braces: ``"invoice/{0}"`` and ``"invoice/{number}"`` are a slot for each invoice. The
    task waits for a job that runs elsewhere for as long as the option `wait` says, 0 unless set.

    `client` may be a function that makes it, for workers that connect at their first task.
    """
    if not isinstance(client, holdline.Client) and not callable(client):
        raise TypeError(f"`client` is a Client, or a function, not {type(client).__name__}")
    given: dict[str, Any] = {"wait": 0, **options}
    find = client if callable(client) else lambda: client

    def decorate(function: Callable[P, T]) -> Callable[P, T | None]:
        template = name or f"celery/{function.__module__}.{function.__qualname__}"

        @functools.wraps(function)
        def start(*args: P.args, **kwargs: P.kwargs) -> T | None:
            lock_name = template.format(*args, **kwargs)
            job = find().once(lock_name, retries, **given)
            outcome = job.run(lambda _: function(*args, **kwargs))
            if not outcome.ran:
                logger.info("%s: %s, by %s", lock_name, outcome.outcome, outcome.by)
            return outcome.value

        return start

    return decorate
