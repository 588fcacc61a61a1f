"""Objects that several answers have: a stack's frames and their variables. Nothing but declarations."""

from __future__ import annotations

from ..render.fields import NUMBER, TEXT, Field, Fields, each

LOCAL = Fields(*each(str, "name type"), Field("address", TEXT), Field("text", str), shape="local")
FRAME = Fields(
    Field("level", int, "0: the innermost"),
    Field("kind", str, "`python`, `native` or `kernel`", must=True),
    Field("function", str, must=True),
    Field("file", TEXT, default=""),
    Field("cell", str, "of Jupyter: `In[3]`"),
    Field("line", NUMBER, default=None),
    *each(TEXT, "pc sp", default=None),
    Field("library", TEXT, default=""),
    Field("reliable", bool, "the unwinder can vouch for it", default=True),
    Field("doubt", str, "of native ones: what keeps it unknown or unreliable"),
    Field("calls", str, "the function of C code that it has called and waits for; '': none, or not known"),
    Field("locals", [LOCAL]),
    Field("locals_error", str, "why there are none"),
    Field("name", str, "of a traceback: without its class"),
    Field("activation", bool, "with -raw: a frame of the interpreter's that runs Python"),
    *each(NUMBER, "end_line column end_column", means="with -columns: as `co_positions` counts"),
    Field("device", NUMBER, "of kernels"),
    *each(([int], None), "grid block thread", means="of kernels"),
    Field("number", int, "of kernels on the device: cuda-gdb's"),
    Field("current", bool, "of kernels on the device: the focus is on it"),
    shape="frame",
)
SELECTED = Fields(
    *each(int, "index", means="0: the innermost"), *each(str, "function file"), Field("line", NUMBER), shape="selected"
)
THROWN = Fields(Field("type", str), Field("message", TEXT, "null: the program's own code computes it"))
END = Fields(
    Field("label", str),
    Field("pid", NUMBER),
    Field("kind", str, "`signal`, `joins`, `atexit`, `finalizing` or `exit-handlers`: [what each means](#ends)"),
    Field("tid", NUMBER, "the thread that a signal ended, or that ends the process"),
    Field("signal", (str, int, None), "that ended a core's process"),
    Field("address", TEXT, "of the access that failed"),
    Field("sender", NUMBER, "the process that sent the signal (its own pid for `abort()`); null where the kernel did"),
    Field("user", NUMBER, "whose the sender is"),
    Field("waits_for", [Fields(Field("tid", int), *each(str, "name at"))], "threads that are no daemons"),
    Field("exception", (THROWN, None), "of C++, that ended the program; null: none, or not known"),
    Field("text", str),
    shape="end",
)
