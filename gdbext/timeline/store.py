"""A recording in a file: whole as `.record` (a line of JSON in gzip), or in the format that the file's ending names."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import math
import os
from array import array
from typing import Any, Callable, Iterable, Iterator, Sequence

from ..access.files import DAMAGE, JSON_SIZE, Budget, contents, json_of, open_regular, take_json
from ..errors import GdbextError
from ..render import files
from . import flame, formats, page, pprof
from .recording import STATES, Changes, ProcessTrack, Recording, ThreadTrack
from .stalls import Stall
from .torch_trace import Trace

VERSION = 1
PIECE_READ = 1 << 20  # bytes of a recording that are unpacked at a time
PART = 50_000  # numbers that are written at once
MAX_FOLDED = 256 << 20
ENDINGS = (".record", ".speedscope.json", ".json", ".json.gz", ".collapsed", ".folded", ".txt", ".html", ".pb.gz")
FORMATS = {  # by the names that py-spy and pprof have for them
    "flamegraph": ".html",
    "raw": ".collapsed",
    "speedscope": ".speedscope.json",
    "chrometrace": ".json",
    "pprof": ".pb.gz",
    "record": ".record",
}


def check_ending(path: str, form: str = "") -> None:
    """Raises `GdbextError` where neither `form` nor a file's name shows its format, or the name shows a picture."""
    if path.endswith(".svg") or not form and not path.endswith(ENDINGS):
        raise GdbextError(
            f"-o {path}: the name ends in .json or .json.gz (Chrome's trace, for Perfetto), .speedscope.json, .collapsed, "
            ".html (a page with a flame graph), .pb.gz (pprof), or .record (the recording itself, for -read)"
        )


def write(
    path: str,
    rec: Recording,
    stalls: Sequence[Stall] = (),
    *,
    what: flame.Counted = flame.AT_WORK,
    form: str = "",
    force: bool = False,
    beside: Sequence[Trace] = (),
) -> None:
    """Writes a recording in the format `form` of `FORMATS`, '' for the one that the file's ending names. `what.idle` only matters
    for a page, `beside` (torch traces) only for Chrome's format."""
    path = os.path.expanduser(path)
    check_ending(path, form)
    name = FORMATS.get(form, path)
    if name.endswith(".html"):
        _text(path, force, [page.page(rec, stalls, what)])
    elif name.endswith(".speedscope.json"):
        _text(path, force, [json.dumps(formats.speedscope(rec, what.cpu), separators=(",", ":"))])
    elif name.endswith((".json", ".json.gz")):
        pieces = formats.chrome_text(rec, stalls, beside)
        if path.endswith(".gz"):
            _packed(path, force, lambda f: f.writelines(piece.encode("utf-8", "backslashreplace") for piece in pieces))
        else:
            _text(path, force, pieces)
    elif name.endswith(".record"):
        _packed(path, force, lambda f: f.writelines(piece.encode("utf-8", "surrogatepass") for piece in _pieces(rec)))
    elif name.endswith(".pb.gz"):
        _packed(path, force, lambda f: f.write(pprof.profile(rec, what._replace(idle=True))))
    else:
        _text(path, force, [flame.folded(flame.stacks(rec, what._replace(idle=True)))])


def write_difference(path: str, own: dict[tuple[str, ...], float], before: dict[tuple[str, ...], float], force: bool) -> None:
    """Writes the difference between two recordings: a page (.html), or collapsed stacks with two counts."""
    path = os.path.expanduser(path)
    if path.endswith(".html"):
        _text(path, force, [page.difference(own, before)])
    elif path.endswith((".collapsed", ".folded", ".txt")):
        _text(path, force, [flame.folded_difference(own, before)])
    else:
        raise GdbextError(f"-o {path}: with -diff the name ends in .html or .collapsed")


def stacks_of(path: str, cpu: bool) -> dict[tuple[str, ...], float]:
    """The stacks of a recording (.record), or of a file of collapsed stacks."""
    if path.endswith((".collapsed", ".folded", ".txt")):
        text = contents(os.path.expanduser(path), MAX_FOLDED)
        Budget(path, JSON_SIZE).take(2 * len(text) + 64 * text.count(b";") + 256 * text.count(b"\n"))
        return flame.parse_folded(text.decode("utf-8", "replace"))
    return flame.stacks(read(path), flame.Counted(cpu))


