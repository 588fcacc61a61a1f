"""A process that has imported a module called vllm, with the functions that the presets stop at; torch for the tensors."""

import json
import os
import sys
import time
import types

import torch

sys.modules["vllm"] = types.ModuleType("vllm")


class Output:
    def __init__(self, names):
        self.num_scheduled_tokens = dict.fromkeys(names, 1)


class Request:
    def __init__(self, request_id):
        self.request_id = request_id


class Scheduler:
    def schedule(self):
        names = ["req-1-aa", "req-21-cc", "req-2-bb"]
        return Output(names)

    def update_from_output(self, scheduler_output):
        count = len(scheduler_output.num_scheduled_tokens)
        return count

    def _free_request(self, request):
        freed = request.request_id
        return freed

    def _preempt_request(self, request, timestamp):
        status = "PREEMPTED"
        return status


class Poison(torch.nn.Module):
    """Returns a NaN in every fifth step and the one after it."""

    step = 0

    def forward(self, x):
        self.step += 1
        return x * float("nan") if self.step % 5 in (0, 1) and self.step > 1 else x


class GPUModelRunner:
    def _sample(self, logits):
        best = logits.argmax()
        return best


def main():
    print(json.dumps({"pid": os.getpid()}), flush=True)
    model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Sequential(Poison()))
    scheduler, runner, step = Scheduler(), GPUModelRunner(), 0
    while True:
        step += 1
        model(torch.ones(2, 2))
        output = scheduler.schedule()
        scheduler.update_from_output(output)
        logits = torch.ones(2, 8)
        if step % 5 == 0:
            logits[1, 3] = float("nan")
            logits[0, 0] = float("inf")
        runner._sample(logits)
        if step % 11 == 0:
            scheduler._preempt_request(Request("req-1-aa"), 0.0)
            try:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79.10 GiB")
            except torch.OutOfMemoryError:
                pass
        scheduler._free_request(Request("req-21-cc"))
        if step % 7 == 0:
            scheduler._free_request(Request("req-2-bb"))
        time.sleep(0.01)


main()
