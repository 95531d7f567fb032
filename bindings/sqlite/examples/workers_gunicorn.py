"""A WSGI application for several worker processes: each request is a row, and counts them.

    cd bindings/sqlite/examples
    gunicorn --workers 4 workers_gunicorn:app

`LIBRARY` and `DATABASE` in the environment are what the other examples have as arguments. With
`KEEP=1` each worker keeps its connection; otherwise each request opens one.

Workers open the database after gunicorn has forked them: a child cannot use what its parent has
open.
"""

import os
import sqlite3
import threading

import python_sqlite3

DATABASE = os.environ.get("DATABASE", "example.db")
LIBRARY = os.environ.get("LIBRARY", "../../../target/release/libesker_sqlite.so")
KEEP = os.environ.get("KEEP") == "1"
SCHEMA = "CREATE TABLE IF NOT EXISTS visits(id INTEGER PRIMARY KEY, worker INTEGER, path TEXT)"
INSERT = "INSERT INTO visits(worker, path) VALUES (?, ?)"

is_loaded = threading.Lock()
of_thread = threading.local()


def connect() -> sqlite3.Connection:
    if is_loaded.acquire(blocking=False):
        python_sqlite3.load(LIBRARY)
    connection = python_sqlite3.connect(DATABASE)
    connection.execute(SCHEMA)
    return connection


def visit(connection: sqlite3.Connection, path: str) -> int:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(INSERT, (os.getpid(), path))
    count = connection.execute("SELECT count(*) FROM visits").fetchone()[0]
    connection.execute("COMMIT")
    return count


def app(environ: dict, start_response) -> list[bytes]:
    if not KEEP:
        connection = connect()
        count = visit(connection, environ["PATH_INFO"])
        connection.close()
    else:
        if not hasattr(of_thread, "connection"):
            of_thread.connection = connect()
        count = visit(of_thread.connection, environ["PATH_INFO"])
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{count}\n".encode()]
