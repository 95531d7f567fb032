"""The examples of the guide's pages on the package, in order, in an empty folder.

Those of `sqlite.md` are run by `make test-clients`, with the clients that they need, and those of the
store that are not of Python by the tests of the command.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GUIDES = [ROOT / "docs" / "guide" / name for name in ("start.md", "python.md", "rearranging.md", "flash.md")]


def blocks(text):
    """Language, line and text of each code block."""
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield found[1], text[: found.start()].count("\n") + 1, found[2]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_the_examples_run(guide, tmp_path, monkeypatch):
    if guide.stem == "rearranging":
        command = os.environ.get("ESKER_COMMAND")
        if command is None:
            pytest.skip("ESKER_COMMAND names no esker command")
        pytest.importorskip("zarr", minversion="3", reason="version 3 of zarr-python")
        monkeypatch.setenv("PATH", f"{Path(command).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    names = {}
    count = 0
    for language, line, text in blocks(guide.read_text()):
        count += 1
        if language == "python":
            # Lines of errors are those of the page.
            exec(compile("\n" * line + text, str(guide), "exec"), names)
        elif guide.stem not in ("start", "flash"):
            assert language == "sh", f"{guide.name}:{line}: who runs {language}?"
            subprocess.run(["bash", "-euc", text], check=True)
    assert count >= 6, "the blocks of the page"
