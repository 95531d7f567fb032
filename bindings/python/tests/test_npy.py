"""Headers of .npy files, against numpy: what it reads is read as it reads it, what it refuses is
refused."""

from __future__ import annotations

import importlib
import io
import itertools
import re
import warnings

import esker
import numpy as np

try:
    FORMAT = importlib.import_module("numpy.lib._format_impl")
except ImportError:
    FORMAT = np.lib.format

ITEMS = bytes(range(256)) * 4

DESCRS = ["<f8", ">i4", "|u1", "f4", "=i2", "<U3", "|S5", "|V12", "<M8[ns]", ">m8[25s]", "?", "d"]

#: Pieces of text that change what a literal says, or whether it is one.
PIECES = [
    "'", '"', "(", ")", ",", ":", "{", "}", "[", "]", " ", "\n", "\t", "\x0c", "#", "\\", "L", "0",
    "1", "_", "-", "+", ".", "x", "u", "b", "r", "e", "j", "3L", "0x3", "1_0", "True", "False",
    "None", "'shape': (3,), ", "'descr': '<f4', ", "'fortran_order': True, ", "'more': 1, ", "(2,)",
    "'<f8'", "# c\n", "\\\n", "'' ", "\\x3c", "\\074", "\xe9", "\0", "2,", "<", ">",
    "|", "[s]", "()",
]


def text_of(rng):
    """A header, as numpy and others write it."""
    descr = DESCRS[int(rng.integers(len(DESCRS)))]
    shape = [(), (3,), (2, 3), (0, 2), (1, 2, 2)][int(rng.integers(5))]
    entries = [
        f"'descr': '{descr}'",
        f"'fortran_order': {bool(rng.integers(2))}",
        f"'shape': {shape}",
    ]
    text = ", ".join(entries[index] for index in rng.permutation(3))
    text = "{" + text + (", }" if rng.random() < 0.5 else "}")
    if rng.random() < 0.2:
        text = text.replace("'", '"')
    return text + " " * int(rng.integers(0, 9)) + ("\n" if rng.random() < 0.8 else "")


def mutated(rng, text):
    for _ in range(int(rng.integers(0, 4))):
        at = int(rng.integers(len(text) + 1))
        kind = int(rng.integers(4))
        piece = PIECES[int(rng.integers(len(PIECES)))]
        if kind == 0:
            text = text[:at] + piece + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + int(rng.integers(1, 4)) :]
        elif kind == 2:
            text = text[:at] + piece + text[at + len(piece) :]
        else:
            # Between tokens, where most that is added is harmless.
            places = [found.end() for found in re.finditer(r"[{(,:]", text)] or [0]
            at = places[int(rng.integers(len(places)))]
            text = text[:at] + piece + text[at:]
    return text


def file_of(rng, text):
    """Magic, version, length and text."""
    version = [(1, 0), (2, 0), (3, 0), (1, 1), (4, 0), (0, 0)][
        int(rng.choice(6, p=[0.5, 0.2, 0.27, 0.01, 0.01, 0.01]))
    ]
    raw = text.encode("utf-8" if version[0] == 3 else "latin1", "replace")
    length = len(raw) + (int(rng.integers(-3, 4)) if rng.random() < 0.05 else 0)
    size = 2 if version[0] == 1 else 4
    return b"\x93NUMPY" + bytes(version) + max(length, 0).to_bytes(size, "little") + raw + ITEMS


def as_numpy(file):
    """Type, order and shape as numpy reads them, or None."""
    stream = io.BytesIO(file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            version = np.lib.format.read_magic(stream)
            read = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }.get(version)
            if read is None:
                if version != (3, 0):
                    return None
                # The third has no function of its own.
                shape, order, dtype = FORMAT._read_array_header(stream, version)
            else:
                shape, order, dtype = read(stream)
    except Exception:
        return None
    # The header of such a shape is read, and then no array is.
    return None if any(isinstance(size, bool) for size in shape) else (dtype, order, shape)


