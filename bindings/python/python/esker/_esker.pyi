from typing import Mapping, Sequence, TypedDict

class Options(TypedDict):
    memory: int
    sizes: Mapping[str, int]
    bare: tuple[Sequence[int], str, int | None, bool] | None
    chunks: Sequence[int] | None
    compressor: str | None
    zarr_format: int | None
    force: bool

def parse_bytes(text: str) -> int: ...

class Job:
    def __new__(
        cls,
        source: str,
        pattern: str,
        target: str,
        options: Options,
    ) -> Job: ...
    @property
    def shape(self) -> list[int] | None: ...
    @property
    def descr(self) -> str: ...
    @property
    def is_zarr(self) -> bool: ...
    @property
    def payload_bytes(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    def describe(self) -> list[str]: ...
    def passes(self) -> list[dict[str, int]]: ...
    def run(self) -> int: ...