def _text(path: str, force: bool, pieces: Iterable[str]) -> None:
    with files.writing(path, "-o", force) as f:
        for piece in pieces:
            f.write(piece.encode("utf-8", "backslashreplace"))


def _packed(path: str, force: bool, fill: Callable[[gzip.GzipFile], object]) -> None:
    with files.writing(path, "-o", force) as f, gzip.GzipFile("", "wb", 6, f, 0) as packed:
        fill(packed)


def _pieces(rec: Recording) -> Iterator[str]:
    """The recording as one JSON object, in pieces. A long recording has millions of numbers; only few are Python objects at a
    time."""
    tree = rec.tree
    about = {"rate": rec.rate, "began": rec.began, "seconds": rec.seconds, "cost": rec.cost, "notes": rec.notes}
    about.update({"failing": True} if rec.failing else {})
    yield json.dumps({"gdbext-record": VERSION, **about})[:-1]
    yield from _list("frames", tree.frames, json.dumps)
    yield from _list("parents", tree.parents, str)
    yield from _list("numbers", tree.numbers, str)
    yield ',"processes":['
    for number, process in enumerate(rec.processes):
        yield ("," if number else "") + json.dumps({key: getattr(process, key) for key in _PROCESS})[:-1]
        for key, changes in (("gil", process.gil), ("gc", process.gc)):
            yield from _list(key, changes, lambda pair: f"[{pair[0]},{pair[1]}]")
        yield from _list("begins", process.begins, _time)
        yield from _list("ends", process.ends, _time)
        yield from _list("pauses", process.pauses, _time)
        yield ',"threads":['
        for place, thread in enumerate(process.threads):
            yield ("," if place else "") + json.dumps({key: getattr(thread, key) for key in _THREAD})[:-1]
            for key in _ARRAYS:
                yield from _list(key, getattr(thread, key), str)
            yield "}"
        yield "]}"
    yield "]}"


def _list(name: str, values: Iterable[Any], text: Callable[[Any], str]) -> Iterator[str]:
    yield f',"{name}":['
    left, between = iter(values), ""
    part = list(itertools.islice(left, PART))
    while part:
        yield between + ",".join(map(text, part))
        between, part = ",", list(itertools.islice(left, PART))
    yield "]"


def _time(seconds: float) -> str:
    return repr(round(seconds, 6))


def text_of(rec: Recording) -> str:
    """A recording as text, as one machine sends it to another."""
    return "".join(_pieces(rec))


def of_text(text: str) -> Recording:
    """A recording that another machine sent; `GdbextError` where it is damaged or of another release."""
    try:
        plain = json_of(text.encode("utf-8", "surrogatepass"), "its recording")
        if plain["gdbext-record"] != VERSION:
            raise GdbextError("its recording is of another release of gdbext")
        return _recording(plain)
    except DAMAGE as e:
        raise GdbextError(f"its recording is damaged: {type(e).__name__}") from None


_PROCESS = ("label", "pid", "kept", "counters", "samples", "dropped", "torn", "splits", "unstopped", "cpu", "finish")
_LATER = ("splits", "unstopped")  # which recordings of before do not have
_THREAD = ("tid", "name", "ended", "cpu")
_ARRAYS = {"looks": "I", "nodes": "I", "states": "B"}


def read(path: str) -> Recording:
    """A recording that `write` wrote as `.record`; `GdbextError` where the file holds none."""
    try:
        with open_regular(os.path.expanduser(path)) as f, gzip.GzipFile(fileobj=io.BufferedReader(f)) as packed:  # type: ignore[type-var]
            budget, pieces = Budget(path, JSON_SIZE), []
            for piece in iter(lambda: packed.read(PIECE_READ), b""):
                take_json(budget, piece)  # before the next is unpacked: 98 kB may hold 64 MiB of objects
                pieces.append(piece)
        plain = json_of(b"".join(pieces), path, taken=True)
        if plain["gdbext-record"] != VERSION:
            raise GdbextError(f"{path}: written by another version of this pack")
        return _recording(plain)
    except OSError as e:
        raise GdbextError(f"{path}: {e.strerror or 'no recording of llm-record (its name ends in .record)'}") from None
    except DAMAGE as e:
        raise GdbextError(f"{path}: no recording of llm-record: {type(e).__name__}") from None


