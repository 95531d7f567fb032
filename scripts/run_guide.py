"""Runs the examples of a guide, in order and in an empty folder.

    python3 scripts/run_guide.py GUIDE FOLDER

A block of `sh` or `python` must end without an error; a block of `text` that follows it is what it
prints.
"""

import pathlib
import re
import subprocess
import sys

BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}


def main(guide: pathlib.Path, folder: pathlib.Path) -> int:
    blocks = BLOCK.findall(guide.read_text())
    count = 0
    for (kind, code), (next_kind, expected) in zip(blocks, [*blocks[1:], ("", "")]):
        if kind == "text":
            continue
        done = subprocess.run(
            [*COMMANDS[kind], code], cwd=folder, text=True, capture_output=True, timeout=60
        )
        if done.returncode or (next_kind == "text" and done.stdout != expected):
            print(f"{code}\nexited with {done.returncode} and printed\n{done.stdout}{done.stderr}")
            return 1
        count += 1
    print(f"{guide.name}: {count} examples")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
