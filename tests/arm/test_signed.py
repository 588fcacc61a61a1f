"""Native stacks of arm64 programs whose return addresses are signed, on cores that qemu's user mode wrote."""

import json
import os
import subprocess

import pytest
from harness.subjects import ready_core

from gdbext.access.unwind import Unwinder

SIGNED = "-mbranch-protection=standard"
BUILDS = {
    "plain": ["-O2"],
    "plain -O0": ["-O0"],
    "signed": ["-O2", SIGNED],
    "signed -O0": ["-O0", SIGNED],
    "signed by the other key, also leaves": ["-O2", "-mbranch-protection=pac-ret+leaf+b-key"],
    "signed without call-frame information": ["-O2", SIGNED, "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
}
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subjects", "signed.c")


@pytest.mark.parametrize("build", BUILDS)
def test_a_stack_is_followed_through_signed_addresses_and_a_handler(build, tmp_path):
    program = str(tmp_path / "signed")
    keep = ["-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-static", "-Wl,--eh-frame-hdr"]
    subprocess.run([os.environ["GDBEXT_TEST_ARM_CC"], *BUILDS[build], *keep, SOURCE, "-o", program], check=True)
    target, said = ready_core([os.environ["GDBEXT_TEST_ARM_QEMU"], program], str(tmp_path))
    truth = json.loads(said)
    assert (truth["signed"] >> 48 != 0) == ("signed" in build)
    (thread,) = target.threads()
    frames = Unwinder(target).frames(thread.registers)
    names = [f.function for f in frames]
    own = [name for name in names if name in truth["frames"]]
    assert own == truth["frames"], names
    assert names.index("__kernel_rt_sigreturn") == names.index("in_handler") + 1
    assert all(f.pc >> 48 == 0 for f in frames)
    assert names[-1] == "_start"
