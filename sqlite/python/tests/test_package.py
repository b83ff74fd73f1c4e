"""The package tantalum_sqlite, installed: what `extension/tests/python.py` does not have."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import tantalum_sqlite


@pytest.fixture(autouse=True)
def registered() -> None:
    tantalum_sqlite.register()


def connect(path: str | bytes | Path, **parameters: str | int) -> sqlite3.Connection:
    return sqlite3.connect(tantalum_sqlite.uri(path, **parameters), uri=True, timeout=60)


@pytest.mark.parametrize("name", ["app.db", "100 % of #1? a+b=c&d.db", "Łódź.db", b"not-UTF-8-\xff.db"])
def test_every_file_name_can_be_opened(tmp_path: Path, name: str | bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), os.fsencode(name))
    for opened in (path, b"//" + path):
        connection = connect(opened)
        with connection:
            connection.execute("CREATE TABLE IF NOT EXISTS users (name TEXT)")
        connection.close()
    assert sorted(os.listdir(os.fsencode(tmp_path))) == sorted([os.fsencode(name), b"tantalum-sqlite"])


def test_parameters_are_those_of_the_vfs_and_of_sqlite(tmp_path: Path) -> None:
    connection = connect(tmp_path / "app.db", database=str(tmp_path / "a database"), buffer_pool_bytes=16 << 20)
    connection.execute("CREATE TABLE users (name TEXT)")
    assert (tmp_path / "a database" / "tantalum.toml").exists()
    pool = connection.execute("SELECT value FROM tantalum_status WHERE name = 'pool.memory_bytes'").fetchone()
    assert pool == (16 << 20,)
    reader = connect(tmp_path / "app.db", mode="ro")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("INSERT INTO users VALUES ('Ada')")
    reader.close()
    connection.close()


def test_failures_can_be_asked_for_in_words(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="unable to open database file"):
        connect(tmp_path / "missing" / "app.db")
    assert "missing" in (tantalum_sqlite.last_error() or "")


def test_the_default_counts_for_connections_that_name_no_vfs(tmp_path: Path) -> None:
    program = """
import sqlite3, tantalum_sqlite
assert tantalum_sqlite.last_error() is None
tantalum_sqlite.register(default=True)
connection = sqlite3.connect("app.db")
connection.execute("CREATE TABLE users (name TEXT)")
connection.execute("CREATE TEMP TABLE others (name TEXT)")
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert (tmp_path / "tantalum-sqlite" / "tantalum.toml").exists()
    assert b"tantalum" in (tmp_path / "app.db").read_bytes()
    ordinary = sqlite3.connect(tmp_path / "ordinary.db")
    ordinary.execute("CREATE TABLE users (name TEXT)")
    assert (tmp_path / "ordinary.db").read_bytes().startswith(b"SQLite format 3")
    ordinary.close()
