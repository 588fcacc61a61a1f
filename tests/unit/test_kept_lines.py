"""The line of a frame whose instruction tells none (Nuitka's): the one that its frame object keeps, as PyFrame_GetLineNumber."""

import struct

import pytest

from gdbext.access.fake import FakeTarget
from gdbext.cpython.dialects import RawFrame
from gdbext.cpython.frames import PyFrame
from gdbext.cpython.minors import Minor

FRAME, OBJECT, FIRST, KEPT = 0x1000, 0x2000, 8, 10
AT_FIRST = 2  # the offset of an instruction at the first line
OLD = {"frameobj.f_lineno": 100}
NEW = {"iframe.localsplus": 72, "iframe.frame_obj": 48, "frameobj.f_lineno": 40}


class Code:
    first = FIRST

    def line(self, lasti):
        return FIRST if lasti < 0 or lasti == AT_FIRST else FIRST + lasti if lasti else None


class Runtime:
    def __init__(self, version, layout, memory):
        self.minor, self.layout, self.target = Minor(version), layout, FakeTarget(memory)

    def code(self, address):
        return Code()


def memory(layout, held, kept):
    frame, own = bytearray(256), bytearray(256)
    struct.pack_into("<i", own, layout["frameobj.f_lineno"], kept)
    if layout is OLD:
        return {FRAME: bytes(own)}
    struct.pack_into("<Q", frame, layout["iframe.frame_obj"], OBJECT if held else 0)
    return {FRAME: bytes(frame), OBJECT: bytes(own)}


@pytest.mark.parametrize(
    "version, layout, held, kept, lasti, line",
    [
        ((3, 12), NEW, True, KEPT, -2, KEPT),
        ((3, 10), OLD, True, KEPT, -1, KEPT),
        ((3, 9), OLD, True, KEPT, -1, FIRST),  # kept of old there
        ((3, 12), NEW, True, 0, -2, FIRST),
        ((3, 12), NEW, False, KEPT, -2, FIRST),
        ((3, 11), NEW, True, KEPT, 0, KEPT),
        ((3, 11), NEW, False, KEPT, 0, None),
        ((3, 12), NEW, True, KEPT, AT_FIRST, KEPT),  # Nuitka's: all its instructions are at the first line
        ((3, 12), NEW, False, KEPT, AT_FIRST, FIRST),
        ((3, 14), NEW, True, KEPT, 4, FIRST + 4),  # it runs instructions: they tell
    ],
)
def test_a_frame_without_instructions_has_the_line_that_its_object_keeps(version, layout, held, kept, lasti, line):
    rt = Runtime(version, layout, memory(layout, held, kept))
    assert PyFrame(rt, RawFrame(FRAME, 0, lasti, 0, 0), 0).line == line
