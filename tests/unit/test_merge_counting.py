"""CPython 3.9, whose activations leave no mark: native and Python frames are matched by counting."""

from types import SimpleNamespace

import pytest

from gdbext.access.model import NativeFrame
from gdbext.stacks import merge

LOOP = merge.LOOP


@pytest.mark.parametrize(
    ("native", "shown"),
    [
        (["sort", LOOP, LOOP, "main"], ["sort", "inner", "outer"]),
        ([LOOP, "sort", LOOP, LOOP, "main"], ["sort", "inner", "outer"]),  # a call that just begins or ends: no frame of Python's
        ([f"{LOOP}.cold", LOOP, "sort", LOOP, LOOP, "main"], ["sort", "inner", "outer"]),
        (["sort", LOOP], ["sort", "inner", "outer"]),  # a native stack that is cut has fewer
        ([LOOP, LOOP, "main"], ["inner", "outer"]),
    ],
)
def test_activations_and_python_frames_are_matched_from_the_outermost(native, shown):
    python = [SimpleNamespace(anchor=0, function=name) for name in ("inner", "outer")]
    frames = [NativeFrame(i, 0, 16 * i, name, library="/usr/bin/python3.9") for i, name in enumerate(native)]
    entries, reasons = merge.merge(None, python, frames)
    seen = [e.python.function if e.python else e.native.function for e in entries if not e.interpreter_frame]
    assert seen == shown and merge.COUNTED in reasons
