"""Opening, closing, settings, maintenance, and processes that end or are forked."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
import tantalum_db
from tantalum_db import Database

from conftest import Open


def run(program: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Runs a program in a Python of its own."""
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_block_closes_the_database(path: Path) -> None:
    with tantalum_db.open(path) as db:
        table, snapshot, tx = db["t"], db.snapshot(), db.transaction()
        old, own = snapshot["t"], tx["t"]
        table[b"a"] = b"1"
        rows = table.items()
    db.close()
    for use in (
        lambda: table[b"a"],
        lambda: table.__setitem__(b"a", b"2"),
        lambda: old.get(b"a"),
        lambda: own.get(b"a"),
        lambda: next(rows),
        lambda: db["t"],
        lambda: db.transaction(),
        lambda: db.transact(lambda tx: None),
        lambda: db.snapshot(),
        lambda: db.check(),
        lambda: db.bulk_load("u", []),
    ):
        with pytest.raises(tantalum_db.Closed):
            use()
    with tantalum_db.open(str(path)) as db:
        assert db["t"][b"a"] == b"1"


def test_the_last_reference_closes_the_database_too(path: Path) -> None:
    db = tantalum_db.open(path)
    with pytest.raises(tantalum_db.InUse):
        tantalum_db.open(path)
    table = db["t"]
    del db
    table[b"a"] = b"1"
    del table
    tantalum_db.open(path).close()


def test_a_database_that_is_not_there_is_created_only_if_that_is_asked_for(path: Path) -> None:
    with pytest.raises(tantalum_db.NotFound):
        tantalum_db.open(path, create=False)
    tantalum_db.open(path).close()
    with tantalum_db.open(path, create=False, read_only=True) as db, pytest.raises(tantalum_db.ReadOnly):
        db["t"]


def test_settings_have_the_names_of_the_file(path: Path) -> None:
    assert "Default" in tantalum_db.SETTINGS["buffer_pool_bytes"]
    with tantalum_db.open(
        path,
        page_size=8192,
        log_bytes=8 << 20,
        isolation="snapshot-isolation",
        early_lock_release=False,
        log_devices=["one", Path("two")],
    ) as db:
        stats = db.stats()
        assert stats["page_bytes"] == 8192 and len(stats["log"]["devices"]) == 2
    text = (path / "tantalum.toml").read_text()
    assert 'isolation = "snapshot-isolation"' in text and "early_lock_release = false" in text
    wrong: Any
    for name, wrong in {"log_byte": 1, "log_bytes": "much", "isolation": "none", "page_size": 7}.items():
        with pytest.raises(tantalum_db.InvalidInput, match=name.split("_")[0]):
            tantalum_db.open(path.with_name("other"), **{name: wrong})
    with pytest.raises(TypeError, match="log_bytes"):
        tantalum_db.open(path.with_name("other"), log_bytes=None)  # type: ignore[arg-type]


def test_errors_have_classes_kinds_and_messages(db: Database) -> None:
    with pytest.raises(tantalum_db.Error) as caught:
        db.table("none", create=False)
    error = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(caught.value, LookupError) and type(error) is tantalum_db.NotFound
    assert error.kind == "NotFound" and str(error) == str(caught.value) and "none" in str(error)
    assert issubclass(tantalum_db.Deadlock, tantalum_db.Conflict)
    for name, value in vars(tantalum_db._errors).items():
        if isinstance(value, type):
            assert getattr(tantalum_db, name) is value and name in tantalum_db.__all__


