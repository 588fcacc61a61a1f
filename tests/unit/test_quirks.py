"""The faults of gdb that are worked round: one table in the code, the same in docs/upstream.md, each with its place."""

import importlib.util
import os
import re

from harness.gdb_run import ROOT

QUIRKS = os.path.join(ROOT, "gdbext", "control", "quirks")


def faults():
    spec = importlib.util.spec_from_file_location("quirks", os.path.join(QUIRKS, "__init__.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FAULTS


def test_the_page_for_gdbs_maintainers_has_the_same_faults():
    with open(os.path.join(ROOT, "docs", "upstream.md"), encoding="utf-8") as f:
        rows = re.findall(r"^\| `([\w-]+)` \| (.*) \| (.*) \| (.*) \| (.*) \| (.*) \|$", f.read(), re.M)
    said = [
        (one.name, one.what, one.seen, one.mended or "no release yet", one.bug or "none found", cells(one.where))
        for one in faults()
    ]
    assert rows == said and len(rows) > 10


def cells(paths):
    return ", ".join(f"`gdbext/{path}.py`" for path in paths)


def test_each_fault_is_worked_round_where_the_table_says():
    found = faults()
    assert len({one.name for one in found}) == len(found)
    places = {path for one in found for path in one.where}
    assert not [path for path in places if not os.path.isfile(os.path.join(ROOT, "gdbext", path + ".py"))]
    modules = {name[:-3] for name in os.listdir(QUIRKS) if name.endswith(".py")} - {"__init__"}
    assert modules == {path.rpartition("/")[2] for path in places if path.startswith("control/quirks/")}
