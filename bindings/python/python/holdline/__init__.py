"""Distributed locks: leases that are renewed for you, report their loss, and have fencing tokens.

    import holdline

    client = holdline.Client("redis://locks.example")
    with client.lock("stock/17", wait=10) as grant:
        print(grant.fencing_token)

In an event loop of asyncio or trio it is ``async with client.alock("stock/17", wait=10)``; each
method that waits has a twin with an ``a`` in front, to be awaited.
"""

from holdline._client import (
    AcquireContext,
    Client,
    Election,
    Latch,
    Leader,
    Leaders,
    Lock,
    Once,
    OnceOutcome,
    Options,
    ReentrantLock,
    RwLock,
    SlotOptions,
    Taken,
)
from holdline._errors import (
    Busy,
    Cancelled,
    Foreign,
    Invalid,
    LockError,
    Lost,
    NoQuorum,
    NotInitialised,
    Protocol,
    Quarantined,
    Refused,
    TimedOut,
    TooManyWaiters,
    Unavailable,
    Unsupported,
)
from holdline._grants import (
    Grant,
    Grants,
    Leadership,
    Lease,
    LostEvent,
    OnceRun,
    Release,
    RiskEvent,
)
from holdline._observers import NodeHealth, Observer, QuorumHealth, Subject
from holdline._reentrant import OwnedGrant, Owner

__all__ = [
    "AcquireContext",
    "Busy",
    "Cancelled",
    "Client",
    "Election",
    "Foreign",
    "Grant",
    "Grants",
    "Invalid",
    "Latch",
    "Leader",
    "Leaders",
    "Leadership",
    "Lease",
    "Lock",
    "LockError",
    "Lost",
    "LostEvent",
    "NoQuorum",
    "NodeHealth",
    "NotInitialised",
    "Observer",
    "Once",
    "OnceOutcome",
    "OnceRun",
    "Options",
    "OwnedGrant",
    "Owner",
    "Protocol",
    "Quarantined",
    "QuorumHealth",
    "ReentrantLock",
    "Refused",
    "Release",
    "RiskEvent",
    "RwLock",
    "SlotOptions",
    "Subject",
    "Taken",
    "TimedOut",
    "TooManyWaiters",
    "Unavailable",
    "Unsupported",
]
