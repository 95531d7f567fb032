"""Names of choices, for type checkers alone."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Callable, Literal, SupportsIndex, Tuple, Union

    _Durability = Literal["buffered", "synced"]
    _Compression = Literal["none", "lz4", "zstd"]
    _History = Union[bool, Literal["all"], timedelta, SupportsIndex]
    _Version = Union[SupportsIndex, str]
    _IndexKind = Literal["fdtree", "lsm"]
    _Operator = Union[
        Literal["add", "append", "max", "min"], Tuple[str, Callable[[bytes, bytes, bytes], bytes]]
    ]
