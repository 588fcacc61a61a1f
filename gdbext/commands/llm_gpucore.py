"""llm-gpucore: a CUDA core dump, read without a GPU and without cuda-gdb."""

from __future__ import annotations

import os

from ..answers.gpucore import ANSWER, CORE, setup_data, summary_text
from ..kernels import gpucore
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session


class LlmGpuCore(Command):
    """Show what a CUDA core dump holds: devices, kernels, and the threads that faulted, without a GPU.

      (gdb) llm-gpucore gpucore.gpu-7.4123.1763740000
      device 0  NVIDIA H100 80GB HBM3  sm_90  132 SMs
      CUDA_EXCEPTION_14 "Warp Illegal Address" in vllm::paged_attention_v1_kernel<…>
        block (5,3,0) thread (39,0,0)  device 0 SM 17 warp 1 lane 7
        at 0x7f1234500100 <vllm::paged_attention_v1_kernel<…>+0x100>

    A dump on request of a hung engine has no fault: then the kernels and where their warps are is what counts. -setup prints
    the environment that makes an engine write such files, for each CUDA release, and how to get one from a hung engine.

    In cuda-gdb the core is opened where nothing else is (target cudacore FILE), and the focus moves to its first fault."""

    name = "llm-gpucore"
    group = "kernels"
    fields = ANSWER
    operand = "FILE"
    completion = "file"
    takes_target = False
    standalone = True
    options = (
        Option("setup", help="print the environment that makes an engine write a GPU core"),
        Option("cuda", "str", "with -setup: for this release only, such as 12.8", metavar="RELEASE"),
    )

    def run(self, session: Session, args: Args) -> Answer:
        if args.setup:
            data = setup_data(args.cuda)
            return Answer(data, data["setup"])
        if not args.operand_text:
            raise UsageError(
                "llm-gpucore: give the file, such as: llm-gpucore /tmp/gpucore.gpu-7.4123.1763740000 "
                "(how to get one: llm-gpucore -setup)"
            )
        core = gpucore.open_core(os.path.expanduser(args.operand_text.strip("'\"")))
        data = CORE.data(core)
        answer = Answer(data, lambda style: summary_text(data, style), core.problems)
        if hasattr(session, "focus_core"):
            answer.then = lambda: str(session.focus_core(core))
        return answer
