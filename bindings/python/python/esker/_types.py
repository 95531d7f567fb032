"""Names of choices, for type checkers alone."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Callable, Literal, Tuple, Union

    _Durability = Literal["buffered", "synced"]
    _Compression = Literal["none", "lz4", "zstd"]
    _History = Union[bool, Literal["all"]]
    _IndexKind = Literal["fdtree", "lsm"]
    _Operator = Union[
        Literal["add", "append", "max", "min"], Tuple[str, Callable[[bytes, bytes, bytes], bytes]]
    ]
