"""The native frames that belong to the interpreter's machinery. They are left out where Python frames are shown.

A frame is the interpreter's by its library and by its symbol. In python3.x and libpython3.x, everything is CPython's. In a
program with CPython linked in, code between two of CPython's own global functions is CPython's: all of those begin with Py or _Py
(CPython's Tools/build/smelly.py enforces that)."""

from __future__ import annotations

import re

from .. import log
from ..access.model import NativeFrame
from ..cpython.runtime import Runtime
from ..errors import GdbextError

# The interpreter's own machinery between two Python frames. Functions of libpython that a user wants to see (a sleep, a lock,
# the collector) are not here.
_INTERPRETER = re.compile(
    r"_?Py(?!Thread)|_TAIL_CALL|cfunction_|method_|slot_|vectorcall|object_vacall|type_call|run_mod|run_eval|pymain_|partial_|gen_|"
    r"bounded_lru|lru_cache|wrapper_|wrap_|function_code_fastcall|trampoline|tp_new|builtin___build_class|classmethod_|property_|"
    r"call_|py_trampoline_|context_run|thread_run|t_bootstrap|pythread_wrapper|main$|_start$"
)
# Names that no other program has: CPython's even where the linker put the function next to other code.
_UNMISTAKABLE = re.compile(
    r"_PyEval_|_PyFunction_|_PyObject_|function_code_fastcall$|cfunction_(vectorcall|call|enter)|method_vectorcall|object_vacall$|"
    r"slot_tp_|run_eval_code_obj|pymain_|pythread_wrapper$"
)
_TRAMPOLINE = "py::"  # how CPython names its trampolines for perf (Python/perf_trampoline.c), in the place of a library's name
_STARTS = re.compile(r"_start$|__libc_start|start_thread$|_*clone3?$")  # how threads and programs begin
_C_LIBRARY = re.compile(r"(libc|libpthread|ld|ld-linux.*|ld-musl.*|libc\.musl.*)([-.][\d.]+)?\.so(\.\d+)*$")
_CPYTHON_FILE = re.compile(r"(lib)?python(3(\.\d+)?)?[a-z]{0,3}(-(dbg|intel64))?(\.so[.\d]*)?( \(deleted\))?$")


class Folding:
    """The frames to fold in the process of a `Runtime`. With None, no file counts as CPython's."""

    def __init__(self, rt: Runtime | None) -> None:
        self._rt, self._path = rt, rt.library.path if rt is not None else None
        self._whole = self._path is not None and _is_cpython_file(self._path)

    def may_run_python(self, frame: NativeFrame) -> bool:
        """Whether the interpreter's loop may be in a frame's code: CPython's file, or code of no file (a JIT's, a copy)."""
        return self._rt is None or not frame.library or frame.library == self._path

    def is_interpreter(self, frame: NativeFrame) -> bool:
        if not frame.library and frame.function.startswith(_TRAMPOLINE):
            return self._rt is not None
        if frame.library != self._path or self._rt is None:
            return False
        if frame.function and not _INTERPRETER.match(frame.function):
            return False
        if self._whole or _UNMISTAKABLE.match(frame.function):
            return True
        return "::" not in frame.function and self._among_cpython(frame.pc)

    def is_start(self, frame: NativeFrame) -> bool:
        """Whether a frame below the outermost Python frame only shows how a thread or a program begins."""
        name = frame.library.rpartition("/")[2]
        if _C_LIBRARY.match(name) or _is_cpython_file(frame.library):
            return not frame.function or frame.function == "main" or bool(_STARTS.match(frame.function))
        return frame.function == "_start"

    def _among_cpython(self, pc: int) -> bool:
        rt = self._rt
        assert rt is not None

        def look() -> bool:
            try:
                around = rt.library.elf.globals_around(pc - rt.library.bias - 1)
            except GdbextError as e:
                log.passed_over(e)
                return False
            return all(re.match("_?Py", name) for name in around)

        return rt.target.cached(("CPython's code", pc), look)


def _is_cpython_file(path: str) -> bool:
    return bool(_CPYTHON_FILE.match(path.rpartition("/")[2]))
