"""APSW over the extension: `pip install apsw`.

    python3 bindings/sqlite/examples/python_apsw.py [LIBRARY [DATABASE]]
"""

import sys

import apsw


def load(library: str) -> None:
    """Loads the extension, once a process: every connection can name its VFS afterwards."""
    memory = apsw.Connection(":memory:")
    memory.enable_load_extension(True)
    memory.load_extension(library)
    memory.close()


def count(connection: apsw.Connection) -> int:
    return connection.execute("SELECT count(*) FROM people").get


def main(library: str = "target/release/libesker_sqlite.so", path: str = "example.db") -> None:
    load(library)
    writer = apsw.Connection(path, vfs="esker")
    writer.execute("DROP TABLE IF EXISTS people")
    writer.execute("CREATE TABLE people(name TEXT PRIMARY KEY, born INTEGER)")

    with writer:
        writer.executemany("INSERT INTO people VALUES (?, ?)", [("Ada", 1815), ("Alan", 1912)])
    try:
        with writer:
            writer.execute("DELETE FROM people")
            raise KeyError("so the transaction is rolled back")
    except KeyError:
        pass
    assert count(writer) == 2

    # A reader stays at its version, and nothing waits: APSW has no timeout unless asked for one.
    reader = apsw.Connection(path, vfs="esker")
    reader.execute("BEGIN")
    assert count(reader) == 2
    writer.execute("INSERT INTO people VALUES ('Grace', 1906)")
    assert (count(reader), count(writer)) == (2, 3)
    reader.execute("COMMIT")
    assert count(reader) == 3

    assert writer.pragma("integrity_check") == "ok"
    reader.close()
    writer.close()
    again = apsw.Connection(path, vfs="esker")
    assert count(again) == 3
    again.close()
    print(f"APSW {apsw.apsw_version()} with SQLite {apsw.sqlite_lib_version()}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
