"""What the library shows of names, as dicts.

The native module hands on the library's JSON. Here times are in seconds (`left_ms` becomes
`left`), what a holder or waiter states about itself is beside its other fields, and what it does
not state is empty.
"""

from __future__ import annotations

import json
from typing import Any

_TEXTS = ("host", "user", "program", "reason", "traceparent", "value")


def fields(text: str) -> dict[str, Any]:
    """What somebody states about itself."""
    return _fields(json.loads(text))


def holder(text: str) -> dict[str, Any]:
    """A holder that an error reports."""
    return _contender(json.loads(text))


def snapshot(text: str, own: list[tuple[bool, bool, list[int]]]) -> dict[str, Any]:
    """The state of a name; `own` has what only this machine may see of each holder: whether its
    grant is live, whether it is detached, and the processes that keep it.
    """
    state: dict[str, Any] = json.loads(text)
    state["is_held"] = state.pop("held")
    state["queue"] = [_contender(waiter) for waiter in state["queue"]]
    state["holders"] = [_contender({"revoke_reason": None, **one}) for one in state["holders"]]
    for view, (live, detached, pids) in zip(state["holders"], own, strict=True):
        view.update(live=live, detached=detached, pids=pids)
    freeze = state["freeze"]
    state["frozen"] = freeze and freeze["reason"]
    state["freeze"] = freeze and _in_seconds(freeze)
    return state


def _contender(shown: dict[str, Any]) -> dict[str, Any]:
    about = _fields(shown.pop("about"))
    return {**about, **_in_seconds(shown)}


def _fields(about: dict[str, Any]) -> dict[str, Any]:
    texts = {key: about.get(key, "") for key in _TEXTS}
    return {**texts, "pid": about.get("pid"), "labels": about.get("labels", {})}


def _in_seconds(shown: dict[str, Any]) -> dict[str, Any]:
    view: dict[str, Any] = {}
    for key, value in shown.items():
        if key.endswith("_ms"):
            view[key.removesuffix("_ms")] = None if value is None else value / 1000
        else:
            view[key] = value
    return view
