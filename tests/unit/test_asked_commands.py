"""Which commands the lists ask that hold JSON fields, hostile text and private content: all that read a process, or they stand
here with the reason."""

from harness import probe
from tools import record_answers

from gdbext.commands import table

OF_OTHERS = {
    "llm-ranks": "its rows are the machine's processes: tests of its own",
    "pydown": "as pyup",
    "llm-request": "the answer of llm-requests about one of them, and its tests",
    "llm-gpucore": "reads a GPU's core: its own tests",
    "llm-watch": "runs until it is ended: its own tests",
    "llm-profile": "writes to the process: its own tests",
    "llm-inject": "writes to the process: its own tests",
    "llm-layers": "steps the process: its own tests",
}
NO_CONTENT = {
    "llm": "speaks of the pack",
    "pyframe": "asked as pybt",
    "pyup": "asked as pybt",
    "pylist": "shows source",
    "pytensor": "shows what is asked for by name",
    "llm-requests": "tests/engines/test_content.py asks it",
    "llm-snapshot": "its file is a copy of memory",
}


def asked(lines):
    return {line.split()[0] for line in lines}


def outside_gdb():
    return {c.name for c in table.load_all() if not c.gdb_only}


def test_each_command_that_reads_a_process_is_asked_for_its_fields():
    lines = asked((*record_answers.LIVE, *record_answers.BOTH, *record_answers.KV))
    assert outside_gdb() - lines == OF_OTHERS.keys()


def test_each_command_that_reads_a_process_is_asked_for_private_content():
    lines = asked((*probe.LIVE, *probe.BOTH, *probe.OF_OBJECTS)) | {"llm-ranks"}
    assert outside_gdb() - lines == OF_OTHERS.keys() - {"llm-ranks"} | NO_CONTENT.keys()
