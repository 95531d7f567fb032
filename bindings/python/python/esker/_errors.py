"""What can go wrong."""


class Error(Exception):
    """Anything that esker refuses or fails at; its text says what to change."""


class PatternError(Error, ValueError):
    """The pattern cannot be read, or does not fit the shape and sizes."""


class ArgumentError(Error, ValueError):
    """Another argument cannot be used."""


class FileError(Error, OSError):
    """A file cannot be read, written or used as what it is; `errno` and `filename` are set where
    the system refused."""


for _class in (Error, PatternError, ArgumentError, FileError):
    _class.__module__ = "esker"
