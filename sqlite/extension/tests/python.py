"""The VFS in Python's sqlite3: by the extension, `python.py LIBRARY`, or by the package tantalum_sqlite, `python.py`."""

import os
import sqlite3
import subprocess
import sys
import tempfile
import threading

LOAD = """
import sqlite3, sys
if len(sys.argv) > 1:
    loader = sqlite3.connect(":memory:")
    loader.enable_load_extension(True)
    loader.load_extension(sys.argv[1])
    loader.close()
else:
    import tantalum_sqlite
    tantalum_sqlite.register()
"""
exec(LOAD)

with tempfile.TemporaryDirectory() as directory:
    uri = f"file:{directory}/app.db?vfs=tantalum"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(uri, uri=True, timeout=60, isolation_level=None)

    first = connect()
    first.execute("CREATE TABLE counters (id INTEGER PRIMARY KEY, value INTEGER)")
    first.executemany("INSERT INTO counters VALUES (?, 0)", [(number,) for number in range(8)])

    def count(number: int) -> None:
        connection = connect()
        for _ in range(50):
            connection.execute("UPDATE counters SET value = value + 1 WHERE id = ?", (number,))
            connection.execute("BEGIN IMMEDIATE")
            (value,) = connection.execute("SELECT value FROM counters WHERE id = 0").fetchone()
            connection.execute("UPDATE counters SET value = ? WHERE id = 0", (value + 1,))
            connection.execute("COMMIT")
        connection.close()

    threads = [threading.Thread(target=count, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert first.execute("SELECT sum(value) FROM counters").fetchone() == (8 * 100,)
    assert first.execute("PRAGMA integrity_check").fetchone() == ("ok",)

    commits = "SELECT value FROM tantalum_status WHERE name = 'transactions.commits'"
    (before,) = first.execute(commits).fetchone()
    first.execute("UPDATE counters SET value = value + 1 WHERE id = 1")
    assert first.execute(commits).fetchone() == (before + 1,)

    # A child that was forked cannot use the connection, and gets one of its own, which its parent serves.
    child = os.fork()
    if child == 0:
        try:
            first.execute("SELECT * FROM counters").fetchall()
        except sqlite3.OperationalError:
            own = connect()
            own.execute("UPDATE counters SET value = value + 1")
            (value,) = own.execute("SELECT sum(value) FROM counters").fetchone()
            own.close()
            os._exit(0 if value == 8 * 100 + 9 else 1)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, "the child did not write what it should"
    assert first.execute("SELECT sum(value) FROM counters").fetchone() == (8 * 100 + 9,)

    # Another process, which has not inherited anything.
    program = f"""{LOAD}
connection = sqlite3.connect({uri!r}, uri=True, timeout=60)
with connection:
    connection.execute("UPDATE counters SET value = 7 WHERE id = 7")
"""
    subprocess.run([sys.executable, "-c", program, *sys.argv[1:]], check=True)
    assert first.execute("SELECT value FROM counters WHERE id = 7").fetchone() == (7,)
    first.execute("UPDATE counters SET value = 0")
    first.close()

    # In from an ordinary file, and out to one.
    ordinary = sqlite3.connect(f"{directory}/ordinary.db")
    ordinary.execute("PRAGMA journal_mode=WAL")
    with ordinary:
        ordinary.execute("CREATE TABLE cities AS SELECT 'Oslo' AS name")
    imported = sqlite3.connect(f"file:{directory}/imported.db?vfs=tantalum", uri=True)
    ordinary.backup(imported)
    exported = sqlite3.connect(f"{directory}/exported.db")
    imported.backup(exported)
    for connection in (imported, exported):
        assert connection.execute("SELECT name FROM cities").fetchall() == [("Oslo",)]
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()

    again = connect()
    assert again.execute("SELECT sum(value) FROM counters").fetchone() == (0,)
    again.close()
print("Python's sqlite3 works with the VFS")