def test_maintenance(db: Database, tmp_path: Path) -> None:
    report = db.bulk_load("squares", ((b"%05d" % n, b"%d" % (n * n)) for n in range(5000)))
    assert report["rows"] == 5000 and report["pages"] > 0 and db["squares"][b"00012"] == b"144"
    with pytest.raises(tantalum_db.InvalidInput, match="row 2"):
        db.bulk_load("letters", [(b"b", b"2"), (b"a", b"1")])
    with pytest.raises(ZeroDivisionError):
        db.bulk_load("letters", ((b"%d" % n, b"%d" % (1 // (5 - n))) for n in range(10)))
    assert len(db["letters"]) == 0
    db.backup(tmp_path / "copy")
    with pytest.raises(tantalum_db.AlreadyExists):
        db.backup(tmp_path / "copy")
    with tantalum_db.open(tmp_path / "copy") as copy:
        assert len(copy["squares"]) == 5000
    db["squares"].clear()
    db.checkpoint()
    assert db.compact()["data_bytes_after"] > 0
    checked = db.check()
    assert checked["problems"] == [] and [table["name"] for table in checked["tables"]] == ["letters", "squares"]
    assert db.stats()["transactions"]["commits"] > 0


def test_a_killed_process_loses_nothing_that_it_was_told_is_durable(path: Path) -> None:
    program = """
        import asyncio, sys, tantalum_db
        db = tantalum_db.open(sys.argv[1])
        table = db["t"]

        async def write(number):
            async with db.transaction() as tx:
                tx[table][b"async-%06d" % number] = b"%d" % number
            print("async-%06d" % number, flush=True)

        for number in range(10**6):
            table[b"put-%06d" % number] = b"%d" % number
            print("put-%06d" % number, flush=True)
            asyncio.run(write(number))
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = [next(process.stdout).strip() for _ in range(200)]
        process.send_signal(signal.SIGKILL)
        told += [line.strip() for line in process.stdout if line.endswith("\n")]
    assert process.returncode == -signal.SIGKILL
    with tantalum_db.open(path) as db:
        table = db["t"]
        assert [key for key in told if table.get(key.encode()) != b"%d" % int(key.split("-")[1])] == []
        assert len(table) <= len(told) + 1 and db.check()["problems"] == []
    with tantalum_db.open(path) as db:
        assert len(db["t"]) >= 200


def test_a_forked_process_is_refused_and_leaves_the_database_alone(path: Path) -> None:
    program = """
        import gc, os, subprocess, sys, warnings, tantalum_db
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        db = tantalum_db.open(sys.argv[1])
        table, tx, snapshot, rows = db["t"], db.transaction(), db.snapshot(), db["t"].items()
        tx[table][b"a"] = b"1"
        ticket = db.transaction().commit_async()
        child = os.fork()
        if child == 0:
            uses = [
                lambda: table[b"a"], lambda: table.items(), lambda: tx.commit(), lambda: snapshot["t"], lambda: next(rows),
                lambda: ticket.wait(), lambda: db.close(), lambda: db.transact(print),
            ]
            refused = 0
            for use in uses:
                try:
                    use()
                except tantalum_db.Forked as error:
                    refused += "after the fork" in str(error)
            with tantalum_db.open(sys.argv[1] + "-of-the-child") as own:
                own["t"][b"a"] = b"1"
            print("refused", refused, "of", len(uses), flush=True)
            del db, table, tx, snapshot, rows, ticket, uses, use
            gc.collect()
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        other = "import sys, tantalum_db; tantalum_db.open(sys.argv[1])"
        other = subprocess.run([sys.executable, "-c", other, sys.argv[1]], capture_output=True, text=True)
        assert "InUse" in other.stderr, "the child has let go of the parent's lock"
        tx.commit()
        print(table[b"a"], flush=True)
    """
    ended = run(program, path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "refused 8 of 8\nb'1'\n"
    with tantalum_db.open(path) as db:
        assert db["t"][b"a"] == b"1" and db.stats()["recovery"]["records"] == 0


def test_the_end_of_the_interpreter_closes_the_database(path: Path) -> None:
    program = """
        import asyncio, sys, threading, tantalum_db
        db = tantalum_db.open(sys.argv[1])
        table = db["t"]

        def write():
            while True:
                table[b"a"] = b"1"

        async def run():
            tx = db.transaction()
            tx[table][b"b"] = b"2"
            asyncio.ensure_future(asyncio.wait_for(asyncio.shield(wait(tx.commit_async())), 60))
            await asyncio.sleep(0)

        async def wait(ticket):
            await ticket

        threading.Thread(target=write, daemon=True).start()
        asyncio.run(run())
    """
    ended = run(program, path)
    assert ended.returncode == 0
    with tantalum_db.open(path) as db:
        assert db["t"][b"b"] == b"2" and db.stats()["recovery"]["records"] == 0


def test_other_threads_run_while_one_waits(db: Database) -> None:
    """The thread that holds the lock could not let go of it otherwise, and the other would wait in vain."""
    table, held = db["t"], threading.Event()
    table[b"a"] = b"0"

    def hold() -> None:
        with db.transaction() as tx:
            tx[table].increment(b"n")
            held.set()
            for _ in range(100_000):
                pass

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    assert table.increment(b"n") == 2
    thread.join()


def test_threads_share_a_database(db: Database) -> None:
    table = db["t"]

    def count(number: int) -> None:
        for step in range(100):
            table.increment(b"all")
            table[b"%d-%d" % (number, step)] = b"%d" % step
            assert table[b"%d-%d" % (number, step)] == b"%d" % step
            assert len(list(table.items(prefix=b"%d-" % number))) == step + 1

    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            count(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and table.increment(b"all", 0) == 800 and len(table) == 801
    assert os.path.isdir(db.path)
