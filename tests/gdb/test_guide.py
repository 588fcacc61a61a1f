"""The guide names commands that exist, and the scripts of gdbinit.d are understood by gdb."""

import os
import re

import pytest
from harness.gdb_run import ROOT

from gdbext.commands.guide import topics
from gdbext.commands.table import names


def test_every_command_of_the_guide_is_one_of_ours_or_announced():
    known = set(names()) | {"pytensors"}
    for topic, text in topics().items():
        named = set(re.findall(r"(?:^|[ ,:])((?:llm-|py)[a-z-]+)(?= |$|,|:)", text, re.M)) - {"python", "pybreak's"}
        assert named and named <= known, (topic, named - known)


def test_llm_guide_in_gdb(gdb):
    said = gdb(["llm guide", "llm guide hang", "llm guide nosuch", "llm guide -json"])
    assert all(topic in said.outputs[0] for topic in topics()) and said.outputs[1].splitlines() == topics()["hang"].splitlines()
    assert "takes nothing, all, or guide and one of hang" in said.outputs[2] and said.json(3)["schema"] == "llm/1"


@pytest.mark.parametrize("name", ["engines.gdb", "skip.gdb", "processes.gdb"])
def test_a_script_of_gdbinit_d_is_understood_and_explains_its_lines(name, gdb):
    path = os.path.join(ROOT, "gdbinit.d", name)
    said = gdb([f"source {path}", "echo fine"])
    assert "rror" not in said.outputs[0] and "ndefined" not in said.outputs[0] and said.outputs[1] == "fine"
    with open(path) as f:
        lines = f.read().split("\n\n")
    assert all(block.lstrip().startswith("#") for block in lines if block.strip())
