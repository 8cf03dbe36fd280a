"""Fences: data that reject a writer that comes late.

A holder can be paused past its lease and write when it resumes. Its fencing token is then smaller
than that of the next holder. A fence stores the largest token that it has accepted, its mark,
beside the data, and rejects smaller ones.

Seal before the first read; then read, write and commit in the same transaction. The table, the
statements and the rules are those of the Rust library: programs in both guard the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, Literal

from holdline import _holdline
from holdline._grants import Grant, Lease, seconds_of

__all__ = [
    "REDIS_GUARD",
    "Busy",
    "Failed",
    "FenceError",
    "Foreign",
    "OtherName",
    "RedisFence",
    "SqlFence",
    "Stale",
    "TooFar",
]

#: What proves a grant: the grant, its detached lease, or the number that a program was given.
Proof = Grant | Lease | int


class FenceError(Exception):
    """A resource did not carry out a request. ``certainty`` says whether anything was changed."""

    kind: str = "failed"
    certainty: Literal["applied", "not_applied", "unknown"]

    def __init__(
        self,
        message: str,
        certainty: Literal["applied", "not_applied", "unknown"] = "not_applied",
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.certainty = certainty
        self.details = details or {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.certainty, self.details)


class Stale(FenceError):
    """A newer holder was here: stop, and acquire the name again."""

    kind = "stale"

    @property
    def mine(self) -> int:
        """The token that was shown."""
        return int(self.details["mine"])

    @property
    def seen(self) -> int:
        """The largest token that the resource has accepted."""
        return int(self.details["seen"])


class TooFar(Stale):
    """The token is further above the mark than the rules of the resource allow."""

    kind = "too_far"


class OtherName(FenceError):
    """The token belongs to another lock name; tokens of two names cannot be compared."""

    kind = "other_name"


class Foreign(FenceError):
    """The data in the place of the mark is not ours. It was left unchanged."""

    kind = "foreign"


class Busy(FenceError):
    """Others were at work. Nothing was changed; try again."""

    kind = "busy"


class Failed(FenceError):
    """The resource failed; ``certainty`` says whether mark and data were changed."""

    kind = "failed"


_CLASSES = {error.kind: error for error in (Stale, TooFar, OtherName, Foreign, Busy, Failed)}


def make(kind: str, message: str, certainty: Any, details: dict[str, Any]) -> FenceError:
    """Makes the exception of a kind; the native module calls this."""
    return _CLASSES.get(kind, Failed)(message, certainty, details)


_SQL = _holdline.fence_sql()

#: The Lua text at the start of your own scripts, for `RedisFence.script`.
REDIS_GUARD: str = _SQL["redis_guard"]

#: If a session of PostgreSQL does not wait for the disk, a crash could lose an accepted mark: the
#: statement switches the wait on for its transaction.
_DURABLE = """, CASE WHEN pg_catalog.current_setting('synchronous_commit', true) = 'off'
THEN pg_catalog.set_config('synchronous_commit', 'on', true) END"""


def _shown(proof: Proof) -> tuple[str, int, str | None]:
    if isinstance(proof, Grant):
        return proof.mode, proof.fencing_token, proof.name
    if isinstance(proof, Lease):
        return proof.mode, proof.fencing_token, proof.name
    if isinstance(proof, int) and not isinstance(proof, bool):
        if not 0 < proof < 2**53:
            raise Failed(f"{proof} is no fencing token")
        return "exclusive", proof, None
    raise TypeError(f"a proof is a grant, a lease or a number, not {type(proof).__name__}")


class _Database:
    """One connection of the user, with the little that differs between drivers."""

    def __init__(
        self,
        dialect: str,
        run: Callable[[str, Sequence[Any]], list[Any]],
        transaction: Callable[[], AbstractContextManager[Any]],
        placeholders: Sequence[str] = ("%s", "%s"),
    ) -> None:
        self.dialect = {"postgresql": "postgres", "mariadb": "mysql"}.get(dialect, dialect)
        if self.dialect not in ("sqlite", "postgres", "mysql"):
            raise TypeError(f"no fence for databases of {dialect}: see docs/fencing.md")
        self._run = run
        self.transaction = transaction
        self._placeholders = placeholders

    def run(self, statement: str, *parameters: Any) -> list[Any]:
        """Runs a statement of the library; returns its rows."""
        resource, token = self._placeholders
        if self.dialect == "mysql":
            statement = statement.replace("?", "\0", 1).replace("?", token)
            statement = statement.replace("\0", resource)
        else:
            statement = statement.replace("$1", resource).replace("$2", token)
        return self._run(statement, parameters)


def _cursor_run(connection: Any) -> Callable[[str, Sequence[Any]], list[Any]]:
    def run(statement: str, parameters: Sequence[Any]) -> list[Any]:
        cursor = connection.cursor()
        try:
            cursor.execute(statement, tuple(parameters))
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()

    return run


def _sqlalchemy_run(connection: Any) -> Callable[[str, Sequence[Any]], list[Any]]:
    def run(statement: str, parameters: Sequence[Any]) -> list[Any]:
        from sqlalchemy import text

        named = dict(zip(("resource", "token"), parameters, strict=False))
        result = connection.execute(text(statement), named)
        return list(result.fetchall()) if result.returns_rows else []

    return run


@contextmanager
def _sqlite_transaction(connection: Any) -> Iterator[None]:
    nested = connection.in_transaction
    connection.execute("SAVEPOINT holdline_fence" if nested else "BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("RELEASE holdline_fence" if nested else "COMMIT")
    except BaseException:
        # Some failures make SQLite roll back by itself.
        if connection.in_transaction:
            if nested:
                connection.execute("ROLLBACK TO holdline_fence")
                connection.execute("RELEASE holdline_fence")
            else:
                connection.execute("ROLLBACK")
        raise


@contextmanager
def _pymysql_transaction(connection: Any) -> Iterator[None]:
    # A `BEGIN` would commit what the user has begun. The driver keeps the server's flag, but not
    # that of a query with rows, such as `SELECT ... FOR UPDATE`: the reply to a ping has it.
    connection.ping(reconnect=False)
    status = getattr(connection, "server_status", None)
    if not isinstance(status, int):
        raise Failed("the driver does not show whether a transaction is open: use `seal` in yours")
    if status & 1:
        raise Failed("the connection is inside a transaction: use `seal` in it")
    connection.begin()
    try:
        yield
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


@contextmanager
def _psycopg2_transaction(connection: Any) -> Iterator[None]:
    from psycopg2.extensions import TRANSACTION_STATUS_IDLE, TRANSACTION_STATUS_INTRANS

    status = connection.get_transaction_status()
    if status not in (TRANSACTION_STATUS_IDLE, TRANSACTION_STATUS_INTRANS):
        raise Failed("the connection is inside a transaction that has failed, or is not usable")
    run = _cursor_run(connection)
    if status == TRANSACTION_STATUS_INTRANS:
        run("SAVEPOINT holdline_fence", ())
        ends = _savepoint_ends(run)
    elif connection.autocommit:
        # The driver begins no transaction then, and its `commit` does nothing.
        run("BEGIN", ())
        ends = lambda: run("COMMIT", ()), lambda: run("ROLLBACK", ())
    else:
        # It begins one with the first statement, and must see its end.
        ends = connection.commit, connection.rollback
    commit, rollback = ends
    try:
        yield
        commit()
    except BaseException:
        if not connection.closed:
            rollback()
        raise


def _savepoint_ends(
    run: Callable[[str, Sequence[Any]], list[Any]],
) -> tuple[Callable[[], object], Callable[[], object]]:
    def release() -> None:
        run("RELEASE SAVEPOINT holdline_fence", ())

    def rollback() -> None:
        run("ROLLBACK TO SAVEPOINT holdline_fence", ())
        release()

    return release, rollback


def _database(connection: Any) -> _Database:
    """Recognises a connection: a driver's, Django's, or a connection or session of SQLAlchemy."""
    packages = {kind.__module__.split(".")[0] for kind in type(connection).__mro__}
    if "sqlite3" in packages:
        return _Database(
            "sqlite",
            _cursor_run(connection),
            lambda: _sqlite_transaction(connection),
            ("?1", "?2"),
        )
    if hasattr(connection, "vendor") and hasattr(connection, "settings_dict"):
        from django.db import transaction

        atomic: Any = transaction.atomic
        return _Database(
            connection.vendor,
            _cursor_run(connection),
            lambda: atomic(using=connection.alias),
        )
    if "sqlalchemy" in packages and hasattr(connection, "execute"):
        engine = connection if hasattr(connection, "dialect") else connection.get_bind()
        return _Database(
            engine.dialect.name,
            _sqlalchemy_run(connection),
            lambda: (
                connection.begin_nested() if connection.in_transaction() else connection.begin()
            ),
            (":resource", ":token"),
        )
    if "psycopg" in packages:
        return _Database("postgres", _cursor_run(connection), connection.transaction)
    if "psycopg2" in packages:
        run = _cursor_run(connection)
        return _Database("postgres", run, lambda: _psycopg2_transaction(connection))
    if "pymysql" in packages:
        run = _cursor_run(connection)
        return _Database("mysql", run, lambda: _pymysql_transaction(connection))
    if "MySQLdb" in packages:
        raise TypeError(
            "no fence for a connection of mysqlclient, which does not show whether a transaction "
            "is open, so that a fence could commit yours: use PyMySQL"
        )
    raise TypeError(f"no connection that a fence knows: {type(connection).__name__}")


class SqlFence:
    """The mark of one resource in a database of yours, by a connection of yours.

    `resource` is your own name of the guarded data, such as ``stock/17``. A connection is one of
    `sqlite3`, psycopg, psycopg2, PyMySQL, Django's ``connection``, or a connection or session of
    SQLAlchemy. One of mysqlclient raises `TypeError`. Errors of the driver are raised as they are.
    """

    def __init__(self, resource: str, *, guarded_by: str | None = None) -> None:
        self.resource = resource
        self._rules = _holdline.FenceRules(resource, guarded_by)

    @staticmethod
    def create_table(connection: Any) -> None:
        """Creates the table of marks, if there is none. Commit afterwards, as for other tables."""
        db = _database(connection)
        if db.dialect == "mysql":
            db.run(_SQL["mysql_table"])
            _check_mysql_table(db)
        else:
            db.run(_SQL["make_table" if db.dialect == "postgres" else "table"])

    def mark(self, connection: Any) -> int | None:
        """The largest token that was accepted, if there is one."""
        return self._mark(_database(connection))

    def _mark(self, db: _Database) -> int | None:
        rows = db.run(_SQL["mysql_look" if db.dialect == "mysql" else "look"], self._name(db))
        if not rows:
            return None
        mark = rows[0][0]
        if not isinstance(mark, int) or mark < 1:
            raise Foreign(f"a mark in the table holdline_fence is {mark!r}, not a fencing token")
        return mark

    def _name(self, db: _Database) -> str | bytes:
        return self.resource.encode() if db.dialect == "mysql" else self.resource

    def check(self, connection: Any, proof: Proof) -> None:
        """Checks that nobody newer was here, and raises nothing. All that a reader may do."""
        self._rules.check(self.mark(connection), _shown(proof))

    def seal(self, connection: Any, proof: Proof) -> None:
        """Raises the mark to the holder's token, or raises `Stale`: roll back then.

        In a transaction of yours that goes on to write, this is check-and-write. Seal first, before
        anything is read; until the commit nobody else passes.
        """
        self._seal(_database(connection), proof)

    def _seal(self, db: _Database, proof: Proof) -> None:
        shown = _shown(proof)
        # What is no proof, or of another lock, is refused before anything is sent.
        self._rules.raise_mark(None, shown)
        if db.dialect == "mysql":
            db.run(_SQL["mysql_raise"], self._name(db), shown[1])
        else:
            durable = _DURABLE if db.dialect == "postgres" else ""
            if db.run(_SQL["raise"] + durable, self._name(db), shown[1]):
                return
        # The statement decided; the mark and the rules only explain why.
        mark = self._mark(db)
        if mark != shown[1] or db.dialect != "mysql":
            self._rules.raise_mark(mark, shown)
            raise Busy("raising the mark: somebody lowered or removed it meanwhile")

    @contextmanager
    def writing(self, connection: Any, proof: Proof) -> Iterator[None]:
        """A transaction that is sealed at its begin, and commits mark and writes together.

        Inside a transaction of yours it is a savepoint; with PyMySQL it raises `Failed` there.
        """
        db = _database(connection)
        with db.transaction():
            self._seal(db, proof)
            with _unbroken(db):
                yield


@contextmanager
def _unbroken(db: _Database) -> Iterator[None]:
    """Fails if the server ended the transaction before, and the writer did not notice."""
    if db.dialect == "mysql":
        # A deadlock rolls all of it back; what comes later would be committed on its own.
        db.run("SAVEPOINT holdline_fence")
        yield
        db.run("RELEASE SAVEPOINT holdline_fence")
    else:
        yield
        # PostgreSQL answers the commit of a failed transaction with success.
        db.run("SELECT 1")


def _check_mysql_table(db: _Database) -> None:
    """Only bytes distinguish all names, and only InnoDB rolls a mark back with the rest."""
    rows = db.run(
        "SELECT t.ENGINE, c.DATA_TYPE FROM information_schema.TABLES t "
        "JOIN information_schema.COLUMNS c USING (TABLE_SCHEMA, TABLE_NAME) "
        "WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = 'holdline_fence' "
        "AND c.COLUMN_NAME = 'resource'"
    )
    if [tuple(row) for row in rows] != [("InnoDB", "varbinary")]:
        found = f"it is {[tuple(row) for row in rows]}, not InnoDB with a VARBINARY column"
        raise Foreign(f"the table holdline_fence is not ours: {found}")


def _bytes(value: str | bytes | int) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise TypeError(f"a string, bytes or a number, not {type(value).__name__}")
    return str(value).encode()


class RedisFence:
    """A string key of a Redis server, and the key of its mark beside it.

    Calls take a client of redis-py; those with an ``a`` in front take one of `redis.asyncio`. The
    mark must not be lost: use ``noeviction`` or a policy ``volatile-…``.
    """

    def __init__(
        self,
        key: str | bytes,
        *,
        mark: str | bytes | None = None,
        guarded_by: str | None = None,
        max_jump: int | None = None,
    ) -> None:
        mark_key = None if mark is None else _bytes(mark)
        self._native = _holdline.RedisFence(_bytes(key), mark_key, guarded_by, max_jump)

    @property
    def mark_key(self) -> bytes:
        """The key of the mark."""
        return self._native.mark_key

    def seal(self, redis: Any, proof: Proof) -> None:
        """Raises the mark to the holder's token: before the first read."""
        _ask(redis, self._native.seal(_shown(proof)))

    async def aseal(self, redis: Any, proof: Proof) -> None:
        """As `seal`, by `redis.asyncio`."""
        await _aask(redis, self._native.seal(_shown(proof)))

    def check(self, redis: Any, proof: Proof) -> None:
        """Checks that nobody newer was here, and raises nothing."""
        _ask(redis, self._native.check(_shown(proof)))

    async def acheck(self, redis: Any, proof: Proof) -> None:
        """As `check`, by `redis.asyncio`."""
        await _aask(redis, self._native.check(_shown(proof)))

    def set(
        self,
        redis: Any,
        proof: Proof,
        value: str | bytes | int,
        lasts: float | timedelta | None = None,
    ) -> None:
        """Sets the value, or raises `Stale`. It expires after `lasts`; the mark stays."""
        _ask(redis, self._set(proof, value, lasts))

    async def aset(
        self,
        redis: Any,
        proof: Proof,
        value: str | bytes | int,
        lasts: float | timedelta | None = None,
    ) -> None:
        """As `set`, by `redis.asyncio`."""
        await _aask(redis, self._set(proof, value, lasts))

    def _set(self, proof: Proof, value: Any, lasts: Any) -> _holdline.RedisCall:
        return self._native.set(_shown(proof), _bytes(value), seconds_of(lasts, "lasts"))

    def delete(self, redis: Any, proof: Proof) -> None:
        """Deletes the data, or raises `Stale`; the mark stays."""
        _ask(redis, self._native.delete(_shown(proof)))

    async def adelete(self, redis: Any, proof: Proof) -> None:
        """As `delete`, by `redis.asyncio`."""
        await _aask(redis, self._native.delete(_shown(proof)))

    def script(
        self,
        redis: Any,
        proof: Proof,
        script: str,
        keys: Iterable[str | bytes] = (),
        arguments: Iterable[str | bytes | int] = (),
    ) -> None:
        """Runs a script of yours that starts with `REDIS_GUARD`; see docs/fencing.md."""
        _ask(redis, self._script(proof, script, keys, arguments))

    async def ascript(
        self,
        redis: Any,
        proof: Proof,
        script: str,
        keys: Iterable[str | bytes] = (),
        arguments: Iterable[str | bytes | int] = (),
    ) -> None:
        """As `script`, by `redis.asyncio`."""
        await _aask(redis, self._script(proof, script, keys, arguments))

    def _script(
        self, proof: Proof, script: str, keys: Iterable[Any], arguments: Iterable[Any]
    ) -> _holdline.RedisCall:
        words = [_bytes(key) for key in keys], [_bytes(one) for one in arguments]
        return self._native.script(_shown(proof), script, words)


def _ask(redis: Any, call: _holdline.RedisCall) -> None:
    from redis.exceptions import ResponseError

    try:
        answer = redis.register_script(call.text)(keys=call.keys, args=call.arguments)
    except ResponseError as error:
        raise call.server_error(str(error)) from error
    call.outcome(answer.decode() if isinstance(answer, bytes) else str(answer))


async def _aask(redis: Any, call: _holdline.RedisCall) -> None:
    from redis.exceptions import ResponseError

    try:
        answer = await redis.register_script(call.text)(keys=call.keys, args=call.arguments)
    except ResponseError as error:
        raise call.server_error(str(error)) from error
    call.outcome(answer.decode() if isinstance(answer, bytes) else str(answer))