def _recording(plain: dict[str, Any]) -> Recording:
    rec = Recording(float(plain["rate"]), float(plain["began"]))
    rec.seconds, rec.cost, rec.notes = float(plain["seconds"]), float(plain["cost"]), [str(n) for n in plain["notes"]]
    rec.failing = bool(plain.get("failing"))
    if any(not 0 <= number < 1e12 for number in (rec.rate, rec.began, rec.seconds, rec.cost)):
        raise ValueError("times that are none")
    for function, file, line in plain["frames"]:
        rec.tree.frame(str(function), str(file), int(line))
    count, parents, numbers = len(rec.tree.frames), array("I", plain["parents"]), array("I", plain["numbers"])
    if len(parents) != len(numbers) or any(p >= i or n >= count for i, (p, n) in enumerate(zip(parents, numbers)) if i):
        raise ValueError("a tree that is none")
    rec.tree.parents, rec.tree.numbers = parents, numbers
    rec.processes = [_process(p, len(parents)) for p in plain["processes"]]
    return rec


def _process(plain: dict[str, Any], nodes: int) -> ProcessTrack:
    found = ProcessTrack(str(plain["label"]), int(plain["pid"]))
    for key in ("samples", "dropped", "torn", "splits", "unstopped"):
        setattr(found, key, int(plain.get(key, 0) if key in _LATER else plain[key]))
    found.cpu, found.finish = float(plain["cpu"]), float(plain["finish"])
    found.begins, found.ends = array("d", plain["begins"]), array("d", plain["ends"])
    times = [0.0, *found.begins, found.finish]
    if len(found.begins) != len(found.ends) or any(not a <= b < 1e9 for a, b in zip(times, times[1:])):
        raise ValueError("times that are none")
    looks, found.pauses = len(found.begins), array("d", plain.get("pauses", ()))
    if found.pauses and (len(found.pauses) != looks or any(not 0 <= pause < 1e9 for pause in found.pauses)):
        raise ValueError("pauses that are none")
    found.counters = {str(name): [(float(t), float(v)) for t, v in values] for name, values in plain["counters"].items()}
    found.threads = [_thread(one, looks, nodes) for one in plain["threads"]]
    if any(not 0 <= at < 1e9 or not math.isfinite(value) for values in found.counters.values() for at, value in values):
        raise ValueError("a counter that is none")
    found.gil = Changes((int(look), int(index)) for look, index in plain["gil"])
    found.gc = Changes((int(look), int(on)) for look, on in plain["gc"])
    found.kept = [(int(first), int(after), int(index)) for first, after, index in plain["kept"]]
    for changes in (found.gil, found.gc):
        _check_looks(changes.looks, looks)
    if any(not 0 <= first < after <= looks or not 0 <= index < len(found.threads) for first, after, index in found.kept):
        raise ValueError("a holder that is none")
    if any(not -1 <= index < len(found.threads) for _, index in found.gil):
        raise ValueError("a holder that is none")
    return found


def _thread(plain: dict[str, Any], looks: int, nodes: int) -> ThreadTrack:
    found = ThreadTrack(int(plain["tid"]), str(plain["name"]))
    found.cpu, found.ended = float(plain["cpu"]), None if plain["ended"] is None else int(plain["ended"])
    found.looks, found.nodes, found.states = (array(code, plain[key]) for key, code in _ARRAYS.items())
    if not len(found.looks) == len(found.nodes) == len(found.states) or any(s >= len(STATES) for s in found.states):
        raise ValueError("a thread that is none")
    if found.ended is not None and found.ended > looks:
        raise ValueError("an end that is none")
    _check_looks(found.looks, looks + 1 if found.ended is None else found.ended)
    if any(n >= nodes and n != 0xFFFFFFFF for n in found.nodes):
        raise ValueError("a stack that is none")
    return found


def _check_looks(numbers: Sequence[int], end: int) -> None:
    if any(not 0 <= look <= end for look in numbers) or any(a > b for a, b in zip(numbers, numbers[1:])):
        raise ValueError("samples out of order")
