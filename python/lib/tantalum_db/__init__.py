"""Tantalum: an embeddable transactional storage engine.

A database is a directory with tables, ordered maps from bytes to bytes. Transactions are serializable, and a commit is
durable when it returns::

    import tantalum_db

    with tantalum_db.open("accounts.db") as db:     # a directory; created if missing
        accounts = db["accounts"]
        accounts[b"alice"] = b"100"                 # durable when it returns
        with db.transaction() as tx:                # both rows, or none
            tx[accounts][b"bob"] = b"20"
            tx[accounts][b"alice"] = b"80"
        for name, balance in accounts.items(start=b"a"):
            print(name, balance)
"""

import atexit
import os
import weakref
from collections.abc import Sequence

from ._engine import SETTINGS, Database, Rows, Savepoint, Snapshot, Table, Ticket, Transaction, open_database
from ._errors import (
    Aborted,
    AlreadyExists,
    Closed,
    Conflict,
    Damaged,
    Deadlock,
    DeviceFailed,
    Error,
    Forked,
    Full,
    InUse,
    InvalidInput,
    LockTimeout,
    NotFound,
    OutcomeUnknown,
    ReadOnly,
    SnapshotTooOld,
    TooLarge,
    Unsupported,
    WriteConflict,
)

__all__ = [
    "SETTINGS",
    "Aborted",
    "AlreadyExists",
    "Closed",
    "Conflict",
    "Damaged",
    "Database",
    "Deadlock",
    "DeviceFailed",
    "Error",
    "Forked",
    "Full",
    "InUse",
    "InvalidInput",
    "LockTimeout",
    "NotFound",
    "OutcomeUnknown",
    "ReadOnly",
    "Rows",
    "Savepoint",
    "Snapshot",
    "SnapshotTooOld",
    "Table",
    "Ticket",
    "TooLarge",
    "Transaction",
    "Unsupported",
    "WriteConflict",
    "open",
]

_databases: "weakref.WeakSet[Database]" = weakref.WeakSet()


def open(
    path: "str | os.PathLike[str]",
    *,
    create: bool = True,
    read_only: bool = False,
    **settings: "int | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]",
) -> Database:
    """Opens the database in the directory ``path``, or creates it.

    With ``create=False``, a database that is not there raises `NotFound`. With ``read_only=True``, nothing on its devices
    changes, and other readers can open it at the same time.

    Settings have the names and meanings that they have in the file ``tantalum.toml`` of the directory, which holds those of
    earlier opens: ``buffer_pool_bytes=256 << 20``. `SETTINGS` explains each.

    Raises `InUse` when another process has it open.
    """
    database = open_database(path, create=create, read_only=read_only, **settings)
    _databases.add(database)
    return database


def _close_all() -> None:
    """Closes what is open when the interpreter ends: later, a commit that is awaited could not be told of any more."""
    for database in list(_databases):
        try:
            database.close()
        except Forked:
            pass  # the parent process closes it


atexit.register(_close_all)
