"""A recording as pprof has it: read back by a reader of the wire format that knows nothing of the writer."""

import gzip

import pytest
from harness.recordings import HOSTILE, acted, made

from gdbext.timeline import flame, pprof, store
from gdbext.timeline.recording import RUNNING


def fields(data):
    """[(number, an int or bytes)] of a message."""
    at, found = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        assert key & 7 in (0, 2)
        value = varint()
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        found.append((key >> 3, value))
    return found


def packed(data):
    """The numbers of a packed field."""
    return [number for _, number in fields(b"".join(b"\x08" + part for part in split(data)))]


def split(data):
    begin = 0
    for i, byte in enumerate(data):
        if byte < 128:
            yield data[begin : i + 1]
            begin = i + 1


def profile(data):
    """-> ({(process, thread, functions from the outermost): nanoseconds}, the texts)"""
    every = fields(data)
    texts = [value.decode() for number, value in every if number == 6]
    names = {dict(fields(v))[1]: texts[dict(fields(v))[2]] for number, v in every if number == 5}
    places = {dict(fields(v))[1]: names[dict(fields(dict(fields(v))[4]))[1]] for number, v in every if number == 4}
    found = {}
    for number, value in every:
        if number == 2:
            own = fields(value)
            labels = {texts[dict(fields(v))[1]]: dict(fields(v)) for n, v in own if n == 3}
            stack = tuple(places[n] for n in reversed(packed(dict(own)[1])))
            key = (texts[labels["process"][2]], texts[labels["thread"][2]], *stack)
            found[key] = found.get(key, 0) + packed(dict(own)[2])[0]
    return found, texts


@pytest.mark.parametrize("what", [flame.ALL, flame.Counted(cpu=True), flame.Counted(gil=True)])
def test_each_stack_has_its_time(what):
    found, texts = profile(pprof.profile(made(), what))
    own = {tuple(name.partition(" (")[0] for name in path): 1e9 * s for path, s in flame.stacks(made(), what).items()}
    assert texts[0] == "" and found
    assert found == {path: pytest.approx(nanoseconds, abs=2) for path, nanoseconds in own.items() if nanoseconds}


def test_hostile_names_stay_texts(tmp_path):
    rec = acted([(1, f"main {HOSTILE}", RUNNING)], looks=3)
    store.write(str(tmp_path / "x"), rec, form="pprof")
    found, _ = profile(gzip.decompress((tmp_path / "x").read_bytes()))
    assert len(found) == 1 and sum(found.values()) > 0
