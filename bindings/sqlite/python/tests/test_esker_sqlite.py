"""The package as it was installed."""

import pathlib
import sqlite3
from importlib import metadata

import esker_sqlite


def is_store(path: pathlib.Path) -> bool:
    return path.read_bytes()[:16] == b"Esker page store"


def test_a_database_is_a_store(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a name, with %.db"
    db = esker_sqlite.connect(path)
    db.execute("CREATE TABLE t(a)")
    with db:
        db.executemany("INSERT INTO t VALUES (?)", [(1,), (2,)])
    reader = esker_sqlite.connect(path)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM t").fetchone() == (2,)
    with db:
        db.execute("DELETE FROM t")
    assert reader.execute("SELECT count(*) FROM t").fetchone() == (2,)
    reader.close()
    db.close()
    assert is_store(path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert esker_sqlite.connect(path).execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_a_connection_of_ones_own_loads_it(tmp_path: pathlib.Path) -> None:
    connection = sqlite3.connect(":memory:")
    esker_sqlite.load(connection)
    esker_sqlite.load(connection)
    # Loading is off again.
    if hasattr(connection, "load_extension"):
        try:
            connection.load_extension(esker_sqlite.path())
        except sqlite3.OperationalError as error:
            assert "not authorized" in str(error)
        else:
            raise AssertionError("extensions may still be loaded")
    path = tmp_path / "b.db"
    db = sqlite3.connect(f"file:{path}?vfs=esker", uri=True)
    db.execute("CREATE TABLE t(a)")
    db.close()
    assert is_store(path)


def test_what_is_no_connection_is_refused() -> None:
    try:
        esker_sqlite.load("app.db")
    except TypeError as error:
        assert "str" in str(error)
    else:
        raise AssertionError("a path was taken for a connection")


def test_databases_come_in_and_go_out(tmp_path: pathlib.Path) -> None:
    old = sqlite3.connect(tmp_path / "old.db")
    old.executescript("CREATE TABLE t(a); INSERT INTO t VALUES ('x');")
    inside = esker_sqlite.connect(tmp_path / "new.db")
    old.backup(inside)
    assert inside.execute("SELECT a FROM t").fetchone() == ("x",)
    out = sqlite3.connect(tmp_path / "out.db")
    inside.backup(out)
    assert out.execute("SELECT a FROM t").fetchone() == ("x",)


def test_the_licences_are_in_it() -> None:
    files = metadata.files("esker-sqlite") or []
    assert {"LICENSE-MIT", "LICENSE-APACHE"} <= {each.name for each in files}
    assert metadata.version("esker-sqlite") == esker_sqlite.__version__


if __name__ == "__main__":
    import inspect
    import tempfile

    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                wants = inspect.signature(test).parameters
                test(*([pathlib.Path(folder)] if wants else []))
            print(f"{name}: ok")
