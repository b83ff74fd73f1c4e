"""What the package raises. The message of each error says what is wrong, where, and what to do about it."""


class Error(Exception):
    """Whatever the engine refuses or fails to do; each error is of one of the classes below."""

    kind: str
    """The engine's name for what happened, which is finer than the class: ``"StoreFull"``, ``"Deadlock"``."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message, kind)
        self.kind = kind

    def __str__(self) -> str:
        return str(self.args[0])


class Conflict(Error):
    """The transaction or snapshot lost against others, and may succeed when it is run again.

    `Database.transact` does that. The transaction is rolled back, and holds no locks any more.
    """


class Deadlock(Conflict):
    """Transactions waited for each other in a circle, and this one was chosen to end."""


class LockTimeout(Conflict):
    """A lock was not free within the setting ``lock_timeout_ms``."""


class WriteConflict(Conflict):
    """Under snapshot isolation, another transaction wrote the same key first."""


class SnapshotTooOld(Conflict):
    """The row versions that a snapshot sees could not be kept. Read again from a new one."""


class Aborted(Error):
    """The transaction was ended by an earlier failure. Begin another."""


class NotFound(Error, LookupError):
    """There is no database, table or log device of this name. (A key that is not in a table is a `KeyError`.)"""


class AlreadyExists(Error):
    """What is to be created is there already: a key to insert, a table, the directory of a backup."""


class InUse(Error):
    """It is in use: a database by another process, a table by a transaction, a transaction by another thread."""


class InvalidInput(Error, ValueError):
    """An argument or a setting is wrong."""


class TooLarge(InvalidInput):
    """A key, a value or a transaction exceeds a limit. A transaction goes on as if the call had not been made."""


class ReadOnly(Error):
    """The database is open for reading only, or the table is a snapshot's."""


class Unsupported(Error):
    """This version, device or configuration cannot do that."""


class Full(Error):
    """There is no space: on the file system or the device, or in the buffer pool."""


class Closed(Error):
    """The database, transaction or snapshot is over."""


class Forked(Error):
    """The database was opened before this process was forked, and belongs to its parent. Open databases after the fork."""


class Damaged(Error):
    """Files or devices of the database are damaged, missing, or not those that belong to it."""


class DeviceFailed(Error):
    """A device or the operating system refused to read or write, or had done so before. Open the database again."""


class OutcomeUnknown(Error):
    """A device failed during the commit, which may be there or not. Open the database again and look."""


__all__ = [
    "Error",
    "Conflict",
    "Deadlock",
    "LockTimeout",
    "WriteConflict",
    "SnapshotTooOld",
    "Aborted",
    "NotFound",
    "AlreadyExists",
    "InUse",
    "InvalidInput",
    "TooLarge",
    "ReadOnly",
    "Unsupported",
    "Full",
    "Closed",
    "Forked",
    "Damaged",
    "DeviceFailed",
    "OutcomeUnknown",
]

# They are the package's, in tracebacks and in pickles.
for _name in __all__:
    globals()[_name].__module__ = "tantalum_db"
