"""The requests of a batch as vLLM's model runner V2 keeps them (0.12 on; on GPUs the default of dense models since 0.26).

A request has a row for as long as it runs. The runner keeps up to three copies of each array:

* a numpy array in plain memory (`np`), which the runner fills
* pinned host memory that the GPU reads (`pool._uva_bufs`, UVA)
* memory of the device (`gpu` of a StagedWriteTensor: block tables, counts that kernels change)

Values for the device wait in lists (`_staged_write_…`) until the step's kernel applies them; they are valid from then on. Up to
0.13 most arrays are plain tensors of the device. Sources: vllm/v1/worker/gpu/states.py, block_table.py, buffer_utils.py,
sample/states.py, sample/penalties.py."""

from __future__ import annotations

from typing import Any

from ... import log
from ...cpython.libraries import numpy_objects
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import GdbextError, LayoutError
from ...kvcache.model import Row, Table, Worker
from ...kvcache.rules import WORKER_ROWS
from ...torch.tensor_impl import read_tensor
from ..objects import (
    at,
    first_integer,
    first_present,
    has,
    numbers_until,
    optional,
    stands_in,
    without_padding,
)
from . import kv_copies_v2
from .arrays_v2 import in_rows, lengths, row_of, sampling_arrays, staged
from .paths import FIRST_TOKENS, MAX_REQUESTS, V2_FOLDER

STATES = "req_states"
UPDATING = (  # functions in which the data read here is inconsistent
    *("add_requests", "update_requests", "update_states", "finish_requests", "free_states", "_remove_request"),  # model_runner.py
    *("add_request", "remove_request", "append_block_ids", "stage_write", "stage_write_elem", "clear_staged_writes"),
    *("apply_staged_writes", "copy_to_uva"),
)
VOCABULARY = (("0.14.0", "sampler.sampling_states.vocab_size"), ("0.12.0", f"{STATES}.vocab_size"))
TOKENS = (("0.16.0", "all_token_ids"), ("0.12.0", "prefill_token_ids"))


def is_v2(runner: Object) -> bool:
    """Whether a model runner is V2's."""
    return has(runner, STATES)


def rows_of(runner: Object) -> dict[str, int]:
    """{request id: its row} of a model runner V2."""
    held = runner.attr(STATES).attr("req_id_to_index").items(MAX_REQUESTS)
    return {name.string(1000): row.integer() for name, row in held}


def read_rows(runner: Object, worker: Worker) -> None:
    """Fills in a `Worker`'s tables and counts. A request is left out if another one got its row during the read."""
    rt, states = runner.rt, runner.attr(STATES)
    if not rt.target.is_stopped:
        rt.target.drop_pages()  # earlier reads would be of another moment than the data compared below
    before, others = rows_of(runner), _other_lists(states)
    worker.rows = {name: Row(row) for name, row in before.items()}
    worker.every_row = True
    _check_rows(states, worker, *others)
    _counts(rt, states, worker)
    _tokens(rt, states, worker)
    _sampling(runner, worker)
    worker.ahead = 1 + (optional(states, "num_speculative_steps", default=0) or 0)
    stages = first_integer(runner, (("0.12.0", "vllm_config.parallel_config.pipeline_parallel_size"),))
    worker.steps = min(worker.steps, stages + 2) if stages else worker.steps
    tables = at(runner, "block_tables")
    if tables is None:
        worker.unread.append(("block tables", "it has none yet: its KV cache is not set up"))
    else:
        _tables(rt, tables, worker)
        kv_copies_v2.read_step(runner, tables, worker)
    kv_copies_v2.check(runner, worker)
    worker.mid_update = stands_in(rt, UPDATING, V2_FOLDER)
    if not rt.target.is_stopped:
        rt.target.drop_pages()
        after = rows_of(runner)
        same = {name for name, row in before.items() if after.get(name) == row}
        if (before, others) == (after, _other_lists(states)):
            same.add("")
        worker.rows = {name: row for name, row in worker.rows.items() if name in same}
        worker.faults = [fault for fault in worker.faults if fault[1] in same]
        for table in worker.tables:
            table.rows = [(name, blocks) for name, blocks in table.rows if name in same]


