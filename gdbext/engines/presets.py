"""Where each engine schedules, finishes, samples: what `llm-break request|step|oom|nan` stops at. Data; read in the sources of the releases named.

A place is (FUNCTION, condition); in conditions {id} stands for the request's id. `nan`: (FUNCTION, expression of a tensor). `oom`: the exception of a
device that is full, and where the engine takes blocks back from a request because its KV cache is (a release may lack that function). An id that a
user gives is part of the engine's own: vLLM appends to it.
"""

PRESETS = {
    "vllm": {  # V1, 0.11 to 0.32: v1/core/sched/scheduler.py, v1/worker/gpu_model_runner.py (the CPU's runner is a subclass)
        "module": "vllm",
        "step": [("Scheduler.schedule", "")],
        "request": [
            ("Scheduler.update_from_output", "any({id} in r for r in scheduler_output.num_scheduled_tokens)"),
            ("Scheduler._free_request", "{id} in request.request_id"),
        ],
        "oom": ("OutOfMemoryError", [("Scheduler._preempt_request", "")]),  # the function: from 0.16 on
        "nan": [("GPUModelRunner._sample", "logits")],
    },
    "sglang": {  # 0.5: srt/managers/scheduler.py, srt/model_executor/model_runner.py
        "module": "sglang",
        "step": [("Scheduler.run_batch", "")],
        "request": [("Scheduler.run_batch", "any({id} in r.rid for r in batch.reqs)")],
        "oom": ("OutOfMemoryError", [("ScheduleBatch.retract_decode", "")]),  # srt/managers/schedule_batch.py
        "nan": [("ModelRunner.sample", "logits_output.next_token_logits")],
    },
}


def of_process(rt):
    """(engine, its presets) of a process by the modules it has imported; (None, None) for another."""
    for engine, presets in PRESETS.items():
        if rt.has_module((presets["module"],)):
            return engine, presets
    return None, None
