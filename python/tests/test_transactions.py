"""Transactions, savepoints, snapshots, and running again what lost."""

import threading
from collections.abc import Callable

import pytest
import tantalum_db
from tantalum_db import Database, Transaction


class Mishap(Exception):
    pass


def test_the_end_of_a_block_commits_and_an_exception_rolls_back(db: Database) -> None:
    accounts = db["accounts"]
    with db.transaction() as tx:
        tx["accounts"][b"alice"] = b"100"
        tx[accounts][b"bob"] = b"20"
        assert tx["accounts"][b"alice"] == b"100" and b"alice" not in accounts
    assert dict(accounts.items()) == {b"alice": b"100", b"bob": b"20"} and tx.is_over
    with pytest.raises(Mishap), db.transaction() as tx:
        tx[accounts][b"alice"] = b"0"
        raise Mishap
    assert accounts[b"alice"] == b"100"
    with pytest.raises(tantalum_db.Closed, match="begin another"):
        tx[accounts]
    with pytest.raises(tantalum_db.Closed):
        tx.commit()
    tx.rollback()


def test_a_transaction_can_be_ended_by_hand(db: Database) -> None:
    accounts = db["accounts"]
    tx = db.transaction()
    assert tx.commit() is None
    tx = db.transaction()
    tx[accounts][b"alice"] = b"1"
    first = tx.commit()
    with db.transaction() as tx:
        tx[accounts][b"alice"] = b"2"
        second = tx.commit()
    with db.transaction() as tx:
        tx[accounts][b"alice"] = b"3"
        tx.rollback()
    assert first is not None and second is not None and first < second and accounts[b"alice"] == b"2"


def test_a_dropped_transaction_lets_go_of_its_locks(db: Database) -> None:
    accounts = db["accounts"]
    tx = db.transaction()
    tx[accounts][b"alice"] = b"1"
    del tx
    accounts[b"alice"] = b"2"
    assert accounts[b"alice"] == b"2"


def test_savepoints(db: Database) -> None:
    with db.transaction() as tx:
        table = tx["t"]
        table[b"a"] = b"1"
        with pytest.raises(Mishap), tx.savepoint():
            table[b"a"] = b"2"
            raise Mishap
        assert table[b"a"] == b"1"
        with tx.savepoint() as savepoint:
            table[b"b"] = b"1"
        savepoint.rollback()
        assert b"b" not in table
        later = tx.savepoint()
        savepoint.rollback()
        with pytest.raises(tantalum_db.InvalidInput):
            later.rollback()
    assert list(db["t"].items()) == [(b"a", b"1")]
    with pytest.raises(tantalum_db.Closed):
        savepoint.rollback()


def test_iteration_in_a_transaction_shows_its_own_writes_and_may_write(db: Database) -> None:
    numbers = [number.to_bytes(2, "big") for number in range(300)]
    db["t"].update([(number, b"old") for number in numbers])
    with db.transaction() as tx:
        table, seen = tx["t"], []
        for key, value in table.items():
            seen.append(key)
            table[key] = value + b"er"
            if int.from_bytes(key, "big") % 3 == 0:
                table.delete((int.from_bytes(key, "big") + 1).to_bytes(2, "big"))
            if key == numbers[-1]:
                table[b"\xff\xfe"] = b"new"
        assert seen == [number for number in numbers if int.from_bytes(number, "big") % 3 != 1] + [b"\xff\xfe"]
        assert set(table.values()) == {b"older", b"newer"}
        savepoint = tx.savepoint()
        table.clear()
        rows = table.items(reverse=True)
        savepoint.rollback()
        assert next(rows) == (b"\xff\xfe", b"newer")
        table[numbers[-1]] = b"newest"
        assert next(rows) == (numbers[-1], b"newest")
    with pytest.raises(tantalum_db.Closed):
        next(rows)


def test_snapshots_show_one_moment(db: Database) -> None:
    table = db["t"]
    table[b"a"] = b"1"
    with db.snapshot() as snapshot:
        table[b"a"] = b"2"
        table[b"b"] = b"2"
        old = snapshot["t"]
        assert old[b"a"] == b"1" and b"b" not in old and len(old) == 1 and list(old.items()) == [(b"a", b"1")]
        assert old.first() == old.last() == (b"a", b"1") and bytes(old.view(b"a") or b"") == b"1"
        for write in (
            lambda: old.__setitem__(b"a", b"3"),
            lambda: old.delete(b"a"),
            lambda: old.clear(),
            lambda: old.increment(b"a"),
        ):
            with pytest.raises(tantalum_db.ReadOnly):
                write()
        with pytest.raises(tantalum_db.NotFound):
            snapshot["none"]
        rows = old.items()
    for read in (lambda: old[b"a"], lambda: snapshot["t"], lambda: next(rows)):
        with pytest.raises(tantalum_db.Closed):
            read()
    snapshot.close()


