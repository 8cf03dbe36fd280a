"""Fences of each driver, on its real database: a late writer changes nothing."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import psycopg2
import pymysql
import pytest
import redis
import redis.asyncio
import sqlalchemy
import sqlalchemy.orm
from conftest import SOON

import holdline
from holdline.fence import (
    REDIS_GUARD,
    Busy,
    Failed,
    FenceError,
    Foreign,
    OtherName,
    RedisFence,
    SqlFence,
    Stale,
    TooFar,
)

Open = Callable[[], Any]

KINDS = ["psycopg", "psycopg2", "pymysql", "alchemy-psycopg", "alchemy-psycopg2", "alchemy-pymysql"]
# The builds of old interpreters lack SQLite; the newest one, which runs these tests too, has it.
if importlib.util.find_spec("_sqlite3"):
    import sqlite3

    KINDS += ["sqlite3", "alchemy-sqlite"]


def _pymysql(url: str) -> Any:
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname or "",
        port=parts.port or 0,
        user=parts.username or "",
        password=parts.password or "",
        database=parts.path.strip("/"),
    )


@pytest.fixture(params=KINDS)
def database(request: Any, url_of: Callable[[str], str], tmp_path: Path) -> Iterator[Open]:
    """Opens connections to a database with an empty table of marks, and ten apples."""
    kind = request.param
    if kind == "sqlite3":
        opened = _remembering(lambda: sqlite3.connect(tmp_path / "db", timeout=SOON))
    elif kind == "psycopg":
        opened = _remembering(lambda: psycopg.connect(url_of("postgres")))
    elif kind == "psycopg2":
        opened = _remembering(lambda: psycopg2.connect(url_of("postgres")))
    elif kind == "pymysql":
        opened = _remembering(lambda: _pymysql(url_of("mariadb")))
    else:
        url = {
            "alchemy-sqlite": lambda: f"sqlite:///{tmp_path / 'db'}",
            "alchemy-psycopg": lambda: url_of("postgres").replace("postgres:", "postgresql+psycopg:"),
            "alchemy-psycopg2": lambda: url_of("postgres").replace("postgres:", "postgresql+psycopg2:"),
            "alchemy-pymysql": lambda: url_of("mariadb").replace("mysql:", "mysql+pymysql:"),
        }[kind]()
        engine = sqlalchemy.create_engine(url)
        opened = _remembering(engine.connect, engine.dispose)
    make, close = opened
    db = make()
    run(db, "DROP TABLE IF EXISTS stock")
    run(db, "DROP TABLE IF EXISTS holdline_fence")
    run(db, "CREATE TABLE stock(id INT PRIMARY KEY, apples INT)")
    run(db, "INSERT INTO stock VALUES (17, 10)")
    SqlFence.create_table(db)
    SqlFence.create_table(db)
    db.commit()
    yield make
    close()


def _remembering(make: Open, end: Callable[[], Any] = lambda: None) -> tuple[Open, Any]:
    made: list[Any] = []

    def remembered() -> Any:
        made.append(make())
        return made[-1]

    def close() -> None:
        for one in made:
            try:
                one.close()
            except Exception as error:
                # PyMySQL refuses to close one twice, and SQLite one of another thread.
                assert type(error).__name__ in ("Error", "ProgrammingError"), error
        end()

    return remembered, close


def run(db: Any, statement: str) -> list[Any]:
    if isinstance(db, sqlalchemy.Connection):
        result = db.execute(sqlalchemy.text(statement))
        return list(result) if result.returns_rows else []
    cursor = db.cursor()
    cursor.execute(statement)
    rows = list(cursor.fetchall()) if cursor.description else []
    cursor.close()
    return rows


def apples(make: Open) -> int:
    db = make()
    (row,) = run(db, "SELECT apples FROM stock WHERE id = 17")
    db.close()
    return int(row[0])


def test_a_late_writer_changes_nothing(database: Open, clients: Any, name: str) -> None:
    client = clients("memory")
    fence = SqlFence("stock/17")
    late, now = client.lock(name).acquire(), None
    late.release()
    with client.lock(name) as now:
        db = database()
        assert fence.mark(db) is None
        fence.seal(db, now)
        run(db, "UPDATE stock SET apples = 9 WHERE id = 17")
        db.commit()
        assert fence.mark(db) == now.fencing_token
        db.rollback()
        with pytest.raises(Stale) as stale:
            fence.seal(db, late)
        db.rollback()
        assert (stale.value.mine, stale.value.seen) == (late.fencing_token, now.fencing_token)
        assert (stale.value.kind, stale.value.certainty) == ("stale", "not_applied")
        with pytest.raises(Stale):
            fence.check(db, late.fencing_token)
        fence.check(db, now)
        db.rollback()
        # Renewal keeps the token: the same holder writes again.
        fence.seal(db, now.fencing_token)
        db.commit()
    assert apples(database) == 9


def test_a_block_writes_all_or_nothing(database: Open) -> None:
    fence, db = SqlFence("stock/17"), database()
    with fence.writing(db, 34):
        run(db, "UPDATE stock SET apples = 9 WHERE id = 17")
    assert apples(database) == 9
    with pytest.raises(Stale), fence.writing(db, 33):
        pytest.fail("the block does not begin")
    with pytest.raises(LookupError), fence.writing(db, 35):
        run(db, "UPDATE stock SET apples = 0 WHERE id = 17")
        raise LookupError
    assert apples(database) == 9
    assert fence.mark(db) == 34
    db.rollback()


def test_a_rollback_leaves_the_mark(database: Open) -> None:
    fence, db = SqlFence("stock/17"), database()
    fence.seal(db, 34)
    db.rollback()
    assert fence.mark(db) is None
    db.rollback()


def test_a_second_writer_waits_for_the_first(database: Open) -> None:
    fence, first, second = SqlFence("stock/17"), database(), None
    outcome: list[object] = []
    with fence.writing(first, 34):
        fence.seal(first, 34)

        def late() -> None:
            other = database()
            try:
                with fence.writing(other, 33):
                    outcome.append("written")
            except Stale as stale:
                outcome.append(stale.seen)
            finally:
                other.close()

        second = threading.Thread(target=late)
        # In SQLite a connection belongs to its thread: the other thread opens its own.
        second.start()
        second.join(0.2)
        assert outcome == []
    second.join(SOON)
    assert outcome == [34]


def test_names_of_resources_are_distinguished(database: Open) -> None:
    db = database()
    for number, resource in enumerate(["stock", "Stock", "stock ", "stöck"], 1):
        with SqlFence(resource).writing(db, number):
            pass
    assert [SqlFence(r).mark(db) for r in ("stock", "Stock", "stock ", "stöck")] == [1, 2, 3, 4]
    db.rollback()


def test_proofs_of_no_use_are_refused_before_anything_is_sent(
    database: Open, clients: Any, name: str
) -> None:
    client, db = clients("memory"), database()
    fence = SqlFence("stock/17", guarded_by=name)
    with client.rwlock(name).read() as shared, pytest.raises(TypeError):
        fence.seal(db, shared)
    with client.semaphore(f"{name}/s", 2) as permit, pytest.raises(TypeError):
        fence.check(db, permit)
    with client.lock(f"{name}/other") as other, pytest.raises(OtherName):
        fence.seal(db, other)
    with pytest.raises(OtherName):
        fence.seal(db, 34)
    for wrong in ("34", True, None, 3.5):
        with pytest.raises(TypeError):
            SqlFence("stock/17").seal(db, wrong)  # type: ignore[arg-type]
    for number in (0, -1, 2**53, 2**70):
        with pytest.raises(Failed):
            SqlFence("stock/17").seal(db, number)
    with client.lock(name) as grant:
        fence.seal(db, grant)
        db.rollback()
        assert fence.mark(db) is None
    db.rollback()


def test_a_foreign_mark_is_left_as_it_is(database: Open) -> None:
    fence, db = SqlFence("stock/17"), database()
    run(db, "DROP TABLE holdline_fence")
    run(db, "CREATE TABLE holdline_fence(resource VARCHAR(255) PRIMARY KEY, mark BIGINT)")
    run(db, "INSERT INTO holdline_fence VALUES ('stock/17', 0)")
    db.commit()
    with pytest.raises(Foreign):
        fence.seal(db, 34)
    db.rollback()
    assert run(db, "SELECT mark FROM holdline_fence")[0][0] == 0
    db.rollback()


def test_a_session_of_sqlalchemy(url_of: Callable[[str], str]) -> None:
    url = url_of("postgres").replace("postgres:", "postgresql+psycopg:")
    engine = sqlalchemy.create_engine(url)
    fence = SqlFence("session")
    with sqlalchemy.orm.Session(engine) as session:
        fence.create_table(session)
        session.commit()
        fence.seal(session, 34)
        session.commit()
        with pytest.raises(Stale):
            fence.seal(session, 33)
    engine.dispose()


def test_what_is_no_connection() -> None:
    for wrong in (None, "sqlite:", object()):
        with pytest.raises(TypeError):
            SqlFence("stock/17").seal(wrong, 34)


def test_a_failed_statement_that_the_writer_hides_fails_the_block(
    url_of: Callable[[str], str]
) -> None:
    with psycopg.connect(url_of("postgres")) as db:
        SqlFence.create_table(db)
        db.commit()
        with (
            pytest.raises(psycopg.errors.InFailedSqlTransaction),
            SqlFence("hidden").writing(db, 34),
        ):
            with pytest.raises(psycopg.errors.UndefinedTable):
                db.execute("SELECT * FROM nothing_of_this_name")
        assert SqlFence("hidden").mark(db) is None


def test_a_mark_is_durable_although_the_session_is_not(url_of: Callable[[str], str]) -> None:
    with psycopg.connect(url_of("postgres")) as db:
        SqlFence.create_table(db)
        db.execute("SET synchronous_commit = off")
        db.commit()
        SqlFence("durable").seal(db, 34)
        assert db.execute("SHOW synchronous_commit").fetchone() == ("on",)
        db.commit()
        assert db.execute("SHOW synchronous_commit").fetchone() == ("off",)


def test_a_table_of_mariadb_that_ignores_case_is_reported(url_of: Callable[[str], str]) -> None:
    with _pymysql(url_of("mariadb")) as db:
        for columns in ("resource VARCHAR(9) PRIMARY KEY", "resource VARBINARY(9) PRIMARY KEY"):
            run(db, "DROP TABLE IF EXISTS holdline_fence")
            run(db, f"CREATE TABLE holdline_fence({columns}, mark BIGINT) ENGINE = MyISAM")
            with pytest.raises(Foreign):
                SqlFence.create_table(db)
        run(db, "DROP TABLE holdline_fence")


@pytest.mark.parametrize(
    "begins", ["INSERT INTO work VALUES (1)", "SELECT * FROM work FOR UPDATE"]
)
def test_a_transaction_of_mariadb_is_not_committed_by_the_way(url_of: Any, begins: str) -> None:
    with _pymysql(url_of("mariadb")) as db:
        SqlFence.create_table(db)
        run(db, "CREATE OR REPLACE TABLE work(id INT)")
        run(db, begins)
        with pytest.raises(Failed), SqlFence("way").writing(db, 34):
            pytest.fail("the block does not begin")
        assert run(db, "SELECT @@in_transaction") == [(1,)]
        db.rollback()
        assert run(db, "SELECT * FROM work") == []


def test_a_driver_that_hides_the_transaction_is_refused() -> None:
    # As mysqlclient, of which no version has `server_status`. It is not among the packages here.
    class Hidden: ...

    Hidden.__module__ = "MySQLdb.connections"
    connection = Hidden()
    with pytest.raises(TypeError, match="mysqlclient.*PyMySQL"):
        SqlFence("x").seal(connection, 34)
    with pytest.raises(TypeError, match="mysqlclient"), SqlFence("x").writing(connection, 34):
        pytest.fail("the block does not begin")

    class Silent:
        def ping(self, reconnect: bool) -> None: ...

    Silent.__module__ = "pymysql.connections"
    with pytest.raises(Failed, match="does not show"), SqlFence("x").writing(Silent(), 34):
        pytest.fail("the block does not begin")


@pytest.mark.parametrize("autocommit", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_transaction_of_psycopg2_is_not_committed_by_the_way(
    url_of: Any, autocommit: bool, fails: bool
) -> None:
    with closing(psycopg2.connect(url_of("postgres"))) as db:
        SqlFence.create_table(db)
        run(db, "DROP TABLE IF EXISTS work")
        run(db, "CREATE TABLE work(id INT)")
        run(db, "DELETE FROM holdline_fence WHERE resource = 'way'")
        db.commit()
        db.autocommit = autocommit
        if autocommit:
            run(db, "BEGIN")
        run(db, "INSERT INTO work VALUES (1)")
        with suppress(LookupError), SqlFence("way").writing(db, 34):
            run(db, "INSERT INTO work VALUES (2)")
            if fails:
                raise LookupError
        assert run(db, "SELECT id FROM work") == ([(1,)] if fails else [(1,), (2,)])
        run(db, "ROLLBACK")
        db.rollback()
        assert run(db, "SELECT id FROM work") == []
        assert SqlFence("way").mark(db) is None


@pytest.mark.parametrize("fails", [False, True])
def test_a_block_of_psycopg2_with_autocommit_is_a_transaction(url_of: Any, fails: bool) -> None:
    with closing(psycopg2.connect(url_of("postgres"))) as db:
        db.autocommit = True
        SqlFence.create_table(db)
        run(db, "DROP TABLE IF EXISTS work")
        run(db, "CREATE TABLE work(id INT)")
        with suppress(LookupError), SqlFence(f"auto/{fails}").writing(db, 34):
            run(db, "INSERT INTO work VALUES (2)")
            if fails:
                raise LookupError
        assert run(db, "SELECT id FROM work") == ([] if fails else [(2,)])
        run(db, "BEGIN")
        with pytest.raises(psycopg2.errors.UndefinedTable):
            run(db, "SELECT * FROM nothing_of_this_name")
        with pytest.raises(Failed), SqlFence("auto").writing(db, 34):
            pytest.fail("the block does not begin")


@contextmanager
def store(url: str, **options: Any) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url, **options) as client:
        client.flushall()
        yield client


@pytest.mark.parametrize("decode", [False, True])
def test_a_key_of_redis(url_of: Callable[[str], str], decode: bool) -> None:
    with store(url_of("redis"), decode_responses=decode) as db:
        fence = RedisFence("stock/17")
        assert fence.mark_key == b"{stock/17}:fence"
        fence.seal(db, 34)
        fence.set(db, 34, "9")
        with pytest.raises(Stale) as stale:
            fence.set(db, 33, "10")
        assert (stale.value.mine, stale.value.seen) == (33, 34)
        with pytest.raises(Stale):
            fence.delete(db, 33)
        with pytest.raises(Stale):
            fence.check(db, 33)
        assert db.get("stock/17") in (b"9", "9")
        fence.set(db, 35, 8, lasts=60)
        assert db.ttl("stock/17") > 0 and db.ttl(fence.mark_key) == -1
        fence.delete(db, 35)
        assert db.get("stock/17") is None
        with pytest.raises(TooFar):
            RedisFence("stock/17", max_jump=10).set(db, 90, "x")
        db.hset("stock/17", "apples", 3)
        with pytest.raises(Foreign):
            fence.set(db, 36, "x")


def test_a_script_of_the_user(url_of: Callable[[str], str]) -> None:
    sell = f"""{REDIS_GUARD}
    local refusal = holdline_fence(KEYS[1], ARGV[1], ARGV[2])
    if refusal then return refusal end
    redis.call('HINCRBY', KEYS[2], 'apples', -tonumber(ARGV[3]))
    return 'ok'"""
    with store(url_of("redis")) as db:
        fence = RedisFence("{stock}", mark="{stock}:fence")
        fence.script(db, 34, sell, ["{stock}:17"], [1])
        with pytest.raises(Stale):
            fence.script(db, 33, sell, ["{stock}:17"], [1])
        assert db.hget("{stock}:17", "apples") == b"-1"
        with pytest.raises(Failed):
            fence.script(db, 34, sell, ["elsewhere"], [1])


def test_redis_in_an_event_loop(url_of: Callable[[str], str]) -> None:
    async def main() -> None:
        async with redis.asyncio.Redis.from_url(url_of("redis")) as db:
            fence = RedisFence("async/17")
            await fence.aseal(db, 34)
            await fence.aset(db, 34, "9", lasts=60)
            await fence.acheck(db, 34)
            with pytest.raises(Stale):
                await fence.aset(db, 33, "10")
            with pytest.raises(Stale):
                await fence.adelete(db, 33)

    asyncio.run(main())


def test_errors_of_fences_have_a_kind() -> None:
    for error in (Stale, TooFar, OtherName, Foreign, Busy, Failed):
        assert issubclass(error, FenceError) and error.kind
