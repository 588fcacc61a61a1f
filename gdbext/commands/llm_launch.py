"""llm-launch: the kernel launch that the selected thread stands at."""

from __future__ import annotations

from ..answers import addresses
from ..answers.launches import LAUNCH, launch_lines
from ..api.choosing import view_of
from ..errors import GdbextError
from ..kernels import pointees
from ..session.command import Answer, Args, Command, Option
from ..session.evaluation import runtime_or_none
from ..session.gdb_only import require_gdb
from ..session.session import Session


class LlmLaunch(Command):
    """Decode the kernel launch that the selected thread stopped at: kernel, grid, block, stream, and every argument.

      (gdb) llm-launch
      vllm::paged_attention_v1_kernel<float, 64, 16>  through cudaLaunchKernel
        grid (8,4,1)  block (128,1,1)  shared 4096 B  stream 0x5
        #0  float*        0x7f2b00000000  out
        #1  float const*  0x7f2b00010000  query [4, 8, 64] float32, local query of PagedAttention.forward
        #2  float const*  0x7f2b4c0a1000  KV cache, TP0 layer 3, k, block 17, slot 0, head 0
        #3  float         0.125

    Types come from debug information where gdb has read it, else from the demangled signature; names of arguments from debug
    information, for Triton's kernels from its own objects.
    In cuda-gdb with a kernel in focus (that of a CUDA graph, too) it shows that kernel's launch, from its parameter memory.
    An argument whose type neither gives is shown as raw bytes and marked raw; of a structure passed by value, 8 bytes. The
    command reads the host side: nothing of this kernel has run on the GPU yet. At a CPU kernel or a launcher it shows the
    function's own arguments, each at::Tensor with its shape (-values: and values)."""

    name = "llm-launch"
    group = "kernels"
    fields = LAUNCH
    takes_target = False
    gdb_only = True
    options = (Option("values", help="with the values of each tensor that an argument is, as torch prints them"),)

    def run(self, session: Session, args: Args) -> Answer:
        target = session.target()
        if not session.in_gdb or not target.is_stopped:
            raise GdbextError(
                "a launch can be decoded only in a process that gdb holds stopped: llm-attach it, llm-break, continue"
            )
        stopped = require_gdb(session, "stopped_launch")
        rt = runtime_or_none(session)
        device = session.device() if session.sees_device() else None
        if device is not None and device.focus() is not None:
            found = stopped.launch_on_device(device, rt)
        else:
            found = stopped.launch_here(target, session.registers(), rt)
        places = addresses.KvPlaces(lambda: view_of(session, args, target))
        variables = pointees.TensorVariables(target, rt, session.tid())
        for argument in found.arguments:
            if argument.pointer and argument.value:
                argument.points_to = pointees.describe(argument, places.find, variables)
                if args.values and argument.points_to and argument.points_to["kind"] == "tensor":
                    argument.points_to["repr"] = variables.text(argument.points_to["impl"])
        data = LAUNCH.data(found)
        breakpoints = require_gdb(session, "kernel_breakpoints").breakpoints()
        data["cost"] = next((b.cost() for b in breakpoints if b.stopped), None)
        partial = [p for p in places.partial if p != "unstopped"] + found.problems
        return Answer(data, lambda style: "\n".join(launch_lines(found, data, style)), partial)
