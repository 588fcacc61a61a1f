"""A vLLM release's own Scheduler, and beside it what its model runner V2 keeps of the requests: RequestState, BlockTables and
sampler states of that release, fed with what the scheduler hands out; then it waits.

  vllm_v2_worker.py FOLDER VERSION [GROUPS [device]]     GROUPS: full | hybrid | draft; device: the one in `runner` is that of
                                                         "device"

The kernels that write to the device, and pinned memory, are stood in for here. `runners[NAME]` are copies of the runner in which
something is wrong, or looks like it (`expected`: [rule, request], null for twins); "device": with block tables and counts whose
tensors are of device "cuda", in memory that cannot be read, as a GPU's; its UVA tensors are of that device too, and can be."""

import copy
import inspect
import json
import os
import sys
import time
import types
from importlib import import_module

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import older_engine
import vllm_release
from older_engine import Config
from on_device import Device

GPU = "vllm.v1.worker.gpu"
REAL = (
    *older_engine.REAL,
    *(f"{GPU}.{n}" for n in ("states", "block_table", "buffer_utils", "sample.states", "sample.penalties")),
)
ROWS, VOCABULARY = 8, 64


class ApplyWrite:
    """`_apply_write_kernel`: what waits in the lists goes to the tensor."""

    def __getitem__(self, grid):
        def run(output, stride, indices, starts, contents, ends, *more, **names):
            flat, begin = output.view(-1), 0
            for index, start, end in zip(*(one[: grid[0]].tolist() for one in (indices, starts, ends))):
                at = index * stride + start
                flat[at : at + end - begin] = contents[begin:end].to(output.dtype)
                begin = end

        return run


def stand_in():
    """For the GPU: pinned memory and views of it, copies to it, and the kernel that writes."""
    try:
        buffers = import_module(f"{GPU}.buffer_utils")
    except ImportError:  # up to 0.13
        buffers = import_module(f"{GPU}.states")
        buffers.bincount = lambda *args: None
    penalties = import_module(f"{GPU}.sample.penalties")
    if "bincount" in vars(penalties):
        penalties.bincount = lambda *args: None
    zeros = torch.zeros
    torch.zeros = lambda *args, pin_memory=False, **names: zeros(*args, **names)
    torch.cuda.synchronize = lambda: None
    buffers.is_uva_available = lambda: True
    for name in ("get_cuda_view_from_cpu_tensor", "get_accelerator_view_from_cpu_tensor"):  # up to 0.14; later
        setattr(buffers, name, lambda tensor: tensor)
    buffers.async_tensor_h2d = to_tensor
    buffers._apply_write_kernel = ApplyWrite()
    buffers.next_power_of_2 = lambda n: 1 << max(0, n - 1).bit_length()
    if "FusedStagedWriter" in vars(buffers):  # of several groups
        buffers.FusedStagedWriter.apply = lambda self, tensors, *pointers: [t.apply_write() for t in tensors]


def to_tensor(data, *args, **names):
    return torch.tensor(data, dtype=next(a for a in (*args, *names.values()) if isinstance(a, torch.dtype)))


