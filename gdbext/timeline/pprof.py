"""A recording as a profile of pprof: what `go tool pprof`, Pyroscope and Polar Signals read.

Source: github.com/google/pprof, proto/profile.proto (the numbers of fields); protobuf's wire format of varints and byte strings.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator

from . import flame
from .recording import Frame, Recording


def _varint(number: int) -> bytes:
    out = bytearray()
    number &= (1 << 64) - 1
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _message(fields: Iterable[tuple[int, Any]]) -> bytes:
    """(number of the field, an int, bytes, or a list of ints) each; what is 0 or empty is left out."""
    out = []
    for number, value in fields:
        if isinstance(value, list):
            value = b"".join(map(_varint, value))
        if isinstance(value, int):
            out.append(_varint(number << 3) + _varint(value) if value else b"")
        else:
            out.append(_varint(number << 3 | 2) + _varint(len(value)) + value)
    return b"".join(out)


class _Numbers(dict):  # type: ignore[type-arg]
    """Numbers from 0 on, given to keys as they are met."""

    def __missing__(self, key: Any) -> int:
        self[key] = len(self)
        return len(self) - 1


def profile(rec: Recording, what: flame.Counted) -> bytes:
    """The message `Profile`: for each stack of each thread its nanoseconds; labels `process`, `pid`, `thread`, `tid`."""
    texts, functions, places = _Numbers({"": 0}), _Numbers(), _Numbers()

    def place(frame: Frame) -> int:
        function = functions[(texts[frame.function], texts[frame.file])] + 1
        return int(places[(function, 0 if frame.native else frame.line)]) + 1

    def samples() -> Iterator[tuple[int, bytes]]:
        for process, thread, spent in flame.times(rec, what):
            named = (("process", process.label), ("thread", thread.name))
            labels = [(3, _message([(1, texts[key]), (2, texts[value])])) for key, value in named if value]
            labels += [(3, _message([(1, texts[key]), (3, n)])) for key, n in (("pid", process.pid), ("tid", thread.tid))]
            for node, seconds in spent.items():
                if seconds:
                    stack = [place(frame) for frame in reversed(list(rec.tree.stack(node)))]
                    yield 2, _message([(1, stack), (2, [round(1e9 * seconds)]), *labels])

    kind = _message([(1, texts["cpu" if what.cpu else "wall"]), (2, texts["nanoseconds"])])
    found = [(1, kind), *samples()]
    found += [(4, _message([(1, n + 1), (4, _message([(1, function), (2, line)]))])) for (function, line), n in places.items()]
    found += [(5, _message([(1, n + 1), (2, name), (3, name), (4, file)])) for (name, file), n in functions.items()]
    found += [(6, text.encode("utf-8", "backslashreplace")) for text in texts]
    about = [(9, int(1e9 * rec.began)), (10, int(1e9 * rec.seconds)), (11, kind), (12, round(1e9 / rec.rate) if rec.rate else 0)]
    return _message([*found, *about])
