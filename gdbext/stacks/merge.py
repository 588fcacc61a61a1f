"""Python and native frames of a thread as one stack.

Each activation of CPython's interpreter loop leaves an object on its own C stack (`PyFrame.anchor`, 3.10 and later). The native frame
whose piece of the stack holds that address is that activation: no symbols, no counting. 3.9 leaves none: there the native
frames of `_PyEval_EvalFrameDefault` are counted, and the answer says so.
"""

import re

from ..errors import GdbextError

COUNTED = "Python 3.9 leaves no mark on the C stack: frames matched by counting"
CUT = "native stack incomplete"
# The interpreter's own machinery between two Python frames; what a user wants to see of libpython (a sleep, a lock, the collector) is not here.
_MACHINERY = re.compile(
    r"_?Py(?!Thread)|_TAIL_CALL|cfunction_|method_|slot_|vectorcall|object_vacall|type_call|run_mod|run_eval|pymain_|partial_|gen_|"
    r"bounded_lru|lru_cache|wrapper_|wrap_|function_code_fastcall|trampoline|tp_new|builtin___build_class|classmethod_|property_|"
    r"call_|context_run|thread_run|t_bootstrap|pythread_wrapper|main$|_start$|__libc_start|start_thread$|clone3?$|__?clone"
)


class Merged:
    """One entry of a merged stack: exactly one of `python` (PyFrame) and `native` (NativeFrame) is set; `machinery`: part of the
    interpreter's own frames, folded unless asked for; `activation`: for a native frame, it is an interpreter loop."""

    __slots__ = ("python", "native", "machinery", "activation", "reliable")

    def __init__(self, python=None, native=None, machinery=False, activation=False, reliable=True):
        self.python, self.native, self.machinery, self.activation, self.reliable = python, native, machinery, activation, reliable


def merge(rt, python, native):
    """-> (`[Merged]` innermost first, reasons why it is less than whole). `python`: [PyFrame]; `native`: [NativeFrame], may be []."""
    groups, reasons = _groups(python), []
    if not native:
        return [Merged(python=f) for f in python], reasons
    held = {}
    if python and not python[0].anchor:
        loops = [i for i, f in enumerate(native) if f.function.split(".")[0] == "_PyEval_EvalFrameDefault"]
        reasons.append(COUNTED)
        for i, (_, frames) in zip(loops, groups):
            held[i] = frames
        groups = groups[len(loops) :]
    else:
        left = []
        for anchor, frames in groups:
            i = _holder(native, anchor)
            if i is None:
                left.append((anchor, frames))
            else:
                held.setdefault(i, []).extend(frames)
        groups = left
    runtime_library = rt.library.path if rt is not None else None
    found = []
    for i, frame in enumerate(native):
        inside = frame.library == runtime_library
        machinery = i in held or (inside and (not frame.function or bool(_MACHINERY.match(frame.function))))
        if not inside and held and i > max(held) and _MACHINERY.match(frame.function or "main"):
            machinery = True  # the C library below the outermost Python frame: how threads and programs begin
        found += [Merged(python=f) for f in held.get(i, ())]
        found.append(Merged(native=frame, machinery=machinery, activation=i in held, reliable=frame.reliable))
    if groups:
        reasons.append(CUT)
        for _, frames in groups:
            found += [Merged(python=f, reliable=False) for f in frames]
    return found, reasons


def _groups(python):
    """Frames of one interpreter activation each: `[(anchor, [PyFrame])]`; without anchors, each frame by itself."""
    groups = []
    for frame in python:
        if groups and frame.anchor and groups[-1][0] == frame.anchor:
            groups[-1][1].append(frame)
        else:
            groups.append((frame.anchor, [frame]))
    return groups


def _holder(native, anchor):
    """The index of the frame whose piece of the stack, from its own stack pointer to its caller's, holds an address."""
    for i in range(len(native) - 1):
        if native[i].sp <= anchor < native[i + 1].sp:
            return i
    return None


def waits_for_gil(rt, native):
    """Whether a native stack stands in the interpreter's wait for its lock: True, False, or None where names cannot tell."""
    inside = [f for f in native if f.library == rt.library.path]
    if any(re.match(r"take_gil|PyEval_AcquireThread|PyEval_RestoreThread.*take", f.function) for f in inside):
        return True
    try:
        return False if rt.library.elf.has_static_symbols else None
    except GdbextError:
        return None
