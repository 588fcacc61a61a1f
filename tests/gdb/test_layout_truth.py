"""Each interpreter here says what is true of its own objects; the tables of gdbext/layouts/cpython must lead to the same."""

import json
import os
import struct

import pytest
from harness.subjects import PYTHONS, running

FORMATS = {"u64": "<Q", "tagged": "<Q", "i64": "<q", "i32": "<i", "u8": "<B", "f64": "<d"}


def table(root, version, arch):
    with open(os.path.join(root, "gdbext", "layouts", "cpython", f"{version[0]}.{version[1]}.json")) as f:
        found = json.load(f)
    found["offsets"].update(found.get(arch, {}))
    return found


@pytest.fixture(scope="module", params=PYTHONS, ids=os.path.basename)
def subject(request, root):
    with running(request.param, "py_layout.py") as (target, truth):
        yield target, truth, table(root, truth["version"], target.arch)


def look(target, offsets, address, path, kind, expected):
    for word in path.split():
        if word == "*":
            address = target.u64(address)
        else:
            address += int(word) if word.isdigit() else offsets[word]
    if kind == "text":
        return target.cstring(address).decode()
    if kind == "bytes":
        return target.read(address, len(expected) // 2).hex()
    value = struct.unpack(FORMATS[kind], target.read(address, struct.calcsize(FORMATS[kind])))[0]
    return value & ~3 if kind == "tagged" else value


def test_every_fact_is_found_where_the_table_says(subject):
    target, truth, layout = subject
    offsets, checked, wrong = layout["offsets"], set(), []
    for address, path, kind, expected in truth["facts"]:
        keys = [w for w in path.split() if "." in w]
        if any(k not in offsets for k in keys):
            continue  # not in this release; test_layouts_tables.py says which a release must have
        found = look(target, offsets, address, path, kind, expected)
        if found != expected:
            wrong.append(f"{path}: {found!r}, should be {expected!r}")
        checked.update(keys)
    assert not wrong
    assert len(checked) > 110


def test_sizes_are_those_of_the_types(subject):
    _, truth, layout = subject
    offsets = layout["offsets"]
    wrong = {k: (offsets[k], v) for k, v in truth["sizes"].items() if k in offsets and offsets[k] != v}
    assert not wrong
    assert len(truth["sizes"]) > 25


def test_debug_offsets_in_the_process_say_the_same(subject):
    target, truth, layout = subject
    if tuple(truth["version"]) < (3, 13):
        assert "debug_offsets" not in layout
        return
    runtime = next(a for a, path, *_ in truth["facts"] if path == "runtime.interpreters.head")
    assert target.read(runtime, 8) == b"xdebugpy"
    wrong, patch = {}, truth["version"] != layout["version"]  # a patch release may let a structure grow at its end
    for theirs, ours in layout["debug_names"].items():
        value = target.u64(runtime + layout["debug_offsets"][theirs])
        if value != layout["offsets"][ours] and not (patch and ours in ("interp.__size", "runtime.__size")):
            wrong[theirs] = (value, ours, layout["offsets"][ours])
    assert not wrong
    assert len(layout["debug_names"]) > 65
