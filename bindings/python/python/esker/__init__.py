"""Arrays larger than memory, rearranged from file to file.

`rearrange` transposes, reorders and tiles arrays of any size in bounded memory, with the patterns
of einops; `plan` says what it would do.
"""

from ._errors import ArgumentError, Error, FileError, PatternError
from ._rearrange import Pass, Plan, plan, rearrange

__all__ = [
    "ArgumentError",
    "Error",
    "FileError",
    "Pass",
    "PatternError",
    "Plan",
    "plan",
    "rearrange",
]
