"""control/cudagdb.py against a STUB of the gdb module: which debugger it is, and what is done with each one's answers. It shows
the adapter's logic, not what a real cuda-gdb 12.7, gdb.cuda or rocgdb says."""

import importlib
import sys
import types

import pytest

from gdbext.errors import FaultError, GdbextError

FOCUSED = "kernel 2, grid 1, block (5,3,0), thread (0,0,0), device 0, sm 1, warp 4, lane 0\n"
KERNELS = (
    '^done,InfoCudaKernelsTable={nr_rows="2",body=[InfoCudaKernelsRow={current="*",kernel="2",device="0",'
    'grid="1",status="Active",gridDim="(8,4,1)",'
    'blockDim="(128,1,1)",invocation="vllm::k<float, {int}>(q=0x7f '
    '\\"a\\")"},InfoCudaKernelsRow={current=" ",kernel="3",device="1",grid="9",'
    'gridDim="(1,1,1)",blockDim="(32,1,1)",invocation="other()"}]}'
)


class Stub(types.ModuleType):
    """A gdb that knows what the test tells it."""

    class error(RuntimeError):
        pass

    def __init__(self, answers, parameters=()):
        super().__init__("gdb")
        self.answers, self.parameters, self.asked = answers, parameters, []

    def parameter(self, name):
        if name not in self.parameters:
            raise RuntimeError(f"Could not find parameter `{name}'.")
        return "none"

    def flush(self):
        pass

    def execute(self, command, from_tty=False, to_string=False):
        self.asked.append(command)
        answer = self.answers.get(command)
        if answer is None:
            raise self.error(f"stub: {command}")
        return answer


@pytest.fixture
def load():
    """Makes a stub and imports cudagdb with it; afterwards no module that saw a stub is left for the tests of the same
    process."""
    before = {name: module for name, module in sys.modules.items() if name == "gdb" or name.startswith("gdbext")}

    def make(answers, parameters=("cuda break_on_launch",)):
        stub = Stub(answers, parameters)
        sys.modules["gdb"] = stub
        sys.modules.pop("gdbext.control.cudagdb", None)
        return importlib.import_module("gdbext.control.cudagdb"), stub

    yield make
    for name in [n for n in sys.modules if (n == "gdb" or n.startswith("gdbext")) and n not in before]:
        del sys.modules[name]
        package, _, last = name.rpartition(".")
        if package in sys.modules:
            vars(sys.modules[package]).pop(last, None)


def test_debuggers_are_told_apart(load):
    module, _ = load({"show version": "GNU gdb (Debian 13.1-3) 13.1\n"}, ())
    with pytest.raises(GdbextError, match="does not see the GPU"):
        module.device()
    module, _ = load({"show version": "GNU gdb (rocm-rel-6.2-66) 14.2\n"}, ())
    with pytest.raises(GdbextError, match="rocgdb"):
        module.device()
    module, _ = load({})
    assert isinstance(module.device(), module.CudaGdb)


def test_kernels_and_focus_come_from_mi_and_the_command_line(load):
    module, _ = load(
        {'interpreter-exec mi "-cuda-info-kernels"': KERNELS, "cuda kernel grid block thread device sm warp lane": FOCUSED}
    )
    device = module.device()
    first, second = device.kernels()
    assert (first.id, first.grid_id, first.grid, first.block, first.current, first.device) == (
        2,
        1,
        (8, 4, 1),
        (128, 1, 1),
        True,
        0,
    )
    assert (second.id, second.name, second.current, second.device) == (3, "other", False, 1)
    focus = device.focus()
    assert (focus.kernel, focus.block, focus.thread, focus.sm, focus.warp, focus.lane) == (2, (5, 3, 0), (0, 0, 0), 1, 4, 0)


def test_gdb_cuda_reads_where_it_knows_a_device(load):
    """Without one, cuda-gdb 13.0 gave bytes of its own."""
    module, stub = load({"cuda kernel grid block thread device sm warp lane": FOCUSED})
    stub.cuda = types.SimpleNamespace(
        read_global_memory=lambda address, size: bytearray(range(size)), devices=lambda: ["device 0"]
    )
    assert module.device().read(0x7F0000000000, 4) == b"\0\1\2\3"

    def refuse(address, size):
        raise RuntimeError("no such memory")

    stub.cuda.read_global_memory = refuse
    with pytest.raises(FaultError, match="no such memory"):
        module.device().read(0x7F0000000000, 4)
    stub.cuda.devices = list
    stub.answers["cuda kernel grid block thread device sm warp lane"] = "Focus is not set on any active CUDA kernel.\n"
    with pytest.raises(GdbextError, match="under a device focus"):
        module.device().read(0x7F0000000000, 4)


def test_a_kernels_name_loses_its_arguments_alone(load):
    module, _ = load({})
    for invocation, name in (
        ("at::cuda::(anonymous namespace)::spin_kernel()", "at::cuda::(anonymous namespace)::spin_kernel"),
        ("vllm::k<(Kind)1, f(int)>(q=0x7f, f=(g *) 0x1)", "vllm::k<(Kind)1, f(int)>"),
        ("k", "k"),
        ("k)(", "k)("),
        ("k))", "k))"),
    ):
        assert module._without_arguments(invocation) == name


def test_the_focus_counts_as_moved_only_when_it_has(load):
    module, stub = load(
        {"cuda kernel grid block thread device sm warp lane": FOCUSED, "cuda kernel 2 block (5,3,0) thread (0,0,0)": ""}
    )
    assert module.device().set_focus(2, (5, 3, 0)).block == (5, 3, 0)
    with pytest.raises(GdbextError, match=r"block \(1,1,0\) is not on the device"):
        module.device().set_focus(2, (1, 1, 0))


def test_a_step_says_what_it_did(load):
    answers = {
        "cuda kernel grid block thread device sm warp lane": FOCUSED,
        "info line *$pc": "No line number information available.",
        "stepi": "",
        "output/x $pc": "0x7f1234500120",
        'interpreter-exec mi "-cuda-info-kernels"': KERNELS.replace(
            "vllm::k<float, {int}>", "vllm::paged_attention_v1_kernel<float, 64>"
        ),
        "info cuda warps device 0 sm 1 warp 4": "  Wp Active Lanes Mask\n*  4        0x0000ffff           0xffff0000 0x0 2\n",
        "output (long) block_idx": "7",
    }
    module, stub = load(answers)
    from gdbext.commands.llm_focus import step_text
    from gdbext.control.device_stepping import step
    from gdbext.render.text import PLAIN

    device = module.device()
    data, reason = step(device, device.focus(), "line")
    assert (
        "stepi" in stub.asked and "step" not in stub.asked and reason == "the device code has no lines: one instruction instead"
    )
    assert (
        data["sequence"],
        data["head"],
        data["active_lanes"],
        data["kv_block"],
        data["pc"],
    ) == (3, 5, 16, 7, 0x7F1234500120)
    assert "warp 4 of SM 1 stepped, 16 lanes active   block (5,3,0), sequence 3, head 5   KV block 7" in step_text(data, PLAIN)
    answers.update(
        {
            (
                "tbreak *0x7f1234500120 if blockIdx.x == 5 && blockIdx.y == 3 && blockIdx.z == 0 && "
                "threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0"
            ): "",
            "continue": "",
        }
    )
    assert step(device, device.focus(), "kv-block")[0]["step"] == "kv-block"
    answers["cuda kernel grid block thread device sm warp lane"] = "Focus is not set on any active CUDA kernel.\n"
    assert step(device, module.Focus(2, (5, 3, 0), (0, 0, 0)), "instruction")[0]["ended"]
