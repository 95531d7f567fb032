"""Requests to an application whose workers are processes, and what they left in the database.

    python3 scripts/test_workers.py GUNICORN EXAMPLES LIBRARY DATABASE

Sends 400 requests by 16 threads to four gunicorn workers, once with a connection for each request
and once with one that each worker keeps. All of them must succeed, and each is one row.
"""

import collections
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

REQUESTS, THREADS, WORKERS = 400, 16, 4


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(port: int) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit("gunicorn does not answer")


def answers(port: int) -> collections.Counter:
    """What came back, and how often."""
    said, left, lock = collections.Counter(), iter(range(REQUESTS)), threading.Lock()

    def send() -> None:
        while True:
            with lock:
                number = next(left, None)
            if number is None:
                return
            try:
                address = f"http://127.0.0.1:{port}/{number}"
                with urllib.request.urlopen(address, timeout=60) as answer:
                    result = str(answer.status)
            except urllib.error.HTTPError as error:
                result = str(error.code)
            except OSError as error:
                result = repr(error)
            with lock:
                said[result] += 1

    threads = [threading.Thread(target=send) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return said


def serve(gunicorn: str, examples: str, environment: dict, log: pathlib.Path) -> str:
    """Runs the workers for the requests; how many of these succeeded."""
    port = free_port()
    command = [gunicorn, f"--workers={WORKERS}", f"--bind=127.0.0.1:{port}",
               f"--chdir={examples}", "workers_gunicorn:app"]
    with log.open("w") as errors:
        server = subprocess.Popen(command, env=environment, stderr=errors)
        try:
            wait_for(port)
            said = answers(port)
        finally:
            server.terminate()
            server.wait(timeout=30)
    if said != {"200": REQUESTS}:
        sys.exit(f"of {REQUESTS} requests: {dict(said)}\n{log.read_text()[-4000:]}")
    return f"{REQUESTS} of {REQUESTS}"


def main(gunicorn: str, examples: str, library: str, database: str) -> None:
    log = pathlib.Path(database).with_suffix(".log")
    done = []
    for keep in ["0", "1"]:
        environment = {**os.environ, "LIBRARY": library, "DATABASE": database, "KEEP": keep}
        done.append(serve(gunicorn, examples, environment, log))
    log.unlink()
    sys.path.insert(0, examples)
    import python_sqlite3

    python_sqlite3.load(library)
    connection = python_sqlite3.connect(database)
    rows, workers = connection.execute(
        "SELECT count(*), count(DISTINCT worker) FROM visits").fetchone()
    whole = connection.execute("PRAGMA integrity_check").fetchone()[0]
    connection.close()
    if (rows, whole) != (2 * REQUESTS, "ok") or workers < 2:
        sys.exit(f"{rows} rows of {workers} workers, integrity_check: {whole}")
    print(f"a connection a request {done[0]}, kept {done[1]}, {workers} workers wrote")


if __name__ == "__main__":
    main(*sys.argv[1:])
