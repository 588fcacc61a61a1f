"""Pretty-printers for torch's C++ types, where there is debug information. They are loaded with the first value that needs
one."""

from __future__ import annotations

import gdb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SPACES = ("c10::", "at::", "caffe2::", "torch::headeronly::")
_OURS = (*_SPACES, *(f"const {name}" for name in _SPACES), "std::optional<at::", "std::optional<c10::")


class _Collection:
    """The object that gdb calls for each value that it prints. `info pretty-printer` and `disable pretty-printer` use its
    name."""

    name = "gdbext"
    enabled = True

    def __call__(self, value: Any) -> Any:
        if value.type.code == gdb.TYPE_CODE_PTR:
            return None
        kind = value.type.strip_typedefs()
        if kind.code in (gdb.TYPE_CODE_REF, getattr(gdb, "TYPE_CODE_RVALUE_REF", -1)):
            kind = kind.target().strip_typedefs()
        name = kind.name or kind.tag
        if name is None or not name.startswith(_OURS):
            return None
        from . import c10

        return c10.printer(value, kind, name)


def register() -> None:
    """Adds the printers to this gdb, once."""
    if not any(getattr(p, "name", "") == _Collection.name for p in gdb.pretty_printers):
        gdb.pretty_printers.append(_Collection())
