"""What each process of a real engine says of itself, and what goes wrong in it. vLLM and SGLang load it in all their processes
by its entry points; it acts on

  GDBEXT_WITNESS=FOLDER     whenever FOLDER/ask changes, FOLDER/PID.json says what is true; FOLDER/witness.PID says that it will
  GDBEXT_ONE_GPU=1          every rank takes GPU 0 and names a host of its own: NCCL refuses two ranks of one host on one GPU
  GDBEXT_FAULT=WHAT[:RANK]  what happens in the rank's next step once FOLDER/fault is there; a key of FAULTS

Truths are read from the objects by a thread that holds the GIL for a moment, without a CUDA call."""

import importlib.util
import json
import os
import sys
import threading
import time

begun = []


def register():
    if begun or "GDBEXT_WITNESS" not in os.environ:
        return
    begun.append(True)
    threading.Thread(target=witness, args=(os.environ["GDBEXT_WITNESS"],), name="gdbext-witness", daemon=True).start()
    if importlib.util.find_spec("vllm") is not None:
        if os.environ.get("GDBEXT_ONE_GPU"):
            share_gpu()
        if os.environ.get("GDBEXT_FAULT"):
            wait_for_fault(*os.environ["GDBEXT_FAULT"].split(":"))


def witness(folder):
    pid, seen = os.getpid(), None
    open(os.path.join(folder, f"witness.{pid}"), "w").close()
    while True:
        time.sleep(0.05)
        try:
            with open(os.path.join(folder, "ask")) as f:
                asked = f.read()
        except OSError:
            continue
        if asked and asked != seen:
            seen = asked
            try:
                said = truth()
            except Exception as e:  # noqa: BLE001 - the test shows it
                said = {"error": f"{type(e).__name__}: {e}"}
            path = os.path.join(folder, f"{pid}.json")
            with open(path + ".new", "w") as f:
                json.dump({**said, "asked": asked}, f, default=str)
            os.replace(path + ".new", path)


# ---- what is true ----------------------------------------------------------------------------------------------------
def truth():
    said = {"pid": os.getpid(), "threads": {t.native_id: t.name for t in threading.enumerate()}}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        said["memory_stats"] = torch.cuda.memory_stats()
        said["segments"] = [{k: v for k, v in s.items() if k != "frames"} for s in torch.cuda.memory_snapshot()]
    schedulers, runners = engine_objects()
    if schedulers:
        said["scheduler"] = scheduler_truth(schedulers[0])
    if runners:
        said["runner"] = runner_truth(runners[0])
    if schedulers and runners and said["scheduler"].get("blocks"):
        said["block_values"] = block_values(said["scheduler"]["blocks"], runners[0])
    said["triton"] = sorted(triton_kernels())
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        said["rank"] = dist.get_rank()
    return said


def engine_objects():
    """(schedulers, model runners) that hang on the `self` of any thread's frames. Not by the garbage collector: engines freeze
    its objects after their start, and then it lists none of them."""
    schedulers, runners, seen = {}, {}, set()

    def look(one, depth):
        if one is None or id(one) in seen or depth > 5:
            return
        seen.add(id(one))
        kind = type(one).__name__
        if kind.endswith("Scheduler") and (hasattr(one, "running") or hasattr(one, "running_batch")):
            schedulers[id(one)] = one
        if kind.endswith("ModelRunner") and hasattr(one, "model"):
            runners[id(one)] = one
        for name in ("engine_core", "scheduler", "model_executor", "driver_worker", "worker", "model_runner", "tp_worker"):
            look(getattr(one, name, None), depth + 1)

    for frame in list(sys._current_frames().values()):
        while frame is not None:
            look(frame.f_locals.get("self"), 0)
            frame = frame.f_back
    return list(schedulers.values()), list(runners.values())


def tensor(t):
    return {
        "shape": list(t.shape),
        "stride": list(t.stride()),
        "dtype": str(t.dtype),
        "device": str(t.device),
        "ptr": t.data_ptr(),
    }


def scheduler_truth(s):
    if hasattr(s, "running_batch"):  # SGLang
        return {"running": [r.rid for r in s.running_batch.reqs], "waiting": [r.rid for r in s.waiting_queue]}
    pool = s.kv_cache_manager.block_pool
    return {
        "running": [r.request_id for r in list(s.running)],
        "waiting": [r.request_id for r in list(s.waiting)],
        "total": pool.num_gpu_blocks,
        "free": pool.free_block_queue.num_free_blocks,
        "computed": {r.request_id: r.num_computed_tokens for r in list(s.running)},
        "blocks": {r.request_id: [list(g) for g in s.kv_cache_manager.get_block_ids(r.request_id)] for r in list(s.running)},
    }