def test_a_transaction_that_loses_is_run_again(db: Database) -> None:
    accounts, tries = db["accounts"], []
    accounts[b"alice"] = b"100"

    def double(tx: Transaction) -> int:
        balance = int(tx[accounts][b"alice"])
        tries.append(balance)
        if len(tries) == 1:
            accounts[b"alice"] = b"7"
        tx[accounts][b"alice"] = b"%d" % (2 * balance)
        return 2 * balance

    assert db.transact(double, isolation="snapshot-isolation") == 14
    assert accounts[b"alice"] == b"14" and tries == [100, 7]


def test_what_a_function_swallows_is_run_again_too(db: Database) -> None:
    accounts, tries = db["accounts"], []
    accounts[b"alice"] = b"1"

    def write(tx: Transaction) -> None:
        tries.append(tx[accounts][b"alice"])
        if len(tries) == 1:
            accounts[b"alice"] = b"2"
        try:
            tx[accounts][b"alice"] = b"3"
        except tantalum_db.WriteConflict:
            pass

    db.transact(write, isolation="snapshot-isolation")
    assert tries == [b"1", b"2"] and accounts[b"alice"] == b"3"


def test_transact_gives_up_in_the_end_and_says_why(db: Database) -> None:
    accounts, tries = db["accounts"], []

    def lose(tx: Transaction) -> None:
        tries.append(tx[accounts].get(b"alice"))
        accounts[b"alice"] = b"%d" % len(tries)
        tx[accounts][b"alice"] = b""

    with pytest.raises(tantalum_db.WriteConflict, match="3 tries") as caught:
        db.transact(lose, tries=3, isolation="snapshot-isolation")
    assert len(tries) == 3 and caught.value.kind == "WriteConflict"
    assert isinstance(caught.value.__cause__, tantalum_db.WriteConflict)


def test_exceptions_of_the_function_pass_through_transact(db: Database) -> None:
    accounts, kept = db["accounts"], []

    def fail(tx: Transaction) -> None:
        kept.append(tx)
        tx[accounts][b"alice"] = b"0"
        raise Mishap("as it was raised")

    with pytest.raises(Mishap, match="as it was raised"):
        db.transact(fail)
    assert b"alice" not in accounts
    with pytest.raises(tantalum_db.Closed):
        kept[0][accounts]

    def interrupt(tx: Transaction) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        db.transact(interrupt)

    async def write(tx: Transaction) -> None:
        tx[accounts][b"alice"] = b"0"

    with pytest.raises(TypeError, match="await"), pytest.warns(RuntimeWarning, match="never awaited"):
        db.transact(write)  # type: ignore[unused-coroutine]
    assert b"alice" not in accounts


def test_a_function_may_end_its_transaction_itself(db: Database) -> None:
    accounts = db["accounts"]

    def insert_and(end: str) -> Callable[[Transaction], None]:
        def run(tx: Transaction) -> None:
            tx[accounts].insert(b"alice", b"1")
            getattr(tx, end)()

        return run

    db.transact(insert_and("rollback"))
    assert b"alice" not in accounts
    db.transact(insert_and("commit"))
    assert b"alice" in accounts


def test_deadlocks_of_threads_end_and_transact_survives_them(db: Database) -> None:
    table, barrier, failures = db["t"], threading.Barrier(2), []
    table.update({b"a": b"0", b"b": b"0"})

    def add(keys: list[bytes]) -> None:
        first = True

        def both(tx: Transaction) -> None:
            nonlocal first
            tx[table].increment(keys[0] + b"'")
            if first:
                first = False
                barrier.wait(60)
            tx[table].increment(keys[1] + b"'")

        try:
            db.transact(both)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=add, args=(keys,)) for keys in ([b"a", b"b"], [b"b", b"a"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert table.increment(b"a'", 0) == table.increment(b"b'", 0) == 2
    assert db.stats()["transactions"]["deadlocks"] >= 1


def test_a_transaction_is_used_by_one_thread_at_a_time(db: Database) -> None:
    table = db["t"]
    holder, waiter = db.transaction(), db.transaction()
    holder[table][b"a"] = b"1"

    def wait() -> None:
        while b"a" not in written:
            try:
                waiter[table][b"a"] = b"2"
                written.append(b"a")
            except tantalum_db.InUse:
                pass  # the other thread was looking

    written: list[bytes] = []
    thread = threading.Thread(target=wait)
    thread.start()
    refused = None
    while refused is None and thread.is_alive():
        try:
            waiter[table].get(b"unrelated")
        except tantalum_db.InUse as error:
            refused = error
    assert refused is not None and "another thread" in str(refused)
    holder.commit()
    thread.join()
    waiter.commit()
    assert table[b"a"] == b"2"


def test_for_update_locks_for_writing(db: Database) -> None:
    table = db["t"]
    table[b"a"] = b"1"
    with db.transaction() as tx:
        assert tx[table].get(b"a", for_update=True) == b"1" and tx[table].get(b"b", b"-", for_update=True) == b"-"
    with pytest.raises(tantalum_db.InvalidInput, match="transaction"):
        table.get(b"a", for_update=True)
    with pytest.raises(ValueError, match="serializable"):
        db.transaction(isolation="none")  # type: ignore[arg-type]