# ---- which row is whose ----------------------------------------------------------------------------------------------------
def _other_lists(states: Object) -> tuple[dict[int, str], list[int]]:
    """(the request of each row, by the other map; the free rows)"""
    names = {row.integer(): name.string(1000) for row, name in states.attr("index_to_req_id").items(MAX_REQUESTS)}
    return names, numbers_until(states.rt, states.attr("free_indices"), MAX_REQUESTS)


def _check_rows(states: Object, worker: Worker, names: dict[int, str], free: list[int]) -> None:
    """Adds a fault to the worker where its two maps and its list of free rows disagree."""
    owner: dict[int, str] = {}
    for name, row in worker.rows.items():
        number = row.row
        if names.get(number) != name:
            other = names.get(number)
            whose = f"is {other}'s by index_to_req_id" if other is not None else "belongs to no request by index_to_req_id"
            worker.faults.append((WORKER_ROWS, name, f"row {number} of {name} {whose}"))
        if number in owner:
            worker.faults.append((WORKER_ROWS, name, f"row {number} belongs to {owner[number]} and to {name}"))
        if number in free:
            worker.faults.append((WORKER_ROWS, name, f"row {number} of {name} is in the list of free rows"))
        owner[number] = name
    said = {fault[2].split()[1] for fault in worker.faults}
    count = optional(states, "max_num_reqs")
    seen: set[int] = set()
    for number in free:
        if number in seen:
            worker.faults.append((WORKER_ROWS, "", f"row {number} is in the list of free rows twice"))
        elif count is not None and not 0 <= number < count:
            worker.faults.append((WORKER_ROWS, "", f"row {number} in the list of free rows is none of its {count}"))
        seen.add(number)
    for number, name in names.items():
        if number not in owner and str(number) not in said:
            worker.faults.append((WORKER_ROWS, "", f"row {number} is {name}'s by index_to_req_id, which has no row"))
    for number in set(range(count or 0)) - seen - set(owner) - set(names):
        worker.faults.append((WORKER_ROWS, "", f"row {number} is lost: it is neither a request's nor free"))
    for name, row in worker.rows.items():
        if count is not None and not 0 <= row.row < count:
            worker.faults.append((WORKER_ROWS, name, f"row {row.row} of {name} is none of its {count}"))


# ---- counters by row -------------------------------------------------------------------------------------------------------
def _counts(rt: Runtime, states: Object, worker: Worker) -> None:
    """Fills in the runner's counters for each request."""
    mirrored = has(states, "num_computed_tokens_np")
    computed = "num_computed_tokens_np" if mirrored else "num_computed_tokens"
    fields = [("prompt", "prompt_len"), ("prefill", "prefill_len"), ("total", "total_len"), ("computed", computed)]
    for field, name in fields + [("device", "num_computed_tokens")] * mirrored:
        held = at(states, name)
        if held is None:  # a release without it
            continue
        try:
            found = in_rows(rt, held, [row.row for row in worker.rows.values()])
        except GdbextError as e:
            if field == "device":
                log.passed_over(e)
            else:
                worker.unread.append((name, str(e)))
            continue
        for row, number in zip(worker.rows.values(), found):
            setattr(row, field, number)


def _tokens(rt: Runtime, states: Object, worker: Worker) -> None:
    """Fills in the tokens that each request began with, as far as they are compared."""
    held = first_present(states, TOKENS)
    try:
        if held is None:
            return
        array = at(held, "np")  # up to 0.13
        tensor, writes = (None, []) if array is not None else staged(rt, held)
        for row in worker.rows.values():
            count = min(row.prefill or 0, FIRST_TOKENS)
            if array is not None:
                row.tokens = numpy_objects.read_array(array).part((row.row, slice(0, count))).elements(rt)
            elif tensor is not None:
                row.tokens = row_of(tensor, row.row, count, writes)
    except GdbextError as e:
        log.passed_over(e)  # `Compared` says that none were


