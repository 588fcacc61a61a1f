"""Damaged files of every format that the pack opens, made by seeded changes of whole ones: `scripts/bench --fuzz N`, and a short
run in the tests.

Each file must be read or refused by a `GdbextError` of one line, within 5 seconds of CPU; the peak of memory is told. A failure
names the seed: `python -m tools.fuzz 1 --format core --seed SEED` makes that file again.
"""

import argparse
import gzip
import io
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, os.path.join(ROOT, "tests"), os.path.join(ROOT, "scripts")]

from harness import gpucores  # noqa: E402

from gdbext.access import cfi, core_writer, elf, model, ptrace  # noqa: E402
from gdbext.access.snapshot import CoreFileTarget  # noqa: E402
from gdbext.answers.heap import load_look  # noqa: E402
from gdbext.answers.tensor_list import difference, load_listing  # noqa: E402
from gdbext.commands.llm_layers import compare_records  # noqa: E402
from gdbext.commands.llm_stacks import ANSWER  # noqa: E402
from gdbext.cpython.runtime import open_runtime  # noqa: E402
from gdbext.errors import GdbextError  # noqa: E402
from gdbext.kernels import gpucore  # noqa: E402
from gdbext.render.text import Style  # noqa: E402
from gdbext.stacks import cluster  # noqa: E402
from gdbext.timeline import flame, formats, page  # noqa: E402
from gdbext.timeline import store as recordings  # noqa: E402
from gdbext.timeline.recording import Changes, ProcessTrack, Recording, ThreadTrack  # noqa: E402
from gdbext.timeline.stalls import find as find_stalls  # noqa: E402
from gdbext.timeline.steps import slowest  # noqa: E402
from gdbext.torch import files as tensor_files  # noqa: E402
from gdbext.torch import layer_records  # noqa: E402
from tools import fuzz_texts  # noqa: E402

CPU_SECONDS = 5
ODD = [
    0,
    1,
    2,
    7,
    0x7F,
    0x80,
    0xFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 32,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
]
ODD_JSON = [None, True, -1, 0, 1 << 70, 1.5, "", "x" * 5000, "\x1b[2J\n", [], {}, [[]], {"a": {}}, "llm-stacks/1", 1e308]


class TookTooLong(BaseException):
    """A file that was not done with in its time."""


# ---- whole files -----------------------------------------------------------------------------------------------------
def _registers(**values):
    names = ptrace.REGISTERS["x86-64"]
    return struct.pack(f"<{len(names)}Q", *[values.get(n, i) for i, n in enumerate(names)])


def _core(folder, note):
    path = os.path.join(folder, "seed.core")
    program = os.path.realpath(sys.executable)
    maps = [
        model.Mapping(0x10000, 0x14000, "rw-p"),
        model.Mapping(0x20000, 0x24000, "rw-p", path="[stack]"),
        model.Mapping(0x400000, 0x402000, "r-xp", 0, program),
    ]
    memory = {a: bytes(range(256)) * 16 for a in (0x10000, 0x12000, 0x21000)}
    with open(program, "rb") as f:
        memory[0x400000] = f.read(4096)
    threads = [(100, _registers(rsp=0x21010, rip=0x400100, rbp=0x21100)), (101, _registers(rsp=0x11000))]
    core_writer.write_core(path, "x86-64", 100, threads, maps, memory, auxv=bytes(64), program="python3 -m vllm", note=note)
    with open(path, "rb") as f:
        return f.read()


def _snapshot(folder):
    maps = "10000-14000 rw-p 00000000 00:00 0 \n20000-24000 rw-p 00000000 00:00 0 [stack]\n"
    threads = {"100": {"name": "main", "state": "S", "ns_tid": 7}, "101": {"name": "w", "state": "D", "ns_tid": 8}}
    root = {"pid": 1, "start": 5, "boot": "x"}
    return _core(
        folder, {"pid": 100, "label": "TP0", "maps": maps, "threads": threads, "root": root, "cwd": "/", "pauses": [0.1]}
    )


def _library(folder):
    path = os.path.join(folder, "seed.so")
    source = b"int inner(int n) { volatile int x = n; return x; } int outer(int n) { return inner(n) * 3; }"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, check=True)
    with open(path, "rb") as f:
        return f.read()


_functions = []  # addresses of functions of the file whose unwind tables are damaged
_tables = []  # where in that file the tables lie: (offset, size)


