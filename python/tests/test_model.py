"""A state machine: random calls on a database and on dicts must agree, across transactions, snapshots and reopens."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import tantalum_db
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tantalum_db import Database, Savepoint, Snapshot, Table, Transaction

Model = dict[str, dict[bytes, bytes]]

names = st.sampled_from(["one", "two"])
keys = st.one_of(
    st.binary(max_size=3),
    st.integers(0, 400).map(lambda number: b"key-%03d" % number),
    st.integers(0, 20).map(lambda number: b"long" * 100 + bytes([number])),
)
values = st.one_of(st.binary(max_size=20), st.integers(0, 9000).map(lambda length: bytes([length % 256]) * length))
bounds = st.none() | keys


def copy_of(model: Model) -> Model:
    return {name: dict(rows) for name, rows in model.items()}


def selected(
    rows: dict[bytes, bytes], prefix: bytes | None, start: bytes | None, end: bytes | None, reverse: bool = False
) -> list[tuple[bytes, bytes]]:
    return sorted(
        (
            (key, value)
            for key, value in rows.items()
            if key.startswith(prefix or b"") and key >= (start or b"") and (end is None or key < end)
        ),
        reverse=reverse,
    )


class TablesAreDicts(RuleBasedStateMachine):
    db: Database

    @initialize()
    def create(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="tantalum-model-"))
        self.db = self.open()
        self.committed: Model = {"one": {}, "two": {}}
        self.tx: Transaction | None = None
        self.running: Model = {}
        self.savepoints: list[tuple[Savepoint, Model]] = []
        self.snapshots: list[tuple[Snapshot, Model]] = []

    def open(self) -> Database:
        return tantalum_db.open(self.directory / "db", log_bytes=2 << 20, buffer_pool_bytes=1 << 20)

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.tx = None
            assert self.db.check()["problems"] == []
            self.db.close()
            shutil.rmtree(self.directory)

    def table(self, name: str) -> tuple[Table, dict[bytes, bytes]]:
        """The table that is read and written: that of the transaction, if there is one."""
        if self.tx is not None:
            return self.tx[name], self.running[name]
        return self.db[name], self.committed[name]

    @rule(name=names, key=keys, value=values)
    def put(self, name: str, key: bytes, value: bytes) -> None:
        table, rows = self.table(name)
        table[key] = value
        rows[key] = value

    @rule(name=names, rows=st.dictionaries(keys, values, max_size=30))
    def update(self, name: str, rows: dict[bytes, bytes]) -> None:
        table, model = self.table(name)
        table.update(rows)
        model.update(rows)

    @rule(name=names, first=st.integers(0, 300), count=st.integers(1, 100), length=st.integers(0, 200))
    def put_many(self, name: str, first: int, count: int, length: int) -> None:
        self.update(name, {b"key-%03d" % number: bytes(length) for number in range(first, first + count)})

    @rule(name=names, key=keys)
    def delete(self, name: str, key: bytes) -> None:
        table, rows = self.table(name)
        assert table.delete(key) == (rows.pop(key, None) is not None)

    @rule(name=names, key=keys, value=values)
    def pop_and_set_default(self, name: str, key: bytes, value: bytes) -> None:
        table, rows = self.table(name)
        assert table.pop(key, None) == rows.pop(key, None)
        assert table.setdefault(key, value) == rows.setdefault(key, value)
        assert table.setdefault(key, b"other") == value

    @rule(name=names, key=keys, expected=st.none() | values, new=st.none() | values)
    def compare_and_swap(self, name: str, key: bytes, expected: bytes | None, new: bytes | None) -> None:
        table, rows = self.table(name)
        before = rows.get(key)
        assert table.compare_and_swap(key, expected, new) == (before == expected)
        assert table.compare_and_swap(key, table.get(key), new)
        rows.pop(key, None)
        if new is not None:
            rows[key] = new

    @rule(name=names, key=keys)
    def insert(self, name: str, key: bytes) -> None:
        table, rows = self.table(name)
        try:
            table.insert(key, b"inserted")
            assert rows.setdefault(key, b"inserted") == b"inserted"
        except tantalum_db.AlreadyExists:
            assert key in rows

    @rule(name=names, prefix=st.none() | st.binary(max_size=2), start=bounds, end=bounds)
    def delete_range(self, name: str, prefix: bytes | None, start: bytes | None, end: bytes | None) -> None:
        table, rows = self.table(name)
        if (prefix, start, end) == (None, None, None):
            doomed = list(rows)
            assert table.clear() == len(doomed)
        else:
            doomed = [key for key, _ in selected(rows, prefix, start, end)]
            assert table.delete_range(prefix=prefix, start=start, end=end) == len(doomed)
        for key in doomed:
            del rows[key]

    @rule(name=names, key=keys, start=st.integers(0, 10000), length=st.integers(0, 10000))
    def read(self, name: str, key: bytes, start: int, length: int) -> None:
        table, rows = self.table(name)
        value = rows.get(key)
        assert table.get(key) == value and (key in table) == (value is not None)
        assert table.view(key) == value
        part = None if value is None else value[start : start + length]
        assert table.get_range(key, start, start + length) == part

    @rule(
        name=names,
        prefix=st.none() | st.binary(max_size=2),
        start=bounds,
        end=bounds,
        reverse=st.booleans(),
        limit=st.none() | st.integers(0, 50),
    )
    def scan(self, name: str, limit: int | None, **order: Any) -> None:
        table, rows = self.table(name)
        expected = selected(rows, **order)[:limit]
        assert list(table.items(limit=limit, **order)) == expected
        assert list(table.keys(limit=limit, **order)) == [key for key, _ in expected]
        assert list(table.values(limit=limit, **order)) == [value for _, value in expected]

    @rule(name=names, reverse=st.booleans(), deleted=st.integers(0, 5))
    def write_while_iterating(self, name: str, reverse: bool, deleted: int) -> None:
        table, rows = self.table(name)
        before = selected(rows, None, None, None, reverse)
        for number, (key, _) in enumerate(table.items(reverse=reverse)):
            assert key == before[number][0]
            if number % 6 == deleted:
                del table[key], rows[key]
            if number == 40:
                break

    @precondition(lambda self: self.tx is None)
    @rule(isolation=st.sampled_from([None, "serializable", "snapshot-isolation"]))
    def begin(self, isolation: Any) -> None:
        self.tx, self.running, self.savepoints = self.db.transaction(isolation=isolation), copy_of(self.committed), []

    @precondition(lambda self: self.tx is not None)
    @rule(asynchronous=st.booleans())
    def commit(self, asynchronous: bool) -> None:
        assert self.tx is not None
        if asynchronous:
            self.tx.commit_async().wait()
        else:
            self.tx.commit()
        self.tx, self.committed = None, self.running

    @precondition(lambda self: self.tx is not None)
    @rule(explicit=st.booleans())
    def rollback(self, explicit: bool) -> None:
        if explicit and self.tx is not None:
            self.tx.rollback()
        self.tx, self.savepoints = None, []

    @precondition(lambda self: self.tx is not None)
    @rule()
    def set_savepoint(self) -> None:
        assert self.tx is not None
        self.savepoints.append((self.tx.savepoint(), copy_of(self.running)))

    @precondition(lambda self: self.tx is not None and self.savepoints)
    @rule(data=st.data())
    def roll_back_to_savepoint(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.savepoints) - 1))
        del self.savepoints[at + 1 :]
        savepoint, model = self.savepoints[at]
        savepoint.rollback()
        self.running = copy_of(model)

    @precondition(lambda self: len(self.snapshots) < 3)
    @rule()
    def take_snapshot(self) -> None:
        self.snapshots.append((self.db.snapshot(), copy_of(self.committed)))

    @precondition(lambda self: self.snapshots)
    @rule(name=names, data=st.data(), close=st.booleans())
    def read_snapshot(self, name: str, data: st.DataObject, close: bool) -> None:
        at = data.draw(st.integers(0, len(self.snapshots) - 1))
        snapshot, model = self.snapshots[at]
        if name in self.db.tables():
            assert dict(snapshot[name].items()) == model[name] and len(snapshot[name]) == len(model[name])
        if close:
            snapshot.close()
            del self.snapshots[at]

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        if self.tx is not None and clean:
            self.rollback(explicit=False)
        self.tx, self.savepoints, self.snapshots = None, [], []
        self.db.close()
        self.db = self.open()

    @invariant()
    def committed_rows_are_counted(self) -> None:
        if hasattr(self, "db") and self.tx is None:
            assert {name: len(self.db[name]) for name in ("one", "two")} == {
                name: len(rows) for name, rows in self.committed.items()
            }


TestTablesAreDicts = TablesAreDicts.TestCase
TestTablesAreDicts.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
