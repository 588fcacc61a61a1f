"""A symbol without a size names the code behind it only in a file that names all of its functions, static ones too."""

import re
import shutil
import subprocess

import pytest

from gdbext.access.elf import Elf

ASSEMBLY = """
.text
.globl sizeless; .type sizeless, @function
sizeless: nop; nop; ret
.balign 64
hidden: nop; nop; ret
.balign 64
.globl sized; .type sized, @function
sized: nop; nop; ret
.size sized, . - sized
.balign 64
behind: nop; nop; ret
.section .note.GNU-stack,"",%progbits
"""


@pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("strip") and shutil.which("nm")), reason="no compiler here")
def test_a_name_reaches_no_further_than_is_known(tmp_path):
    (tmp_path / "a.s").write_text(ASSEMBLY)
    whole, stripped = str(tmp_path / "whole.so"), str(tmp_path / "stripped.so")
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", whole, str(tmp_path / "a.s")], check=True)
    shutil.copy(whole, stripped)
    subprocess.run(["strip", stripped], check=True)
    said = subprocess.run(["nm", whole], stdout=subprocess.PIPE, check=True).stdout.decode()
    at = {name: int(address, 16) for address, name in re.findall(r"(\w+) [tT] (\w+)", said)}
    full, bare = Elf(whole), Elf(stripped)
    assert [full.function_at(at[name] + 1) for name in ("sizeless", "hidden", "sized")] == ["sizeless", "hidden", "sized"]
    assert [bare.function_at(at[name] + 1) for name in ("sizeless", "hidden", "sized", "behind")] == ["", "", "sized", ""]
    assert bare.function_at(at["sizeless"]) == "sizeless"