class GPUModelRunner:
    """What model_runner.py's class of that name keeps, and how it keeps it up."""

    def __init__(self, sizes, max_len, drafts=0):
        fill, device = vllm_release.fill, torch.device("cpu")
        common = dict(
            max_num_reqs=ROWS,
            max_model_len=max_len,
            max_num_batched_tokens=512,
            num_speculative_steps=drafts,
            vocab_size=VOCABULARY,
            device=device,
            pin_memory=False,
        )
        self.kv_caches = []
        self.req_states = fill(import_module(f"{GPU}.states").RequestState, **common)
        self.block_tables = fill(
            import_module(f"{GPU}.block_table").BlockTables,
            **common,
            block_sizes=sizes,
            kernel_block_sizes=sizes,
            max_num_blocks_per_group=[max_len // size for size in sizes],
        )
        self.sampler = None
        if not hasattr(self.req_states, "temperature"):  # from 0.14 on the sampler keeps the parameters
            samples, penalties = (import_module(f"{GPU}.sample.{name}") for name in ("states", "penalties"))
            state = next(getattr(samples, n) for n in ("SamplingStates", "SamplingState") if n in vars(samples))
            self.sampler = types.SimpleNamespace(
                sampling_states=fill(state, **common),
                penalties_state=made(penalties.PenaltiesState, **common, req_states=self.req_states, vllm_config=Config()),
            )

    def take(self, plan):
        """`finish_requests`, `add_requests` and `update_requests` of model_runner.py."""
        for name in (*(plan.preempted_req_ids or ()), *plan.finished_req_ids):
            self.req_states.remove_request(name)
        for new in plan.scheduled_new_reqs:
            self.req_states.remove_request(new.req_id)
            values = {"prefill_token_ids": new.prefill_token_ids, "all_token_ids": new.prefill_token_ids}
            length = len(new.prompt_token_ids)
            vllm_release.fill(
                self.req_states.add_request,
                req_id=new.req_id,
                prompt_len=length,
                num_computed_tokens=new.num_computed_tokens,
                max_tokens=200,
                sampling_params=sampling_of(new.req_id),
                **values,
            )
            row = self.req_states.req_id_to_index[new.req_id]
            self.append(row, new.block_ids, True)
            if self.sampler is not None:
                self.sampler.sampling_states.add_request(row, sampling_of(new.req_id))
                self.sampler.penalties_state.add_request(row, sampling_of(new.req_id))
        if plan.scheduled_new_reqs and hasattr(self.req_states, "apply_staged_writes"):
            self.req_states.apply_staged_writes()
        cached = plan.scheduled_cached_reqs
        for name, computed, blocks in zip(cached.req_ids, cached.num_computed_tokens, cached.new_block_ids):
            row = self.req_states.req_id_to_index[name]
            if hasattr(self.req_states, "num_computed_tokens_np"):
                self.req_states.num_computed_tokens_np[row] = computed
            if blocks is not None:
                self.append(row, blocks, False)
        if hasattr(self.block_tables, "apply_staged_writes"):
            self.block_tables.apply_staged_writes()

    def append(self, row, blocks, overwrite):
        tables = self.block_tables
        if hasattr(tables, "apply_staged_writes"):
            tables.append_block_ids(row, blocks, overwrite)
            return
        for group, new in enumerate(blocks):  # up to 0.13 a kernel of its own does it
            start = 0 if overwrite else int(tables.num_blocks[group, row])
            tables.block_tables[group][row, start : start + len(new)] = torch.tensor(new, dtype=torch.int32)
            tables.num_blocks[group, row] = start + len(new)

    def sampled(self, name, computed, total, drafts):
        """What the kernels behind the step write: `post_update`. The scheduler hears of the tokens after that."""
        row = self.req_states.req_id_to_index.get(name)
        if row is None:
            return
        device(self.req_states.num_computed_tokens)[row] = computed
        if hasattr(self.req_states, "total_len"):
            self.req_states.total_len.gpu[row] = total
        if drafts:
            self.req_states.draft_tokens[row] = torch.tensor(drafts)


def feed(runner, scheduler):
    """From now on the runner hears of each step that the scheduler hands out."""
    plain, scheduler.worker = scheduler.schedule, runner

    def schedule():
        plan = plain()
        runner.take(plan)
        return plan

    scheduler.schedule = schedule


def made(kind, **values):
    """An object of a class whose base is a stub, which hides its parameters."""
    wanted = inspect.signature(kind.__init__).parameters
    return kind(**{n: v for n, v in values.items() if n in wanted})


def device(held):
    """The tensor of the device."""
    return held if isinstance(held, torch.Tensor) else held.gpu


def host(held):
    """What can be written and read by row without a device."""
    return held.np if hasattr(held, "np") else held if not hasattr(held, "gpu") else held.gpu


def computed_of(states):
    return states.num_computed_tokens_np if hasattr(states, "num_computed_tokens_np") else device(states.num_computed_tokens)


def sampling_of(name):
    """Parameters that differ from request to request."""
    number = ord(name[-1])
    return Config(
        temperature=number / 128,
        top_p=0.5,
        top_k=number % 7,
        min_p=0.25,
        seed=number,
        repetition_penalty=1.5,
        frequency_penalty=0.25,
        presence_penalty=0.125,
    )


# ---- what is wrong --------------------------------------------------------------------------------------------------------
def harmed(runner, scheduler):
    """-> ({name: a copy of the runner}, {name: [rule, request] that is found first, None for a twin})"""
    known = scheduler.requests
    names = sorted(runner.req_states.req_id_to_index, key=lambda n: (getattr(known[n], "num_preemptions", 0), n))
    first, second = names[:2]
    copies, expected = {}, {}

    def variant(name, rule=None, request=first):
        copies[name] = copy.deepcopy(runner)
        point(copies[name].block_tables)
        expected[name] = [rule, request] if rule else None
        states = copies[name].req_states
        return states, copies[name].block_tables, states.req_id_to_index.get(request)

    variant("sound")
    states, tables, row = variant("first block + 7", "worker-table")
    device(tables.block_tables[0])[row, 0] += 7
    states, tables, row = variant("a block beyond the cache", "worker-range", second)
    device(tables.block_tables[0])[row, 1] = 1 << 20
    states, tables, row = variant("a block beyond its length")
    device(tables.block_tables[0])[row, int(host(tables.num_blocks)[0, row])] = 1 << 20
    states, tables, row = variant("swapped rows", "worker-rows")
    index = states.req_id_to_index
    index[first], index[second] = index[second], index[first]
    states, tables, row = variant("swapped rows in both maps", "worker-table")
    index = states.req_id_to_index
    index[first], index[second] = index[second], index[first]
    states.index_to_req_id.update({row: name for name, row in index.items()})
    states, tables, row = variant("a row that is free", "worker-rows", second)
    states.free_indices.append(row)
    begun = [n for n in names if known[n].num_output_tokens and not getattr(known[n], "num_preemptions", 0)][:1]
    harm_rows(variant, copies, begun)
    states, tables, row = variant("prompt", "worker-length")
    host(states.prompt_len)[row] += 1
    states, tables, row = variant("more blocks than it has", "worker-length", second)
    host(tables.num_blocks)[0, row] += 1
    drafts = getattr(scheduler, "num_spec_tokens", 0)  # that are refused may put a worker before its scheduler
    for name, less in (("computed too little", 40), ("computed too much", -40 if drafts else -1)):
        states, tables, row = variant(name, "worker-length")
        computed_of(states)[row] = scheduler.requests[first].num_computed_tokens - less
    states, tables, row = variant("a step behind")
    computed_of(states)[row] -= 1
    host(tables.num_blocks)[0, row] -= 1
    if hasattr(tables.num_blocks, "pool"):
        tables.num_blocks.gpu[0, row] -= 1
    if not hasattr(runner.block_tables, "apply_staged_writes"):
        variant("device")
        return copies, expected
    harm_halves(variant, runner, begun)
    states, tables, row = variant("blocks that wait to be written")
    for group, table in enumerate(tables.block_tables):
        count = int(tables.num_blocks.np[group, row])
        blocks = table.gpu[row, :count].tolist()
        table.gpu[row, 1:count] = 0
        table.stage_write(row, 1, blocks[1:])
    states, tables, row = variant("blocks that wait, one of them wrong", "worker-table")
    tables.block_tables[0].stage_write(row, 0, [int(tables.block_tables[0].gpu[row, 0]) + 7])
    variant("device")
    return copies, expected


def harm_rows(variant, copies, begun):
    """In the lists of rows, and in what the rows hold of their requests. `begun`: a request that the worker must have."""
    states, tables, row = variant("a row that is free twice", "worker-rows", None)
    states.free_indices.append(states.free_indices[0])
    states, tables, row = variant("a lost row", "worker-rows", None)
    states.free_indices.pop(0)
    for name in begun:
        states, tables, row = variant("a lost request", "worker-rows", name)
        row = states.req_id_to_index.pop(name)
        states.index_to_req_id.pop(row)
        states.free_indices.append(row)
    states, tables, row = variant("another token", "worker-tokens")
    tokens = states.all_token_ids if hasattr(states, "all_token_ids") else states.prefill_token_ids
    host(tokens)[row, 3] += 1
    for parameter in ("temperature", "top_p", "seeds"):
        states, tables, row = variant(f"another {parameter}", "worker-sampling")
        host(sampler_of(copies[f"another {parameter}"], parameter))[row] += 0.25 if parameter != "seeds" else 1
    states, tables, row = variant("a pointer", "worker-copy", None)
    tables.input_block_table_ptrs[0] = int(tables.input_block_table_ptrs[0]) + 64


def harm_halves(variant, runner, begun):
    """In one of two copies of a value."""
    pairs = {"num_blocks": runner.block_tables, "prompt_len": runner.req_states, "prefill_len": runner.req_states}
    for what in (what for what, holder in pairs.items() if hasattr(getattr(holder, what), "pool")):
        states, tables, row = variant(f"the device's {what}", "worker-copy")
        held = tables.num_blocks.gpu[0] if what == "num_blocks" else getattr(states, what).gpu
        held[row] += 1
    if begun and hasattr(runner.req_states, "num_computed_tokens_np"):
        for less in (90, -90):
            states, tables, row = variant(f"the device's computed tokens {less} less", "worker-length", begun[0])
            states.num_computed_tokens.gpu[row] -= less


def point(tables):
    """Lets the pointers lead to the tables, as those of a runner do that is no copy."""
    tables.block_table_ptrs = tables._make_ptr_tensor([device(one) for one in tables.block_tables])
    tables.input_block_table_ptrs = tables._make_ptr_tensor(tables.input_block_tables)


def sampler_of(runner, parameter):
    """The array that has a sampling parameter."""
    states = runner.req_states if runner.sampler is None else runner.sampler.sampling_states
    return getattr(states, parameter)


def on_the_device(runner):
    """Makes the runner's tensors what they are on a GPU: of device "cuda", and those that are not UVA in memory that nobody can
    read. -> the `Device`"""
    gpu = Device(1 << 20)
    states, tables = runner.req_states, runner.block_tables
    for held in (tables.num_blocks, states.prefill_len, states.prompt_len):
        if isinstance(getattr(held, "gpu", None), torch.Tensor) and hasattr(held, "pool"):
            gpu.name(held.gpu)
    counts = [getattr(states, n) for n in ("total_len", "num_computed_tokens") if hasattr(states, n)]
    for held in (*tables.block_tables, *counts, *([tables.num_blocks] if isinstance(tables.num_blocks, torch.Tensor) else [])):
        gpu.put(device(held))
    gpu.put(tables.slot_mappings)
    point(tables)
    return gpu


def parameters(runner):
    """Names of the sampling parameters that the release keeps; it calls the seed `seeds`."""
    holders = (runner.req_states, *(vars(runner.sampler).values() if runner.sampler is not None else ()))
    return {name.replace("seeds", "seed") for holder in holders for name in vars(holder)}


def truth(runner):
    """What the runner says of itself, by its own arrays."""
    states, tables, found = runner.req_states, runner.block_tables, {}
    for name, row in states.req_id_to_index.items():
        counts = host(tables.num_blocks)[:, row].tolist()
        found[name] = {
            "row": row,
            "prompt": int(host(states.prompt_len)[row]),
            "prefill": int(states.prefill_len.np[row]),
            "computed": int(computed_of(states)[row]),
            "total": int(states.total_len.gpu[row]) if hasattr(states, "total_len") else None,
            "blocks": {str(group): count for group, count in enumerate(counts)},
            "drafts": states.draft_tokens[row].tolist(),
            "tables": [device(t)[row, :count].tolist() for t, count in zip(tables.block_tables, counts)],
            "sampling": {k: v for k, v in vars(sampling_of(name)).items() if k != "top_k" and k in parameters(runner)},
        }
    return found


def main():
    folder, version, kind = sys.argv[1], sys.argv[2], (sys.argv[3:] or ["full"])[0]
    older_engine.KNOWN["vllm.envs"].VLLM_USE_V2_MODEL_RUNNER = True
    older_engine.use(folder, version, real=REAL)
    stand_in()
    plain_config = vllm_release.config_of
    vllm_release.config_of = lambda kind: _with_v2(plain_config(kind))
    scheduler = vllm_release.scheduler_of(version, kind)
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    runner = GPUModelRunner([m.block_size for m in managers], 256, vllm_release.DRAFTS if kind == "draft" else 0)
    feed(runner, scheduler)
    vllm_release.story(scheduler, kind)
    del scheduler.schedule, scheduler.worker
    for request in scheduler.requests.values():
        request.sampling_params = sampling_of(request.request_id)
    runners, expected = harmed(runner, scheduler)
    said = truth(runner)
    gpu = on_the_device(runners["device"])
    if sys.argv[4:] == ["device"]:
        runner = runners["device"]
    told = {"pid": os.getpid(), "rows": said, "expected": expected, "device": gpu.said(), **vllm_release.truth(scheduler)}
    print(json.dumps(told), flush=True)
    while gpu:
        time.sleep(1000)


def _with_v2(config):
    config.use_v2_model_runner = True
    return config


if __name__ == "__main__":
    main()
