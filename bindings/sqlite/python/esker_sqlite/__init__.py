"""SQLite without a journal: Esker's extension for the sqlite3 of this Python, and for APSW.

    import esker_sqlite

    db = esker_sqlite.connect("app.db")

`load` makes the VFS `esker` known to the SQLite of a connection, once a process; from then on every
connection of the process can name it: `file:app.db?vfs=esker`. `path` is the library, for clients
that load it themselves.
"""

import ctypes
import pathlib
import sqlite3
import urllib.parse
from importlib import metadata
from typing import Any, Optional, Union

__all__ = ["connect", "load", "path"]
__version__ = metadata.version("esker-sqlite")

_LIBRARY = pathlib.Path(__file__).with_name("libesker_sqlite.so")


def path() -> str:
    """Where the library is that SQLite loads."""
    return str(_LIBRARY)


def load(connection: Optional[Any] = None) -> None:
    """Loads the extension into the SQLite of `connection`, or of Python's module `sqlite3`.

    A connection of `sqlite3` or of APSW; to load it again does no harm. Whether extensions may be
    loaded is as it was afterwards: no. Python may have been built without loading of extensions
    (pyenv's is): then the SQLite below the module is asked directly. One process has one SQLite
    with the extension; a second one raises an error.
    """
    if connection is None:
        connection = sqlite3.connect(":memory:")
        try:
            load(connection)
        finally:
            connection.close()
    elif hasattr(connection, "enable_load_extension"):
        connection.enable_load_extension(True)
        try:
            connection.load_extension(path())
        finally:
            connection.enable_load_extension(False)
    elif isinstance(connection, sqlite3.Connection):
        _load_directly()
    else:
        raise TypeError(f"no connection of sqlite3 or APSW: {type(connection).__name__}")


def connect(database: "Union[str, pathlib.Path]", **options: Any) -> sqlite3.Connection:
    """Opens a database in a store; it is made where there is none.

    `database` is a path; `options` are those of `sqlite3.connect`.
    """
    load()
    quoted = urllib.parse.quote(str(database))
    return sqlite3.connect(f"file:{quoted}?vfs=esker", uri=True, **options)


def _load_directly() -> None:
    import _sqlite3

    # The library of the module, so that it is that very SQLite; the program itself where the
    # module is built in.
    c = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
    database, message = ctypes.c_void_p(), ctypes.c_char_p()
    c.sqlite3_open(b":memory:", ctypes.byref(database))
    c.sqlite3_enable_load_extension(database, 1)
    failed = c.sqlite3_load_extension(database, path().encode(), None, ctypes.byref(message))
    reason = (message.value or b"").decode()
    c.sqlite3_free(message)
    c.sqlite3_close(database)
    if failed:
        raise sqlite3.OperationalError(f"{path()}: {reason}")
