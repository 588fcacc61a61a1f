"""Bytecode inside gdbext.pyz, for the minors that scripts/make-pyz compiled it for: an archive's own importer compiles every
module anew at each start.

Source: Lib/zipimport.py, whose `get_filename` compiles too; Lib/importlib/_bootstrap_external.py for the head of a .pyc.
"""

from __future__ import annotations

import _imp
import marshal
import sys
import zipimport
from _frozen_importlib_external import MAGIC_NUMBER
from typing import Any

FOLDER = f"bytecode/{sys.implementation.cache_tag}/"
HEAD = 16  # bytes before the code: magic number, flags, hash or time and size


class _Importer(zipimport.zipimporter):
    """An archive's importer that takes bytecode where that is of this very interpreter."""

    def _place(self, name: str) -> str:
        inner = self.prefix + name.rpartition(".")[2]
        return f"{inner}/__init__.py" if self.is_package(name) else f"{inner}.py"

    def get_filename(self, fullname: str) -> str:
        return f"{self.archive}/{self._place(fullname)}"

    def get_code(self, fullname: str) -> Any:
        try:
            found = self.get_data(f"{FOLDER}{self._place(fullname)}c")
        except OSError:
            return super().get_code(fullname)
        if found[:4] != MAGIC_NUMBER:
            return super().get_code(fullname)
        code = marshal.loads(found[HEAD:])
        getattr(_imp, "_fix_co_filename")(code, self.get_filename(fullname))  # noqa: B009
        return code


def use(archive: str) -> None:
    """From now on modules of this archive are loaded from the bytecode in it. Before 3.10 its importer cannot be told to."""
    if sys.version_info < (3, 10):
        return

    def hook(path: str) -> _Importer:
        if not path.startswith(archive):
            raise ImportError(path)
        return _Importer(path)

    sys.path_hooks.insert(0, hook)
    for path in [path for path in sys.path_importer_cache if path.startswith(archive)]:
        del sys.path_importer_cache[path]
