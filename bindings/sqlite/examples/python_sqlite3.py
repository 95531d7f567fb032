"""Python's own sqlite3 module over the extension; nothing but Python is needed.

    python3 bindings/sqlite/examples/python_sqlite3.py [LIBRARY [DATABASE]]
"""

import ctypes
import sqlite3
import sys

import _sqlite3


def load(library: str) -> None:
    """Loads the extension, once a process: every connection can name its VFS afterwards.

    Where Python was built without loading of extensions (pyenv's, for one), the SQLite that its
    module is linked with is asked directly.
    """
    memory = sqlite3.connect(":memory:")
    if hasattr(memory, "enable_load_extension"):
        memory.enable_load_extension(True)
        memory.load_extension(library)
    else:
        load_directly(library)
    memory.close()


def load_directly(library: str) -> None:
    # The library of the module, so that it is that very SQLite; the program itself where the
    # module is built in.
    c = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
    database, message = ctypes.c_void_p(), ctypes.c_char_p()
    c.sqlite3_open(b":memory:", ctypes.byref(database))
    c.sqlite3_enable_load_extension(database, 1)
    failed = c.sqlite3_load_extension(database, library.encode(), None, ctypes.byref(message))
    reason = (message.value or b"").decode()
    c.sqlite3_free(message)
    c.sqlite3_close(database)
    if failed:
        raise sqlite3.OperationalError(f"{library}: {reason}")


def connect(path: str) -> sqlite3.Connection:
    """A connection without transactions that begin by themselves; the timeout is for writers."""
    return sqlite3.connect(f"file:{path}?vfs=esker", uri=True, isolation_level=None, timeout=5)


def count(connection: sqlite3.Connection) -> int:
    return connection.execute("SELECT count(*) FROM people").fetchone()[0]


def main(library: str = "target/release/libesker_sqlite.so", path: str = "example.db") -> None:
    load(library)
    writer = connect(path)
    writer.execute("DROP TABLE IF EXISTS people")
    writer.execute("CREATE TABLE people(name TEXT PRIMARY KEY, born INTEGER)")

    writer.execute("BEGIN")
    writer.executemany("INSERT INTO people VALUES (?, ?)", [("Ada", 1815), ("Alan", 1912)])
    writer.execute("COMMIT")

    writer.execute("BEGIN")
    writer.execute("DELETE FROM people")
    writer.execute("ROLLBACK")
    assert count(writer) == 2

    # A reader stays at its version, and nothing waits: neither has a timeout to use up.
    reader = connect(path)
    for connection in (reader, writer):
        connection.execute("PRAGMA busy_timeout = 0")
    reader.execute("BEGIN")
    assert count(reader) == 2
    writer.execute("INSERT INTO people VALUES ('Grace', 1906)")
    assert (count(reader), count(writer)) == (2, 3)
    reader.execute("COMMIT")
    assert count(reader) == 3

    assert writer.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    reader.close()
    writer.close()
    again = connect(path)
    assert count(again) == 3
    again.close()
    print(f"Python's sqlite3 with SQLite {sqlite3.sqlite_version}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
