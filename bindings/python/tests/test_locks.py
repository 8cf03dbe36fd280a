"""Locks of all kinds, by threads: what is held, what is refused, and what is reported."""

from __future__ import annotations

import os
import threading
from datetime import timedelta

import pytest
from conftest import SOON, eventually

import holdline


def test_a_with_block_holds_the_name(client: holdline.Client, name: str) -> None:
    lock = client.lock(name, wait=10, reason="a test")
    with lock as grant:
        assert grant.is_valid and grant.name == name and grant.mode == "exclusive"
        assert 0 < grant.remaining <= 30
        state = client.inspect(name)
        assert state["is_held"] and state["holders"][0]["reason"] == "a test"
        with pytest.raises(holdline.Busy) as busy:
            client.lock(name).try_acquire()
        assert (busy.value.kind, busy.value.certainty) == ("busy", "not_applied")
        assert busy.value.holder is not None
        assert busy.value.holder["fencing_token"] == grant.fencing_token
    assert not grant.is_valid and not grant.lost.is_set() and grant.lost.reason is None
    assert not client.inspect(name)["is_held"]


def test_an_inspection_shows_all_that_the_store_shows(
    client: holdline.Client, name: str
) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    # A label's name is the user's, also if it looks like a time.
    labels = {"left_ms": "5"}
    with client.lock(name, traceparent=trace, labels=labels) as grant:
        waiter = threading.Thread(target=lambda: client.lock(name, wait=SOON).acquire().release())
        waiter.start()
        eventually(lambda: client.inspect(name)["queue_length"] == 1)
        state = client.inspect(name)
    waiter.join(SOON)
    assert (state["name"], state["holder_count"], state["permits_of"]) == (name, 1, None)
    assert (state["freeze"], state["frozen"]) == (None, None)
    holder = state["holders"][0]
    assert (holder["traceparent"], holder["labels"]) == (trace, labels)
    assert (holder["fencing_token"], holder["mode"]) == (grant.fencing_token, "exclusive")
    assert (holder["permits"], holder["state"], holder["revoke_reason"]) == (None, "held", None)
    assert (holder["live"], holder["detached"], holder["pids"]) == (False, False, [])
    assert grant.lease_id.startswith(holder["lease_id"]) and 0 < holder["left"] <= 30
    assert len(grant.lease_id) == 32, "the proof in full, and not what others see of it"
    waiting = state["queue"][0]
    assert (waiting["mode"], waiting["permits"], waiting["pid"]) == ("exclusive", None, os.getpid())
    # What is not reported is an empty text.
    assert (waiting["traceparent"], waiting["value"], waiting["labels"]) == ("", "", {})
    assert not any("ms" in key for one in (holder, waiting) for key in one)


def test_tokens_grow(client: holdline.Client, name: str) -> None:
    lock = client.lock(name)
    tokens = []
    for _ in range(3):
        with lock as grant:
            tokens.append(grant.fencing_token)
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("wait", [0.05, timedelta(milliseconds=50)])
def test_a_wait_ends_at_its_limit(client: holdline.Client, name: str, wait: object) -> None:
    with client.lock(name), pytest.raises(holdline.TimedOut) as timed_out:
        client.lock(name, wait=wait).acquire()  # type: ignore[arg-type]
    error = timed_out.value
    assert isinstance(error, TimeoutError)
    assert (error.kind, error.certainty, error.name) == ("timed_out", "not_applied", name)
    assert error.waited >= 0.05


def test_waiting_threads_are_served_one_after_the_other(
    client: holdline.Client, name: str
) -> None:
    lock = client.lock(name, wait=SOON)
    inside: list[int] = []
    tokens: list[int] = []

    def work() -> None:
        for _ in range(5):
            with lock.acquire() as grant:
                inside.append(1)
                assert len(inside) == 1
                tokens.append(grant.fencing_token)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert len(tokens) == 20 and tokens == sorted(set(tokens))


def test_other_threads_run_while_one_waits(client: holdline.Client, name: str) -> None:
    grant = client.lock(name).acquire()
    got: list[holdline.Grant] = []
    waiter = threading.Thread(target=lambda: got.append(client.lock(name, wait=SOON).acquire()))
    waiter.start()
    # This thread runs: it sees the other in the queue, and releases.
    eventually(lambda: client.inspect(name)["queue_length"] == 1)
    assert grant.release().is_released
    waiter.join(SOON)
    assert got[0].fencing_token > grant.fencing_token
    got[0].release()


def test_a_with_block_inside_another_of_the_same_description(
    client: holdline.Client, name: str
) -> None:
    pool = client.semaphore(name, 2)
    with pool as outer, pool.acquire() as inner:
        assert outer.lease_id != inner.lease_id
        assert client.inspect(name)["holder_count"] == 2
    assert client.inspect(name)["holder_count"] == 0


def test_readers_share_and_a_writer_does_not(client: holdline.Client, name: str) -> None:
    rwlock = client.rwlock(name)
    with rwlock.read() as one, rwlock.read() as other:
        assert one.mode == other.mode == "shared"
        with pytest.raises(holdline.Busy):
            rwlock.write().try_acquire()
    with rwlock.write() as grant:
        assert grant.mode == "exclusive"


def test_a_semaphore_has_its_permits(client: holdline.Client, name: str) -> None:
    with client.semaphore(name, 3, count=2), client.semaphore(name, 3):
        with pytest.raises(holdline.Busy):
            client.semaphore(name, 3).try_acquire()
    with pytest.raises(holdline.Invalid):
        client.semaphore(name, 0)


