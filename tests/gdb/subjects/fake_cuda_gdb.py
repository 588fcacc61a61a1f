"""A FAKE of cuda-gdb: sourced in a plain gdb before the pack, it makes it one that sees a GPU, as far as the pack asks.

The GPU's memory is that of `on_device.Device`, of the process that is selected. FAKE_DEVICE: its `said()` as JSON; FAKE_KERNEL:
the name of a kernel that runs there, none without it; FAKE_SECONDS: what each read takes."""

import json
import os
import sys
import time
import types

import gdb

DEVICE = json.loads(os.environ["FAKE_DEVICE"])


class SetCuda(gdb.Command):
    """set cuda"""

    def __init__(self):
        super().__init__("set cuda", gdb.COMMAND_DATA, prefix=True)


class ShowCuda(gdb.Command):
    """show cuda"""

    def __init__(self):
        super().__init__("show cuda", gdb.COMMAND_DATA, prefix=True)


class BreakOnLaunch(gdb.Parameter):
    """What `cudagdb.is_cuda_gdb` asks for."""

    def __init__(self):
        super().__init__("cuda break_on_launch", gdb.COMMAND_DATA, gdb.PARAM_ENUM, ["none", "application"])
        self.value = "none"


class Cuda(gdb.Command):
    """cuda: the focus is on the host."""

    def __init__(self):
        super().__init__("cuda", gdb.COMMAND_DATA)

    def invoke(self, text, from_tty):
        print("Focus is not set on any active CUDA kernel.")


def execute(text, *more, plain=gdb.execute, **names):
    """gdb.execute, which knows cuda-gdb's MI command too."""
    if text != 'interpreter-exec mi "-cuda-info-kernels"':
        return plain(text, *more, **names)
    name = os.environ.get("FAKE_KERNEL")
    numbers = 'current=" ",kernel="0",device="0",grid="1",status="Active",gridDim="(1,1,1)",blockDim="(32,1,1)"'
    row = f'{numbers},invocation="{name}()"'
    return "^done,InfoCudaKernelsTable={body=[" + (f"InfoCudaKernelsRow={{{row}}}" if name else "") + "]}"


def read_global_memory(address, size):
    start = address - DEVICE["address"]
    if not 0 <= start <= DEVICE["size"] - size:
        raise RuntimeError(f"Failed to read {size} bytes of global memory at 0x{address:x}")
    time.sleep(float(os.environ.get("FAKE_SECONDS", 0)))
    with open(f"/proc/{gdb.selected_inferior().pid}/fd/{DEVICE['fd']}", "rb") as f:
        return os.pread(f.fileno(), size, start)


for kind in (SetCuda, ShowCuda, BreakOnLaunch, Cuda):
    kind()
gdb.execute = execute
gdb.cuda = sys.modules["gdb.cuda"] = types.ModuleType("gdb.cuda")
gdb.cuda.read_global_memory, gdb.cuda.devices = read_global_memory, lambda: ["FAKE"]
