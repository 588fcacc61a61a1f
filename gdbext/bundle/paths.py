"""Which paths lead into a bundle or a box, known without opening it as an archive."""

from __future__ import annotations

from .. import log
from ..access import files
from ..errors import NotFoundError

MAGIC = b"PK\x03\x04"


def is_bundle(path: str) -> bool:
    """Whether a file begins as a zip archive does. One that cannot be opened is none."""
    with log.passing_over(NotFoundError), log.passing_over(OSError), files.open_regular(path) as f:
        return f.read(len(MAGIC)) == MAGIC
    return False


def split(path: str) -> tuple[str, str]:
    """(the file, the word after it): `./x.gdbext/TP0` is TP0 in ./x.gdbext; the word is '' for a path that leads through no
    file."""
    outer = files.archive_of(path)
    return (outer, path[len(outer) :].strip("/")) if outer else (path, "")
