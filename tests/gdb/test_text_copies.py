"""A program that has copied its interpreter's code to memory of no file, as for huge pages: the stack is whole all the same."""

import os
import shutil
import subprocess

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.subjects import PYTHONS, running

SOURCE = """
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int copied(unsigned long start, unsigned long end) {
  void *to = mmap(0, end - start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (to == MAP_FAILED) return 1;
  memcpy(to, (void *)start, end - start);
  if (mprotect(to, end - start, PROT_READ | PROT_EXEC)) return 2;
  return mremap(to, end - start, end - start, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) == MAP_FAILED;
}
void waits(void) { for (;;) pause(); }
"""


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_native_frames_of_copied_code_have_their_names(tmp_path):
    library = str(tmp_path / "copier.so")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=SOURCE.encode(), check=True)
    python = PYTHONS[-1]
    with running(python, "text_copies.py", library, start_new_session=True) as (target, truth):
        assert truth["copied"]
        copies = target.text_copies()
        assert sorted(m.path for m in copies.values()) == sorted(truth["copied"])
        assert asleep(target.pid)  # it has come to its wait
        thread = answer(f"llm-bt -raw -still -on {target.pid} -json")["threads"][0]
    named = [frame["function"] for frame in thread["frames"] if frame["kind"] == "native"]
    assert "waits" in named and named[-1] in ("_start", "__libc_start_call_main"), named
    own = [frame for frame in thread["frames"] if os.path.basename(frame["library"] or "").startswith(("python", "libpython"))]
    assert len(own) > 3 and not any("run time" in (frame.get("doubt") or "") for frame in thread["frames"]), thread["frames"]