# ---- block tables ----------------------------------------------------------------------------------------------------------
def _tables(rt: Runtime, tables: Object, worker: Worker) -> None:
    """Fills in the block tables that can be read, and how long each is."""
    try:
        counts = lengths(rt, tables.attr("num_blocks"))
    except GdbextError as e:
        worker.unread.append(("block tables", str(e)))
        return
    sizes = tables.attr("kernel_block_sizes" if has(tables, "kernel_block_sizes") else "block_sizes")
    share = optional(tables, "cp_size", default=1) or 1  # ranks that each keep their part of a block's tokens
    for row in worker.rows.values():
        row.blocks = {group: column[row.row] for group, column in enumerate(counts) if 0 <= row.row < len(column)}
    for group, (held, size) in enumerate(zip(tables.attr("block_tables").elements(1000), numbers_until(rt, sizes, 1000))):
        worker.sizes[group] = size * share
        try:
            table = Table(group, worker.sizes[group], [], _slots(rt, tables, group), in_order=share == 1)
            _table(rt, held, table, worker, counts[group])
        except GdbextError as e:
            worker.unread.append((f"block table of group {group}", str(e)))
            continue
        worker.tables.append(table)


def _table(rt: Runtime, held: Object, table: Table, worker: Worker, counts: list[int]) -> None:
    """Fills in the rows of a block table. `counts`: how many blocks each row has."""
    tensor, writes = staged(rt, held)
    for row in worker.rows.values():
        if not 0 <= row.row < (tensor.shape or (0,))[0]:
            raise LayoutError(f"row {row.row} is none of a table of {list(tensor.shape or ())}")
    table.rows = [(name, row_of(tensor, row.row, row.blocks.get(table.group, 0), writes)) for name, row in worker.rows.items()]
    used, (height, width) = {row.row for row in worker.rows.values()}, tensor.shape or (0, 0)
    free = [(row, count) for row, count in enumerate(counts[:height]) if row not in used and 0 < count <= width]
    table.former = [row_of(tensor, row, count, []) for row, count in free]


def _slots(rt: Runtime, tables: Object, group: int) -> list[int]:
    """Slots of the last step's tokens, as `Table` wants them; [] where they are on a device, and before the first step. Each step
    pads the buffer behind its tokens: one without padding is full of them."""
    tensor = read_tensor(rt, tables.attr("slot_mappings").address)
    if tensor.doubt or tensor.shape is None or len(tensor.shape) != 2 or tensor.dtype.name != "int64":
        return []
    row = tensor.indexed([group])
    slots = row.values([(i,) for i in range(tensor.shape[1])])
    return without_padding(slots) if slots and slots[-1] == -1 else slots if any(slots) else []


# ---- how a request is sampled ----------------------------------------------------------------------------------------------
def sampling_of(runner: Object, request_id: str) -> dict[str, Any] | None:
    """{name: value} of a request's row in the sampler, by which its next token is drawn. None where it has no row, or this rank
    does not sample."""
    row = rows_of(runner).get(request_id)
    if row is None:
        return None
    found: dict[str, Any] = {"row": row}
    found.update((name, in_rows(runner.rt, held, [row])[0]) for name, held in sampling_arrays(runner).items())
    return found if len(found) > 1 else None


def _sampling(runner: Object, worker: Worker) -> None:
    """Fills in by what each request's next token is drawn."""
    worker.vocabulary = first_integer(runner, VOCABULARY)
    names, rows = list(worker.rows), [row.row for row in worker.rows.values()]
    for parameter, held in sampling_arrays(runner).items():
        try:
            for name, value in zip(names, in_rows(runner.rt, held, rows)):
                worker.rows[name].sampling[parameter] = value
        except GdbextError as e:
            log.passed_over(e)  # `Compared` says that none were
