"""Records of a step: the output of each module of a model, in a file of JSON lines, with the values in a .safetensors file.

The first line is the head. Each other line is one tensor that a module returned, in the order in which the modules returned.
`hash` is the SHA-256 of the elements' bytes in row-major order, as of `tensor.contiguous()`. Needs numpy.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from typing import IO, Any, Iterator, Sequence

from ..access.files import JSON_SIZE, Budget, contents, json_of
from ..errors import GdbextError
from ..render import jsonline
from ..render.files import may_write, writing
from . import arrays, dtypes, files, stats
from .dtypes import DType
from .tensor import Tensor

SCHEMA = "llm-layers-record/1"
WHOLE = 64 << 20  # bytes of a tensor that is read once, for the hash and the statistics together
MAX_FILE = 1 << 28  # bytes of a record that is read
HEAD = {"schema": str, "label": str, "pid": int, "root": str, "step": int, "values": (str, None)}
ROW = {
    "path": str,
    "call": int,
    "type": str,
    "output": str,
    "shape": ([int], None),
    "dtype": (str, None),
    "nan": (int, None),
    "inf": (int, None),
    "hash": (str, None),
    "shard": ({"dim": int, "parts": [int], "copies": int}, None),
}
NOTHING = dict.fromkeys(("shape", "dtype", "nan", "inf", "min", "max", "mean", "hash"))


class Record:
    """A record that was read: `path` of its file, `head`, `rows`."""

    def __init__(self, path: str, head: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        self.path, self.head, self.rows = path, head, rows

    @property
    def label(self) -> str:
        return self.head["label"] or str(self.head["pid"])

    def values(self, row: dict[str, Any]) -> arrays.Source | None:
        """The `Source` of a row's values, None where they were not saved."""
        name = row.get("saved")
        if not name or not self.head["values"]:
            return None
        return files.read(os.path.join(os.path.dirname(self.path), os.path.basename(self.head["values"])), name)


def _whole(source: arrays.Source) -> arrays.Source:
    """The same elements, read once, where they are few enough to be kept."""
    import numpy

    if source.numel * source.dtype.itemsize > WHOLE:
        return source
    kept = numpy.empty(source.shape, arrays.stored_dtype(source.dtype))
    for box in source.boxes():
        kept[box] = source.read(box)
    return arrays.Source(source.shape, source.dtype, source.name, lambda box: kept[box])


def _rows(source: arrays.Source) -> Iterator[bytes]:
    """The stored bytes in row-major order, in pieces."""
    plain = arrays.Source(source.shape, source.dtype, source.name, source.read)  # boxes in row-major order
    return (plain.read(box).tobytes() for box in plain.boxes())


def measure(tensor: Tensor, out: IO[bytes] | None = None) -> dict[str, Any]:
    """{shape, dtype, nan, inf, min, max, mean, hash} of a tensor in memory; with `out` its bytes are written there too.

    An unreadable tensor has None for all but shape and dtype, and `why`.
    """
    found: dict[str, Any] = {**NOTHING, "shape": list(tensor.shape or ()), "dtype": tensor.dtype.name}
    if tensor.layout.startswith("sparse_"):
        return {**found, "why": f"a {tensor.layout} tensor has several parts"}
    if tensor.unfinished:
        return {**found, "why": f"its values are in the memory of {tensor.device}: {tensor.unfinished}"}
    try:
        source = _whole(files.stored_source(tensor))
        total = hashlib.sha256()
        for piece in _rows(source):
            total.update(piece)
            if out is not None:
                out.write(piece)
        found["dtype"] = source.dtype.name
        if source.dtype.kind != "raw":
            numbers = stats.statistics(source)[0]
            found.update({name: numbers[name] for name in ("nan", "inf", "min", "max", "mean")})
        found["hash"] = total.hexdigest()
    except GdbextError as e:
        found["why"] = str(e)
    return found


class Values:
    """The values of a record, in a file without a name until all are there; then they become a .safetensors."""

    def __init__(self, path: str, force: bool) -> None:
        may_write(path, "-o", force)
        self.path, self.force = path, force
        self.entries: list[tuple[str, DType, Sequence[int]]] = []
        self.left_out: list[str] = []
        try:
            self.spool = tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(path)))
        except OSError as e:
            raise GdbextError(f"-o {path}: {e.strerror}") from None

    def measure(self, name: str, tensor: Tensor) -> dict[str, Any]:
        """As `measure`; `saved`: the tensor's name in the file, None where the format has no such dtype."""
        start = self.spool.tell()
        found = measure(tensor, self.spool)
        dtype = dtypes.DTYPES.get(found["dtype"])
        if found["hash"] is None or dtype is None or not files.has_safetensors(dtype):
            self.spool.seek(start)
            self.spool.truncate()
            self.left_out.append(name)
            return found
        self.entries.append((name, dtype, found["shape"]))
        return {**found, "saved": name}

    def write(self) -> int:
        """Writes the file; -> its bytes."""
        with writing(self.path, "-o", self.force) as f:
            f.write(files.safetensors_header(self.entries))
            self.spool.seek(0)
            shutil.copyfileobj(self.spool, f, 1 << 20)
            return f.seek(0, os.SEEK_END)

    def close(self) -> None:
        self.spool.close()


def write(path: str, head: dict[str, Any], rows: Sequence[dict[str, Any]], force: bool = False) -> None:
    """Writes a record."""
    with writing(path, "-o", force) as f:
        for line in ({"schema": SCHEMA, **head}, *rows):
            f.write(jsonline.dumps(line).encode() + b"\n")


def read(path: str) -> Record:
    """The record in a file; `GdbextError` where it has none."""
    path = os.path.expanduser(path)
    text = contents(path, MAX_FILE)
    try:
        budget = Budget(path, JSON_SIZE)
        lines = [json_of(line, path, budget) for line in text.splitlines() if line.strip()]
        jsonline.expect(lines[:1], [HEAD], path)
        if lines[0]["schema"] != SCHEMA:
            raise ValueError(f"its schema is {lines[0]['schema'][:40]!r}")
        jsonline.expect(lines[1:], [ROW], path)
    except (ValueError, IndexError) as e:
        raise GdbextError(f"{path} is no record of llm-layers, or it is damaged: {str(e)[:200]}") from None
    return Record(path, lines[0], lines[1:])