def runner_truth(r):
    said = {"class": f"{type(r).__module__}.{type(r).__qualname__}", "v2": hasattr(r, "req_states")}
    said["kv_caches"] = [tensor(t) for t in getattr(r, "kv_caches", None) or [] if hasattr(t, "data_ptr")]
    said["parameters"] = {name: tensor(p) for name, p in r.model.named_parameters()}
    if said["v2"]:
        states, tables = r.req_states, r.block_tables
        said["requests"] = dict(states.req_id_to_index)
        rows = sorted(said["requests"].values())
        said["block_tables"] = [tensor(t.gpu) for t in tables.block_tables]
        said["num_blocks"] = tables.num_blocks.np[:, rows].tolist()
        said["computed"] = states.num_computed_tokens_np[rows].tolist()
    elif hasattr(r, "input_batch"):
        said["requests"] = {name: i for i, name in enumerate(r.input_batch.req_ids)}
    return said


def block_values(blocks, runner):
    """What is in the first block of a request, which does not change any more: by layer its least and largest value, and how
    many are NaN."""
    name, groups = next(iter(blocks.items()))
    block = groups[0][0]
    layers = [cache[block].float() for cache in runner.kv_caches]
    values = [[float(v.min()), float(v.max()), int(v.isnan().sum())] for v in layers]
    return {"request": name, "block": block, "layers": values}


def triton_kernels():
    """Names of the kernels that Triton has loaded."""
    found = set()
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            while type(value).__name__ in ("Autotuner", "Heuristics"):
                value = value.fn
            if type(value).__name__ == "JITFunction":
                for cache in list(getattr(value, "device_caches", {}).values()):
                    found |= {kernel.name for kernel in list(cache[0].values()) if getattr(kernel, "function", None) is not None}
    return found


# ---- two ranks on one GPU, faults ------------------------------------------------------------------------------------
def share_gpu():
    from vllm.v1.worker import gpu_worker

    original = gpu_worker.Worker.init_device

    def init_device(self):
        os.environ["NCCL_HOSTID"] = f"gdbext-{self.rank}-{getattr(self.parallel_config, 'data_parallel_rank', 0)}"
        self.parallel_config.assigned_physical_gpu_ids = [0] * 16
        original(self)

    gpu_worker.Worker.init_device = init_device


def wait_for_fault(what, rank="0"):
    from vllm.v1.worker import gpu_worker

    trigger = os.path.join(os.environ["GDBEXT_WITNESS"], "fault")
    original, done = gpu_worker.Worker.execute_model, []

    def execute_model(self, *args, **kwargs):
        if (not done or what in EACH_STEP) and self.rank == int(rank) and os.path.exists(trigger):
            FAULTS[what](self.model_runner)
            if not done:
                done.append(what)
                open(os.path.join(os.environ["GDBEXT_WITNESS"], f"harmed.{os.getpid()}"), "w").close()
        return original(self, *args, **kwargs)

    gpu_worker.Worker.execute_model = execute_model


def spin(runner):
    """A kernel that does not end, ahead of the model's own in their stream."""
    import torch

    torch.cuda._sleep(1 << 44)


def skip(runner):
    """This rank leaves out its third all-reduce from now on."""
    from vllm.distributed.parallel_state import get_tp_group

    device, count = get_tp_group().device_communicator, []
    original = device.all_reduce

    def all_reduce(x, *args, **kwargs):
        count.append(1)
        return x.clone() if len(count) == 3 else original(x, *args, **kwargs)

    device.all_reduce = all_reduce


def tables(runner):
    """The block tables that steps are computed with, [request, block]: V2's are on the device alone, V1's are copied there."""
    if hasattr(runner, "block_tables"):
        return [t.gpu for t in runner.block_tables.block_tables]
    return [runner.input_batch.block_table[0].block_table.np]


def illegal(runner):
    """Block numbers far outside the cache."""
    for table in tables(runner):
        table[:] = 1 << 28


HARMED = {}  # {number of a block table: what it was given as each row's first block}


def wrong_block(runner):
    """Possible block numbers that are not the scheduler's, in rows that are new too."""
    for number, table in enumerate(tables(runner)):
        first, given = table[:, 0], HARMED.get(number)
        first += 7 if given is None else 7 * (first != given)
        HARMED[number] = first + 0


def nan(runner):
    """One weight of layer 2."""
    import torch

    with torch.no_grad():
        for name, p in runner.model.named_parameters():
            if "layers.2." in name and name.endswith("down_proj.weight"):
                p.view(-1)[7] = float("nan")


FAULTS = {"spin": spin, "skip": skip, "illegal": illegal, "table": wrong_block, "nan": nan}
EACH_STEP = {"table"}  # what ends with the requests that it met, else
