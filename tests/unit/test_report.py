"""What a report's tables do where the copy of a process lacks something."""

import os
from types import SimpleNamespace

import pytest

from gdbext.access.proc import ProcTarget
from gdbext.answers import report
from gdbext.errors import GdbextError
from gdbext.kvcache import model


class View:
    def __init__(self, target):
        self.target = target

    def cache(self):
        if not isinstance(self.target, ProcTarget):
            raise GdbextError("cannot read 8 bytes at 0x10: not in the snapshot")
        return SimpleNamespace(pools=[SimpleNamespace(name="pool", block_size=16)], requests=[])


@pytest.mark.parametrize("is_copy", [True, False])
def test_a_cache_whose_page_the_copy_lacks_is_read_of_the_process_itself(monkeypatch, is_copy):
    """Of a core nothing else is known, whoever has its process id now."""
    monkeypatch.setattr(report.kv_view, "scheduler_of", lambda rt: rt)
    monkeypatch.setattr(report.kv_view, "View", View)
    monkeypatch.setattr(model, "summary", lambda cache, number: {"num_blocks": 9, "free": 4, "used": 5, "cached": 0})
    target = SimpleNamespace(pid=os.getpid(), has_name=not is_copy)
    said = report.kv_table([SimpleNamespace(rt=1, target=target, name="TP0")])
    assert ("TP0 (later, unstopped)" in said and ">9<" in said) == is_copy
    assert ("not in the snapshot" in said) != is_copy