def test_any_of_takes_a_free_one(client: holdline.Client, name: str) -> None:
    names = [f"{name}/{number}" for number in range(3)]
    with client.lock(names[0]), client.any_of(names, wait=10) as grant:
        assert grant.name in names[1:]
        with client.many_of(names, 1) as rest:
            assert len(rest) == 1 and rest.is_valid
            with pytest.raises(holdline.Busy):
                client.any_of(names).try_acquire()


def test_all_or_none(client: holdline.Client, name: str) -> None:
    names = [f"{name}/b", f"{name}/a"]
    with client.lock_all(names) as grants:
        assert [grant.name for grant in grants] == sorted(names)
        assert all(client.inspect(one)["is_held"] for one in names)
    with client.lock(names[0]):
        with pytest.raises(holdline.TimedOut):
            client.lock_all(names, wait=0.05).acquire()
        assert not client.inspect(names[1])["is_held"]


def test_a_released_grant_is_over(client: holdline.Client, name: str) -> None:
    with client.lock(name) as grant:
        release = grant.release()
        assert release.confirmed and release.held_for is not None and release.lost is None
    with pytest.raises(holdline.Lost) as lost:
        grant.release()
    assert lost.value.reason == "released"


def test_renew_extends_a_fixed_lease(client: holdline.Client, name: str) -> None:
    with client.lock(name, keep="fixed", lease_duration=20) as grant:
        assert 15 < grant.renew() <= 20


def test_a_detached_lease_goes_to_another_client(
    client: holdline.Client, url_of: object, name: str
) -> None:
    grant = client.lock(name, lease_duration=30).acquire()
    lease = holdline.Lease.from_json(grant.detach().to_json())
    assert not grant.is_valid and client.inspect(name)["is_held"]
    assert lease.name == name and lease.lease_id not in repr(lease)
    assert len(lease.lease_id) == 32
    assert client.renew(lease) > 20
    taken = client.attach(lease)
    assert taken.fencing_token == lease.fencing_token == grant.fencing_token
    lease = taken.detach()
    assert client.release(lease).is_released
    assert not client.inspect(name)["is_held"]
    with pytest.raises(holdline.Lost):
        client.attach(lease)


def test_names_are_listed(client: holdline.Client, name: str) -> None:
    with client.lock(f"{name}/a"), client.lock(f"{name}/b"):
        assert [state["name"] for state in client.list(name)] == [f"{name}/a", f"{name}/b"]


def test_an_election_has_one_leader_with_a_value(client: holdline.Client, name: str) -> None:
    election = client.election(name)
    assert election.leader() is None
    with election.campaign("http://one") as leadership:
        leader = election.leader()
        assert leader is not None
        assert (leader.value, leader.term) == ("http://one", leadership.term)
        seen = election.observe()
        assert next(seen).term == leadership.term
        leadership.proclaim("http://two")
        now = election.leader()
        assert now is not None and now.value == "http://two"
    with election.campaign("http://three") as later:
        assert later.term > leadership.term and next(seen).term == later.term
    assert election.leader() is None


def test_a_job_runs_once_per_slot(client: holdline.Client, name: str) -> None:
    day = timedelta(days=1)
    # A day may end between two starts: then the second is in a slot of its own, and so is a third.
    outcomes = [client.once(name, every=day, lease_duration=20).run(lambda run: run.slot_start)
                for _ in range(3)]
    ran = [outcome for outcome in outcomes if outcome.ran]
    taken = [outcome for outcome in outcomes if outcome.outcome == "already_ran"]
    assert 1 <= len(ran) <= 2 and len(taken) == 3 - len(ran)
    assert ran[0].value is not None and ran[0].value % day.total_seconds() == 0
    assert taken[0].by is not None and taken[0].by["pid"]


def test_a_job_that_fails_gives_its_slot_back(client: holdline.Client, name: str) -> None:
    job = client.once(name, every=timedelta(days=1), retries=1)
    tries = []

    def fails(_: object) -> None:
        tries.append(1)
        raise LookupError("as planned")

    with pytest.raises(LookupError):
        job.run(fails)
    assert len(tries) == 2

    @client.once(name, cron="0 0 * * *", zone="Europe/Paris")
    def works(number: int) -> int:
        return number + 1

    assert works(1).value == 2


def test_a_slot_is_kept_at_most_once(client: holdline.Client, name: str) -> None:
    job = client.once(name, every=timedelta(days=365), at_most_once=True)
    begun = job.begin()
    assert isinstance(begun, holdline.OnceRun)
    assert begun.fail()
    assert isinstance(job.begin(), holdline.Taken)
    with pytest.raises(holdline.Invalid):
        client.once(name, every=60, at_most_once=True, retries=1)


def test_a_latch_opens_when_all_have_counted(client: holdline.Client, name: str) -> None:
    latch = client.latch(name)
    assert latch.set(2) and not latch.set(3)
    assert latch.count_down() == 1 and latch.count() == 1
    assert not latch.wait(0.05)
    opened: list[bool] = []
    thread = threading.Thread(target=lambda: opened.append(latch.wait(SOON)))
    thread.start()
    assert latch.count_down(1) == 0
    thread.join(SOON)
    assert opened == [True] and latch.wait()
