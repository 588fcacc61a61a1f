"""vLLM's broadcast ring in shared memory, by vLLM's own classes: who has not read what, and who cannot write."""

import os
import signal

from harness.answers import answer
from harness.heartbeats import eventually
from harness.subjects import running

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.engines import shm_files, shm_rings


def ends(pid):
    target = ProcTarget(pid)
    try:
        return shm_rings.find(open_runtime(target))
    finally:
        target.close()


def test_a_full_ring_and_the_reader_that_does_not_read(torch_python):
    with running(torch_python, "ring.py", start_new_session=True) as (target, truth):
        try:

            def full():
                """One message was read by both: the writer could write that many more than the ring has chunks."""
                found = ends(truth["writer"])
                return len(found) == 1 and found[0].unread == [0, 10] and found[0].full == [1]

            eventually(full, "the ring to be full", 120)
            pids = (truth["writer"], *truth["readers"])
            eventually(lambda: all(len(ends(pid)) == 1 for pid in pids), "all to stand at the ring", 60)
            (writer,), (reader,), (late,) = map(ends, pids)
            assert (
                writer.reader is None
                and (reader.reader, late.reader) == (0, 1)
                and writer.index == late.index == reader.index == 1
            )
            assert {one.name for one in (writer, reader, late)} == {
                truth["name"].lstrip("/")
            } and writer.chunks == reader.chunks == late.chunks
            told = shm_files.of_processes([truth["writer"], *truth["readers"]])  # as where none may be traced
            name = truth["name"].lstrip("/")
            assert told[truth["writer"]] == [{"name": name, "readers": 2, "unread": [0, 10], "moved": False, "mapped": True}]
            assert not told[truth["readers"][0]] and not told[truth["readers"][1]], "a ring is told once"
            said = answer(f"llm-hang {truth['writer']} {truth['readers'][0]} {truth['readers'][1]} -wait 0.6 -json")
            assert (said["verdict"], [c["pid"] for c in said["culprits"]]) == ("starved", [truth["readers"][1]]), said
            line = (
                f"{truth['readers'][1]} has 10 messages of it unread, {truth['readers'][0]} all read, its writer cannot "
                f"write before {truth['readers'][1]} has read"
            )
            assert f"{truth['writer']}'s ring {writer.name}: {line}" in said["evidence"], said
        finally:
            os.killpg(target.pid, signal.SIGKILL)
            os.unlink("/dev/shm/" + truth["name"].lstrip("/"))
