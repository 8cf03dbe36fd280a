"""The statements and programs of docs/tasks/one-transaction.md, on real databases."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from conftest import ROOT, SOON
from sqlalchemy.exc import IntegrityError, OperationalError
from test_documents import BLOCK

PAGE = (ROOT / "docs/tasks/one-transaction.md").read_text()
PROGRAMS = BLOCK.findall(PAGE)
SQL = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MAKE_STOCK, MAKE_JOBS, LOCK, READ, WRITE, BEGIN, END = SQL
#: What the page says of the error of `NOWAIT`.
LOCKED = {"postgres": "55P03", "mariadb": "1205"}


@pytest.fixture(params=LOCKED)
def kind(request: Any) -> str:
    return str(request.param)


@pytest.fixture
def database(kind: str, url_of: Callable[[str], str]) -> Iterator[sqlalchemy.Engine]:
    """A database without the tables of the page."""
    drivers = {"postgres:": "postgresql+psycopg:", "mysql:": "mysql+pymysql:"}
    url = url_of(kind)
    for scheme, driver in drivers.items():
        url = url.replace(scheme, driver, 1) if url.startswith(scheme) else url
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as db:
        # Other tests use the database too.
        for table in ("stock", "jobs"):
            db.execute(sqlalchemy.text(f"DROP TABLE IF EXISTS {table}"))
    yield engine
    engine.dispose()


def run(db: sqlalchemy.Connection, statement: str, **parameters: Any) -> Any:
    return db.execute(sqlalchemy.text(statement), parameters)


def changed(database: sqlalchemy.Engine, statement: str, **parameters: Any) -> int:
    with database.begin() as db:
        return int(run(db, statement, **parameters).rowcount)


@pytest.fixture
def stock(database: sqlalchemy.Engine) -> sqlalchemy.Engine:
    with database.begin() as db:
        run(db, MAKE_STOCK)
        run(db, "INSERT INTO stock (id, apples) VALUES (17, 10), (18, 10)")
    return database


def code(error: OperationalError, kind: str) -> str:
    driver: Any = error.orig
    return str(driver.sqlstate if kind == "postgres" else driver.args[0])


def test_a_locked_row_fails_at_once_and_is_free_after_the_commit(
    stock: sqlalchemy.Engine, kind: str
) -> None:
    with stock.connect() as holder, stock.connect() as other:
        assert run(holder, LOCK, id=17).scalar_one() == 10
        with pytest.raises(OperationalError) as locked:
            run(other, LOCK, id=17)
        assert code(locked.value, kind) == LOCKED[kind]
        other.rollback()
        assert run(other, LOCK, id=18).scalar_one() == 10, "another row is free"
        other.rollback()
        run(holder, "UPDATE stock SET apples = 9 WHERE id = 17")
        holder.commit()
        assert run(other, LOCK, id=17).scalar_one() == 9


def test_skip_locked_and_a_limited_wait_are_as_the_page_says(
    stock: sqlalchemy.Engine, kind: str
) -> None:
    assert "`SKIP LOCKED` instead of `NOWAIT`" in PAGE
    any_row = "SELECT id FROM stock ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
    with stock.connect() as holder, stock.connect() as other:
        run(holder, LOCK, id=17)
        assert run(other, any_row).scalar_one() == 18
        other.rollback()
        waits = LOCK.replace("NOWAIT", "")
        if kind == "postgres":
            limit = re.search(r"`(SET LOCAL lock_timeout = '5s')`", PAGE)
            assert limit is not None
            run(other, limit[1].replace("5s", "50ms"))
        else:
            assert "`FOR UPDATE WAIT 5`" in PAGE
            waits = LOCK.replace("NOWAIT", "WAIT 1")
        with pytest.raises(OperationalError) as limited:
            run(other, waits, id=17)
        assert code(limited.value, kind) == LOCKED[kind]


def test_a_holder_that_is_cut_off_commits_nothing(stock: sqlalchemy.Engine, kind: str) -> None:
    own = {"postgres": "SELECT pg_backend_pid()", "mariadb": "SELECT CONNECTION_ID()"}[kind]
    end = {"postgres": "SELECT pg_terminate_backend(:id, 60000)", "mariadb": "KILL CONNECTION :id"}
    holder = stock.connect()
    process = run(holder, own).scalar_one()
    run(holder, LOCK, id=17)
    run(holder, "UPDATE stock SET apples = 0 WHERE id = 17")
    with stock.connect() as operator:
        run(operator, end[kind], id=process)
        waits = LOCK.replace("NOWAIT", "")
        assert run(operator, waits, id=17).scalar_one() == 10
        operator.rollback()
    with pytest.raises(OperationalError):
        run(holder, "UPDATE stock SET apples = 0 WHERE id = 17")
        holder.commit()
    holder.invalidate()
    holder.close()
    with stock.connect() as after:
        assert run(after, READ, id=17).one() == (10, 1)


def test_no_row_is_no_lock_and_one_insert_passes(stock: sqlalchemy.Engine) -> None:
    with stock.connect() as one, stock.connect() as other:
        assert run(one, LOCK, id=99).all() == []
        one.rollback()
        run(one, "INSERT INTO stock (id, apples) VALUES (99, 10)")
        one.commit()
        with pytest.raises(IntegrityError):
            run(other, "INSERT INTO stock (id, apples) VALUES (99, 10)")


def test_a_version_lets_one_of_two_writers_pass(stock: sqlalchemy.Engine) -> None:
    with stock.connect() as db:
        apples, version = run(db, READ, id=17).one()
    assert changed(stock, WRITE, id=17, apples=apples - 1, version=version) == 1
    assert changed(stock, WRITE, id=17, apples=apples - 3, version=version) == 0
    with stock.connect() as db:
        apples, version = run(db, READ, id=17).one()
    assert (apples, version) == (9, 2)
    assert changed(stock, WRITE, id=17, apples=apples - 3, version=version) == 1


@pytest.mark.parametrize("kind", ["mariadb"])
def test_newer_versions_of_mariadb_report_a_changed_row(
    stock: sqlalchemy.Engine, kind: str
) -> None:
    assert "MariaDB may end the `UPDATE` with error 1020" in PAGE
    with stock.connect() as db:
        # What is the default from 11.6 on.
        run(db, "SET SESSION innodb_snapshot_isolation = ON")
        apples, version = run(db, READ, id=17).one()
        assert changed(stock, WRITE, id=17, apples=apples - 1, version=version) == 1
        with pytest.raises(OperationalError) as stale:
            run(db, WRITE, id=17, apples=apples - 3, version=version)
        assert code(stale.value, kind) == "1020"


def test_a_newer_worker_takes_a_job_over(database: sqlalchemy.Engine) -> None:
    with database.begin() as db:
        run(db, MAKE_JOBS)
        run(db, "INSERT INTO jobs (id, state) VALUES (17, 'open')")
    assert changed(database, BEGIN, id=17, token=33) == 1
    assert changed(database, BEGIN, id=17, token=33) == 1, "the same holder, after a lost reply"
    assert changed(database, BEGIN, id=17, token=34) == 1, "the first worker died"
    assert changed(database, BEGIN, id=17, token=33) == 0
    assert changed(database, END, id=17, token=33, result=41) == 0
    assert changed(database, END, id=17, token=34, result=42) == 1
    assert changed(database, BEGIN, id=17, token=35) == 0, "it is done"
    with database.connect() as db:
        assert run(db, "SELECT state, result FROM jobs").one() == ("done", 42)


@pytest.mark.parametrize("program", range(len(PROGRAMS)))
def test_a_program_of_the_page_runs(
    program: int, database: sqlalchemy.Engine, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    text = PROGRAMS[program].replace("redis://localhost", url_of("redis"))
    url = "postgresql+psycopg://app@localhost/shop"
    assert url in text
    path = tmp_path / "block.py"
    path.write_text(text.replace(url, database.url.render_as_string(hide_password=False)))
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(path)], capture_output=True, text=True, timeout=SOON
    )
    assert ran.returncode == 0, ran.stderr
