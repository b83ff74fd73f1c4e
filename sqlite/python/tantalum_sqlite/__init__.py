"""SQLite databases in Tantalum, through Python's own sqlite3.

Connections commit in groups, and readers wait for no writer::

    import sqlite3
    import tantalum_sqlite

    tantalum_sqlite.register()      # once; then any connection of the process can name the VFS
    connection = sqlite3.connect(tantalum_sqlite.uri("app.db"), uri=True)
    with connection:
        connection.execute("CREATE TABLE users (name TEXT)")    # durable when the block ends
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Optional, Union
from urllib.parse import quote, urlencode

__all__ = ["last_error", "register", "uri"]

_library = ctypes.CDLL(str(Path(__file__).with_name("libtantalum_sqlite.so")))
_Find = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
_library.tantalum_sqlite_register.argtypes = [_Find, ctypes.c_int, ctypes.c_int]
_library.tantalum_sqlite_last_error.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_library.tantalum_sqlite_last_error.restype = ctypes.c_size_t


def register(*, default: bool = False) -> None:
    """Registers the VFS ``tantalum`` with the SQLite of Python's ``sqlite3``, and the table ``tantalum_status``.

    With ``default``, connections that name no VFS use it too; they can then open no ordinary SQLite file. May be called again.

    Raises ``RuntimeError`` where the functions of that SQLite are not to be found: it is compiled into a Python that hides them.
    """
    import _sqlite3

    # Compiled into the interpreter if it has no file of its own.
    sqlite = ctypes.CDLL(getattr(_sqlite3, "__file__", None))

    def find(name: bytes) -> Optional[int]:
        try:
            return ctypes.cast(getattr(sqlite, name.decode()), ctypes.c_void_p).value
        except AttributeError:
            return None

    code = _library.tantalum_sqlite_register(_Find(find), default, False)
    if code != 0:
        raise RuntimeError(
            f"the VFS tantalum cannot be registered with the SQLite of this Python (code {code}): it must be version 3.8.7 or later, "
            "and a shared library, or let its functions be found"
        )


def uri(path: Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"], **parameters: Union[str, int, float]) -> str:
    """The URI by which ``sqlite3.connect(..., uri=True)`` opens a database in Tantalum; it is created if missing.

    ``parameters`` are those of the VFS and of SQLite: ``database`` names the directory of the Tantalum database, the settings of the
    engine count for the connection that is the first to open it, and ``mode="ro"`` is for reading alone.
    """
    name = os.fsencode(path)
    if name.startswith(b"//"):
        # What follows two slashes would be taken for a host.
        name = b"/" + name.lstrip(b"/")
    query = urlencode({"vfs": "tantalum", **parameters}, quote_via=quote)
    return f"file:{quote(name)}?{query}"


def last_error() -> Optional[str]:
    """Why the last call on this thread that failed in the VFS has failed, in words; None if none has.

    SQLite, and so the exceptions of ``sqlite3``, only say "disk I/O error" or "unable to open database file".
    """
    length = _library.tantalum_sqlite_last_error(None, 0)
    if length == 0:
        return None
    text = ctypes.create_string_buffer(length)
    _library.tantalum_sqlite_last_error(text, length)
    return text.raw.decode(errors="replace")
