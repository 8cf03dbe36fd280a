"""Bad input: wrong types are refused before anything is asked, wrong values as in Rust."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import holdline

#: For calls that a type checker refuses.
make_client: Any = holdline.Client


@pytest.mark.parametrize("url", ["memory:a\n", "memory:a ", " memory:a", "host=h password=CANARY"])
def test_a_url_with_stray_white_space_or_of_another_program_is_invalid(url: str) -> None:
    with pytest.raises(holdline.Invalid) as caught:
        holdline.Client(url)
    assert "CANARY" not in str(caught.value)


def test_a_required_server_makes_a_missing_url_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDLINE_URL", raising=False)
    monkeypatch.setenv("HOLDLINE_REQUIRE_SERVER", "1")
    with pytest.raises(holdline.Invalid, match="is not set"):
        holdline.Client()
    monkeypatch.setenv("HOLDLINE_URL", "LOCAL:")
    with pytest.raises(holdline.Invalid, match="names no server"):
        holdline.Client()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda client: make_client(5),
        lambda client: make_client("memory:", lease_duration="10s"),
        lambda client: client.lock(3),
        lambda client: client.lock(None),
        lambda client: client.lock("n", wait="1"),
        lambda client: client.lock("n", wait=True),
        lambda client: client.lock("n", waits=1),
        lambda client: client.lock("n", labels=[("a", "b")]),
        lambda client: client.lock("n", labels={"a": 1}),
        lambda client: client.lock("n", fair=1),
        lambda client: client.lock("n", keep=0),
        lambda client: client.lock("n", on_lost=5),
        lambda client: client.lock("n", on_at_risk=5),
        lambda client: client.semaphore("n", "3"),
        lambda client: client.semaphore("n", 3, 1.5),
        lambda client: client.semaphore("n", True),
        lambda client: client.latch("n").set("1"),
        lambda client: client.any_of("abc"),
        lambda client: client.any_of([1, 2]),
        lambda client: client.lock_all("abc"),
        lambda client: client.once("n", every="1h"),
        lambda client: client.once("n", every=60, retries="1"),
        lambda client: client.election("n").campaign(5),
        lambda client: client.attach("lease"),
        lambda client: client.inspect(5),
        lambda client: client.close("5"),
    ],
)
def test_wrong_types_are_type_errors(redis: holdline.Client, wrong: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):
        wrong(redis)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("url", lambda client: holdline.Client("redsi://localhost")),
        ("url", lambda client: holdline.Client("")),
        ("name", lambda client: client.lock("")),
        ("name", lambda client: client.inspect("")),
        ("wait", lambda client: client.lock("n", wait=-1)),
        ("wait", lambda client: client.lock("n", wait=float("nan"))),
        ("keep", lambda client: client.lock("n", keep="for ever")),
        ("lease_duration", lambda client: client.lock("n", lease_duration=0.001)),
        ("renew_interval", lambda client: client.lock("n", renew_interval=29)),
        ("permits", lambda client: client.semaphore("n", 0)),
        ("permits", lambda client: client.semaphore("n", -1)),
        ("permits", lambda client: client.semaphore("n", 2**70)),
        ("count", lambda client: client.many_of(["a"], -1)),
        ("count", lambda client: client.latch("n").set(-1)),
        ("wait", lambda client: client.lock("n", wait=float("inf"))),
        ("names", lambda client: client.lock_all(["a", "a"]).acquire()),
        ("slot", lambda client: client.once("n")),
        ("slot", lambda client: client.once("n", every=60, cron="* * * * *")),
        ("slot", lambda client: client.once("n", cron="61 * * * *")),
    ],
)
def test_wrong_values_are_the_errors_of_the_library(
    redis: holdline.Client, field: str, wrong: Callable[[Any], Any]
) -> None:
    with pytest.raises(holdline.Invalid) as invalid:
        wrong(redis)
    error = invalid.value
    assert isinstance(error, ValueError) and isinstance(error, holdline.LockError)
    assert (error.kind, error.certainty) == ("invalid", "not_applied")
    assert error.details["field"] == field, error


def test_a_store_that_does_not_answer(name: str) -> None:
    with pytest.raises(holdline.LockError) as failed:
        holdline.Client("redis://user:secret@127.0.0.1:1/").lock(name).try_acquire()
    assert failed.value.kind == "unavailable" and isinstance(failed.value, ConnectionError)
    assert "secret" not in str(failed.value)


def test_what_an_engine_cannot_do(name: str) -> None:
    client = holdline.Client("memory:errors")
    with pytest.raises(holdline.Unsupported) as unsupported:
        client.election(name).campaign("x").try_acquire()
    assert unsupported.value.kind == "unsupported"


def test_exceptions_survive_pickling(redis: holdline.Client, name: str) -> None:
    with redis.lock(name), pytest.raises(holdline.Busy) as busy:
        redis.lock(name).try_acquire()
    error = pickle.loads(pickle.dumps(busy.value))
    assert type(error) is holdline.Busy and str(error) == str(busy.value)
    assert (error.kind, error.certainty, error.holder) == ("busy", "not_applied", busy.value.holder)


def test_tracebacks_have_the_public_names(redis: holdline.Client, name: str) -> None:
    with redis.lock(name), pytest.raises(holdline.TimedOut) as failed:
        redis.lock(name, wait=0).acquire()
    (line,) = traceback.format_exception_only(failed.value)
    assert line.startswith("holdline.TimedOut: ")
    for exported in (getattr(holdline, word) for word in holdline.__all__):
        if isinstance(exported, type) and issubclass(exported, BaseException):
            assert exported.__module__ == "holdline", exported


def test_each_kind_has_a_class() -> None:
    from holdline._errors import CLASSES, make

    assert len(CLASSES) == 14
    for kind, error in CLASSES.items():
        made = make(kind, "says", "unknown", "e", "n", {})
        assert type(made) is error and (made.kind, made.certainty) == (kind, "unknown")
    assert make("newer", "says", "applied", "e", None, {}).kind == "newer"