#: Types that esker knows by their codes. Names, and numbers with blanks or signs before them, it
#: leaves to numpy.
KNOWN = re.compile(
    r"[<>|=]?([?bBhHiIlLqQpPefdgFDG]|[biufcSaUV][0-9]+|[mM]8(\[[0-9]*[a-zA-Z]+\])?)"
)


def check(path, file):
    """Whether esker says of a file what numpy says; whether that is an array."""
    path.write_bytes(file)
    expected = as_numpy(file)
    count = 0 if expected is None else len(expected[2])
    names = " ".join(f"a{index}" for index in range(count))
    try:
        found = esker.plan(path, f"{names} -> {names}", path.with_name("o.npy"), force=True)
    except esker.Error as error:
        assert "\n" not in str(error)
        found = None
    if found is not None:
        assert expected is not None, f"numpy refuses {file[:-1024]!r}"
        assert (found.dtype, found.shape) == (expected[0], expected[2]), file[:-1024]
        # What is done follows from the plan.
        if sum(file) % 8:
            return True
        array = esker.rearrange(path, f"{names} -> {names}", path.with_name("o.npy"), force=True)
        assert array.tobytes() == np.load(io.BytesIO(file), allow_pickle=False).tobytes()
        return True
    if expected is None:
        return False
    # What numpy reads and esker does not: records, objects, items of no bytes, and too few items.
    dtype, _, shape = expected
    written = re.search(rb"descr['\"] *: *['\"]([^'\"]*)['\"]", file)
    plain = dtype.fields is None and dtype.subdtype is None and not dtype.hasobject
    known = written is not None and KNOWN.fullmatch(written[1].decode("latin1"))
    fits = all(size >= 0 for size in shape) and dtype.itemsize > 0
    needed = int(np.prod([int(size) for size in shape], dtype=object)) * dtype.itemsize
    # No text follows the items' beginning but the items.
    begin = len(file) - len(ITEMS)
    assert not (plain and known and fits and 0 <= needed <= len(ITEMS) - 64), (
        f"numpy reads {file[:begin]!r} as {expected}"
    )
    return False


def test_headers_are_read_as_numpy_reads_them(tmp_path, budget):
    rng = np.random.default_rng(5)
    read = refused = 0
    for _ in range(3000 * budget):
        is_read = check(tmp_path / "a.npy", file_of(rng, mutated(rng, text_of(rng))))
        read += is_read
        refused += not is_read
    assert read >= 600 * budget and refused >= 600 * budget, (read, refused)


def test_headers_that_were_read_wrongly(tmp_path):
    """Each of them by itself, whatever the random ones come to."""
    head = "{'descr': '<i2', 'fortran_order': False, "
    texts = [
        head + "'shape': (3,), 'shape': (2, 2)}",
        head + "'shape': (3)}",
        head + "'shape': (3,,)}",
        head + "'shape': (0x3,)}",
        head + "'shape': (1_0,)}",
        head + "'shape': (True, 2)}",
        head + "'shape': (2,), 'more': 1}",
        head + "'shape': (2,)} and more",
        head + "# 'shape': (9,)\n 'shape': (2,)}",
        head.replace("False", "Falsely") + "'shape': (2,)}",
        head.replace("'<i2'", "'<' 'i2'") + "'shape': (2,)}",
        head.replace("<i2", "\\x3ci2") + "'shape': (2,)}",
        head.replace("<i2", "<f12") + "'shape': (2,)}",
        head.replace("<i2", "<f8[s]") + "'shape': (2,)}",
        head.replace("<i2", "bfloat16") + "'shape': (2,)}",
    ]
    for text, major in itertools.product(texts, (1, 2, 3)):
        raw = text.encode()
        length = len(raw).to_bytes(2 if major == 1 else 4, "little")
        check(tmp_path / "a.npy", b"\x93NUMPY" + bytes([major, 0]) + length + raw + ITEMS)