def _unwind(folder):
    """The library, of which only the tables of the unwinder and of symbols are damaged."""
    whole = _library(folder)
    found = elf.open_elf(os.path.join(folder, "seed.so"))
    for name, (_, offset, size, _, _) in found.sections.items():
        if name in (".eh_frame", ".eh_frame_hdr", ".symtab", ".strtab", ".dynsym", ".dynstr", ".dynamic"):
            _tables.append((offset, size))
    _functions.extend(value for _, value, _ in found.symbols_named([b"inner", b"outer", b"_init"]))
    return whole


def _gpucore(folder):
    path = os.path.join(folder, "seed.gpu")
    name = "_Z6kernelPfi"
    gpucores.write_core(
        path, gpucores.cubin({name: 384}), [gpucores.Grid(name, (2, 1, 1), (64, 1, 1), [((1, 0, 0), [(1, 7, 14)])])]
    )
    with open(path, "rb") as f:
        return f.read()


def _npy(folder):
    import numpy

    data = io.BytesIO()
    numpy.save(data, numpy.arange(60, dtype="f4").reshape(3, 4, 5))
    return data.getvalue()


def _safetensors(folder):
    entry = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "a": entry}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(24)


def _pt(folder):
    """As torch.save writes it: made by the pack's own writer, which its tests let torch read."""
    import numpy

    from gdbext.torch import arrays, dtypes

    values = numpy.arange(12, dtype="f4").reshape(3, 4)
    path = os.path.join(folder, "seed.pt")
    source = arrays.Source((3, 4), dtypes.DTYPES["float32"], "", lambda box: values[box], None)
    with open(path, "wb") as f:
        tensor_files._write_pt(f, source)
    with open(path, "rb") as f:
        return f.read()


def _merge(folder):
    frame = {"kind": "python", "function": "run", "file": "a.py", "line": 3}
    member = {"host": "h", "label": "TP0", "pid": 4, "role": "worker", "tid": 4, "name": "main"}
    answer = {
        "schema": "llm-stacks/1",
        "groups": [{"frames": [frame, {**frame, "kind": "native", "library": "libc.so.6"}], "members": [member], "idle": False}],
        "failed": [{"label": None, "pid": 5, "reason": "gone"}],
        "pauses": [{"pid": 4, "seconds": 0.01}],
        "ranks_total": 2,
        "partial": ["one"],
    }
    return json.dumps(answer).encode()


def _diff(folder):
    row = {
        "address": "0x7f0000001000",
        "shape": [2, 3],
        "dtype": "torch.float32",
        "device": "cpu",
        "bytes": 24,
        "storage": "0x1",
        "path": "x",
    }
    return json.dumps({"schema": "pytensors/1", "tensors": [row, {**row, "address": "0x2000"}], "total_bytes": 48}).encode()


