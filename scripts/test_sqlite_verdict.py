"""Compares what SQLite's scripts said with the differences that are expected.

    python3 scripts/test_sqlite_verdict.py LOGS EXPECTED

EXPECTED has a line a case: the script, the name of the case, and why it differs. A script that
ended early stands there with the case `(ends)`.
"""

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


def main(logs: pathlib.Path, expected_file: pathlib.Path) -> int:
    expected: dict[str, dict[str, str]] = {}
    for line in expected_file.read_text().splitlines():
        if line and not line.startswith("#"):
            script, case, reason = line.split(maxsplit=2)
            expected.setdefault(script, {})[case] = reason
    problems, scripts, cases, differ = [], 0, 0, 0
    for log in sorted(logs.glob("*.log")):
        script = log.name.removesuffix(".log")
        count, failed = said(log.read_text(errors="replace"))
        listed = set(expected.get(script, {}))
        scripts, cases, differ = scripts + 1, cases + count, differ + len(failed & listed)
        problems += [f"{script}: {case} fails, and is not expected to" for case in failed - listed]
        problems += [f"{script}: {case} is expected to fail, and passes" for case in listed - failed]
    for problem in sorted(problems):
        print(problem)
    print(f"SQLite's suite: {scripts} scripts, {cases} cases, {differ} differ as expected, "
          f"{len(problems)} not as expected")
    return 1 if problems or not scripts else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
