"""Compares what SQLite's scripts said with the differences that are expected.

    python3 scripts/test_sqlite_verdict.py LOGS EXPECTED [COUNTS]

EXPECTED has a line a case: the script, the name of the case, and why it differs. A script that
ended early stands there with the case `(ends)`. COUNTS is a folder for the counts of a whole run,
for `cargo xtask test-counts`.
"""

import json
import pathlib
import re
import sys

CASES = re.compile(r"^(\d+) errors out of (\d+) tests")
FAILED = re.compile(r"^! (\S+) expected")


def said(log: str) -> tuple[int, set[str]]:
    """How many cases a script ran, and which failed."""
    failed, count, ended = set(), 0, False
    for line in log.splitlines():
        if found := CASES.match(line):
            count, ended = int(found[2]), True
        elif found := FAILED.match(line):
            failed.add(found[1])
    if not ended:
        failed.add("(ends)")
    return count, failed


def main(logs: pathlib.Path, expected_file: pathlib.Path, folder: pathlib.Path | None) -> int:
    expected: dict[str, dict[str, str]] = {}
    for line in expected_file.read_text().splitlines():
        if line and not line.startswith("#"):
            script, case, reason = line.split(maxsplit=2)
            expected.setdefault(script, {})[case] = reason
    problems, scripts, cases, differ, odd = [], 0, 0, 0, 0
    for log in sorted(logs.glob("*.log")):
        script = log.name.removesuffix(".log")
        count, failed = said(log.read_text(errors="replace"))
        listed = set(expected.get(script, {}))
        scripts, cases, differ = scripts + 1, cases + count, differ + len(failed & listed)
        odd += bool(failed)
        problems += [f"{script}: {case} fails, and is not expected to" for case in failed - listed]
        problems += [f"{script}: {case} is expected to fail, and passes" for case in listed - failed]
    for problem in sorted(problems):
        print(problem)
    print(f"SQLite's suite: {scripts} scripts, {cases} cases, {differ} differ as expected, "
          f"{len(problems)} not as expected")
    if folder is not None:
        counts = {"scripts": scripts, "cases": cases, "scripts that differ": odd,
                  "cases that differ": differ, "not as expected": len(problems)}
        line = {"suite": "sqlite", "case": "SQLite's own, journals in memory", "counts": counts}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "sqlite.jsonl").write_text(json.dumps(line) + "\n")
    return 1 if problems or not scripts else 0


if __name__ == "__main__":
    paths = [pathlib.Path(argument) for argument in sys.argv[1:]]
    sys.exit(main(paths[0], paths[1], paths[2] if len(paths) > 2 else None))