def _record(folder):
    rec = Recording(10.0, 1.0)
    outer = rec.tree.child(0, rec.tree.frame("step", "/src/loop.py", 10))
    nodes = [outer, rec.tree.child(outer, rec.tree.frame("work", "/src/model.py", 20))]
    process = ProcessTrack("TP0", 100)
    for look in range(10):
        process.begins.append(look / 10)
        process.ends.append(look / 10)
    process.threads = [ThreadTrack(100, "MainThread"), ThreadTrack(101, "other")]
    for thread in process.threads:
        for look in range(0, 10, 2):
            thread.add(look, nodes[look % 4 // 2], look % 3)
    process.gil, process.gc = Changes([(0, 0), (6, -1)]), Changes([(0, 0), (3, 1), (4, 0)])
    process.kept = [(0, 6, 0)]
    process.counters, process.finish, rec.seconds, rec.processes = {"x": [(0.0, 1.0)]}, 1.0, 1.0, [process]
    path = os.path.join(folder, "whole.record")
    recordings.write(path, rec)
    with gzip.open(path) as f:
        return f.read()


def _heap(folder):
    look = {"process": "pid 4 of boot 7", "complete": True, "types": [["dict", 30, 7200], ["list", 5, 400]]}
    look["containers"] = [["0x7f0000001000", "list", 1000, 8056], ["0x7f0000002000", "dict", 3, 232]]
    return json.dumps({"schema": "pyheap-look/1", "look": look}).encode()


def _layers(folder):
    """A record of llm-layers, its lines as a list."""
    head = {"schema": layer_records.SCHEMA, "label": "TP0", "pid": 4, "root": "model", "step": 1, "values": None}
    row = {"path": "layers.0", "call": 0, "type": "Linear", "output": "", "shape": [2, 4], "dtype": "float32", "nan": 0, "inf": 0}
    row.update(min=-1.5, max=2.0, mean=0.25, hash="00" * 32, shard={"dim": -1, "parts": [4], "copies": 1})
    return json.dumps(
        [head, row, {**row, "path": "layers.1", "shard": None}, {**row, "path": "norm", "hash": "11" * 32}]
    ).encode()


# ---- readers ---------------------------------------------------------------------------------------------------------
def _read_core(path):
    target = CoreFileTarget(path)
    target.modules(), target.argv() if not target.note else None
    target.root(), target.cwd(), target.doubts()
    for thread in target.threads()[:4]:
        try:
            target.unwind(thread)
        except GdbextError:
            pass
    target.read_partial(0x10000, 8192)
    try:
        open_runtime(target)
    except GdbextError:
        pass  # it runs no CPython
    finally:
        elf.drop_cached(path)


def _read_library(path):
    try:
        found = elf.open_elf(path)
        found.symbol("outer"), found.symbols_named([b"inn"]), found.build_id, found.section_heads, found.mapped_files()
        table = cfi.table_of(found)
        for vaddr in range(0x1000, 0x1200, 24):
            found.function_at(vaddr), found.function_from(vaddr)
            if table is not None:
                try:
                    table.find(vaddr)
                except (struct.error, LookupError):
                    pass  # as the unwinder takes it
    finally:
        elf.drop_cached(path)


def _read_unwind(path):
    """As the unwinder asks: rules, extent and name of each function of the whole file, of the file's damaged tables."""
    try:
        found = elf.open_elf(path)
        table = cfi.table_of(found)
        for vaddr in _functions:
            found.function_at(vaddr)
            if table is not None:
                for where in (vaddr, vaddr + 5):
                    try:
                        table.find(where), table.extent(where)
                    except (struct.error, LookupError):
                        pass  # as the unwinder takes it
    finally:
        elf.drop_cached(path)


def _read_gpucore(path):
    found = gpucore.open_core(path)
    try:
        found.read(0x7F0000000000, 16)
    except GdbextError:
        pass  # it holds no such memory


def _read_tensor(path):
    source = tensor_files.read(path)
    for box in list(source.boxes())[:4]:
        source.read(box)


def _read_merge(path):
    cluster.from_folder(os.path.dirname(path), ANSWER.answer_shape)


def _read_diff(path):
    rows = load_listing(path)
    difference(rows, rows)


def _read_record(path):
    packed = path + ".record"
    with open(path, "rb") as f, gzip.open(packed, "wb", 1) as g:
        g.write(f.read())
    rec = recordings.read(packed)
    stalls = find_stalls(rec)
    "".join(formats.chrome_text(rec, stalls)), formats.speedscope(rec), page.page(rec, stalls), slowest(rec, 3)
    flame.folded(flame.stacks(rec.cut(0.2, 0.7)))


def _read_heap(path):
    kept = load_look(path)
    numbers = [n for row in (*kept.types.values(), *(one[1:] for one in kept.containers.values())) for n in row]
    assert all(0 <= n < 1 << 63 for n in (*numbers, *kept.containers)), "numbers that no array holds"


def _read_layers(path):
    """Against itself, and against another record beside it, as pieces of two ranks too."""
    with open(path, "rb") as f:
        data = f.read()
    try:
        data = b"\n".join(json.dumps(line).encode() for line in json.loads(data))
    except (ValueError, TypeError, RecursionError):
        pass  # damaged as bytes
    paths = [path + ".jsonl", path + ".whole"]
    for name, text in zip(paths, (data, b"\n".join(json.dumps(line).encode() for line in json.loads(_layers(""))))):
        with open(name, "wb") as f:
            f.write(text)
    for words in (paths, [paths[0], paths[0]], [",".join(paths), paths[1]]):
        answer = compare_records(words, None)
        answer.json("llm-layers"), answer.to_text(Style(False, 100))


FORMATS = {
    "core": (lambda folder: _core(folder, None), _read_core, "x.core"),
    "snapshot": (_snapshot, _read_core, "x.core"),
    "library": (_library, _read_library, "x.so"),
    "unwind": (_unwind, _read_unwind, "x.so"),
    "gpucore": (_gpucore, _read_gpucore, "x.gpu"),
    "npy": (_npy, _read_tensor, "x.npy"),
    "safetensors": (_safetensors, _read_tensor, "x.safetensors"),
    "pt": (_pt, _read_tensor, "x.pt"),
    "merge": (_merge, _read_merge, "x.json"),
    "diff": (_diff, _read_diff, "x.json"),
    "record": (_record, _read_record, "x.json"),
    "heap": (_heap, _read_heap, "x.json"),
    "layers": (_layers, _read_layers, "x.json"),
    **fuzz_texts.FORMATS,
}
TEXT = ("merge", "diff", "record", "heap", "layers", "facts")


# ---- damage ----------------------------------------------------------------------------------------------------------
def damaged(whole, chance, tables=()):
    """A copy of `whole` with one to six changes, in one of the `tables` where some are given."""
    data = bytearray(whole)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        at = chance.randrange(len(data)) if data else 0
        if tables:
            start, size = chance.choice(tables)
            at = start + chance.randrange(size)
        elif chance.random() < 0.6:
            at = min(at, chance.randrange(1, 2048))  # heads are where sizes and counts stand
        kind = chance.randrange(7)
        if kind == 0:
            data[at : at + 1] = bytes([chance.randrange(256)])
        elif kind in (1, 2):
            code, size = chance.choice((("<H", 2), ("<I", 4), ("<Q", 8)))
            at -= at % size
            data[at : at + size] = struct.pack(code, chance.choice([*ODD, len(data), at]) & (1 << 8 * size) - 1)
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            del data[at : at + chance.randrange(1, 64)]
        elif kind == 5:
            data[at:at] = data[at : at + chance.randrange(1, 512)]
        else:
            data[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 24)))
    return bytes(data)


