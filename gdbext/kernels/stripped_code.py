"""Facts from a stripped library's own code, by the architecture of that code."""

from __future__ import annotations

from .. import log
from ..access.elf import Elf
from ..errors import NotFoundError
from .stripped import Code
from .stripped_arm64 import Arm64Code

BY_ARCHITECTURE = {"x86-64": Code, "aarch64": Arm64Code}


def code_of(elf: Elf) -> Code | None:
    """The `Code` of a file, None where it has none that can be decoded."""
    if "stripped_code" not in elf.kept:
        elf.kept["stripped_code"] = None
        if elf.arch in BY_ARCHITECTURE and ".nv_fatbin" in elf.sections:
            try:
                elf.kept["stripped_code"] = BY_ARCHITECTURE[elf.arch](elf)
            except NotFoundError as e:
                log.passed_over(e)
    found: Code | None = elf.kept["stripped_code"]
    return found
