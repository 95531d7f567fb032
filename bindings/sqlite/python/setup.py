"""Builds the extension with cargo, and a wheel that every Python 3 of the platform can use.

The wheel holds a library that SQLite loads, and nothing that is linked with Python. ESKER_LIBRARY
names one that was built before (for an older C library, say); ESKER_PROFILE the profile of cargo,
`release` otherwise; ESKER_PLATFORM the platform that the wheel is for, such as
`manylinux_2_28_x86_64`.
"""

import os
import pathlib
import re
import shutil
import subprocess

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LIBRARY = "libesker_sqlite.so"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
# What setuptools writes on its way goes there, and not into the sources.
SCRATCH = TARGET / "esker-sqlite-python"


def version() -> str:
    manifest = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "([^"]+)"$', manifest, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{ROOT / 'Cargo.toml'} has no version")
    return found[1]


def built() -> pathlib.Path:
    given = os.environ.get("ESKER_LIBRARY")
    if given:
        return pathlib.Path(given)
    profile = os.environ.get("ESKER_PROFILE", "release")
    command = ["cargo", "build", "--locked", "--package", "esker-sqlite", "--profile", profile]
    subprocess.run(command, cwd=ROOT, check=True)
    return TARGET / ("debug" if profile == "dev" else profile) / LIBRARY


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        folder = pathlib.Path(self.build_lib) / "esker_sqlite"
        self.mkpath(str(folder))
        shutil.copyfile(built(), folder / LIBRARY)


class Wheel(bdist_wheel):
    def get_tag(self) -> "tuple[str, str, str]":
        return "py3", "none", os.environ.get("ESKER_PLATFORM") or super().get_tag()[2]


class Binary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


SCRATCH.mkdir(parents=True, exist_ok=True)
setup(
    version=version(),
    cmdclass={"build_py": BuildPy, "bdist_wheel": Wheel},
    distclass=Binary,
    options={
        "build": {"build_base": str(SCRATCH)},
        "egg_info": {"egg_base": str(SCRATCH)},
    },
)