def damaged_json(whole, chance):
    """A copy of a JSON text with one value replaced, removed or nested deep; sometimes damaged as bytes."""
    if chance.random() < 0.3:
        return damaged(whole, chance)
    data = json.loads(whole)
    places = []

    def walk(value):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            places.append((value, key))
            if isinstance(value[key], (dict, list)):
                walk(value[key])

    walk(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        holder, key = chance.choice(places)
        if isinstance(holder, dict) and chance.random() < 0.2:
            holder.pop(key, None)
        elif isinstance(holder, dict) or key < len(holder):
            holder[key] = chance.choice(ODD_JSON)
    text = json.dumps(data)
    return (text.replace("[", "[" * chance.choice((1, 1, 1, 50_000)), 1) if chance.random() < 0.1 else text).encode()


# ---- running ---------------------------------------------------------------------------------------------------------
def _stop(*_):
    raise TookTooLong


def fuzz(name, count, seed):
    """Reads `count` damaged files of a format; -> a row of the table."""
    make, read, file = FORMATS[name]
    row = {"format": name, "files": count, "read": 0, "refused": 0, "failures": [], "slowest_s": 0.0}
    signal.signal(signal.SIGPROF, _stop)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if os.path.isdir("/dev/shm") else None
    ) as seeds, tempfile.TemporaryDirectory() as folder:
        whole, path = make(seeds), os.path.join(folder, file)
        tables = _tables if name == "unwind" else ()
        for number in range(seed, seed + count):
            chance = random.Random(f"{name} {number}")
            with open(path, "wb") as f:
                f.write(damaged_json(whole, chance) if name in TEXT else damaged(whole, chance, tables))
            began = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            try:
                read(path)
                row["read"] += 1
            except GdbextError as e:
                row["refused"] += 1
                if "\n" in str(e):
                    row["failures"].append([number, f"two lines: {e}"])
            except TookTooLong:
                row["failures"].append([number, f"more than {CPU_SECONDS} s"])
            except Exception:  # every other exception is what is looked for
                row["failures"].append([number, traceback.format_exc().strip().splitlines()[-1]])
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            row["slowest_s"] = max(row["slowest_s"], round(time.process_time() - began, 3))
    row["grown_mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    return row


def main(words):
    parser = argparse.ArgumentParser(prog="tools.fuzz", description=__doc__)
    parser.add_argument("count", type=int, help="files of each format")
    parser.add_argument("--format", choices=FORMATS, action="append")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(words)
    failed = 0
    for name in args.format or FORMATS:
        row = fuzz(name, args.count, args.seed)
        failed += len(row["failures"])
        print(json.dumps({**row, "failures": row["failures"][:20]}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
