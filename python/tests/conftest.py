"""Databases for tests, small and in directories of their own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tantalum_db
from tantalum_db import Database

Open = Callable[[], Database]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def reopen(path: Path) -> Iterator[Open]:
    """Opens the test's database; one that is open is closed before."""
    opened: list[Database] = []

    def reopen() -> Database:
        for database in opened:
            database.close()
        opened[:] = [tantalum_db.open(path, log_bytes=8 << 20)]
        return opened[0]

    yield reopen
    for database in opened:
        database.close()


@pytest.fixture
def db(reopen: Open) -> Database:
    return reopen()
