"""The requests of a batch as vLLM's model runner V2 keeps them (0.12 on; on GPUs the default of dense models since 0.26).

A request has a row for as long as it runs. The runner keeps up to three copies of each array:

* a numpy array in plain memory (`np`), which the runner fills
* pinned host memory that the GPU reads (`pool._uva_bufs`, UVA)
* memory of the device (`gpu` of a StagedWriteTensor: block tables, counts that kernels change)

Values for the device wait in lists (`_staged_write_…`) until the step's kernel applies them; they are valid from then on. Up to
0.13 most arrays are plain tensors of the device. Sources: vllm/v1/worker/gpu/states.py, block_table.py, buffer_utils.py,
sample/states.py, sample/penalties.py."""

from __future__ import annotations

from ...cpython.thirdparty import numpy_objects
from ...errors import GdbextError, LayoutError, NotFoundError
from ...kvcache.model import Row, Table
from ...kvcache.rules import WORKER_ROWS
from ...torch.tensor_impl import is_tensor, read_tensor
from ..objects import at, at_once, has, left_out, numbers_until, optional, stands_in, without_padding
from .paths import MAX_REQUESTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...cpython.objects import Object
    from ...cpython.runtime import Runtime
    from ...kvcache.model import Worker
    from ...torch.tensor import Tensor

MAX_STAGED = 1 << 20  # numbers that wait to be written
MAX_COUNTS = 1 << 20
STATES = "req_states"
FOLDER = "/v1/worker/gpu"
UPDATING = (  # functions in which the data read here is inconsistent
    *("add_requests", "finish_requests", "free_states", "_remove_request"),  # model_runner.py
    *("add_request", "remove_request", "append_block_ids", "stage_write", "stage_write_elem", "clear_staged_writes"),
)
SAMPLERS = ("sampler.sampling_states", "sampler.penalties_state", STATES)  # of a runner: the owner of parameters by row
SAMPLING = {  # its name in SamplingParams: its name in the sampler
    **{n: n for n in ("temperature", "top_p", "top_k", "min_p")},
    "seed": "seeds",
    "logprobs": "num_logprobs",
    **{n: n for n in ("repetition_penalty", "frequency_penalty", "presence_penalty")},
}


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
    before = rows_of(runner)
    worker.rows = {name: Row(row) for name, row in before.items()}
    _check_rows(states, worker)
    _counts(rt, states, worker)
    tables = at(runner, "block_tables")
    if tables is None:
        worker.unread.append(("block tables", "it has none yet: its KV cache is not set up"))
    else:
        _tables(rt, tables, worker)
    worker.ahead = 1 + (optional(states, "num_speculative_steps", default=0) or 0)
    worker.mid_update = stands_in(rt, UPDATING, FOLDER)
    if not rt.target.is_stopped:
        rt.target.drop_pages()
        after = rows_of(runner)
        same = {name for name, row in before.items() if after.get(name) == row}
        worker.rows = {name: row for name, row in worker.rows.items() if name in same}
        worker.faults = [fault for fault in worker.faults if fault[1] in same]
        for table in worker.tables:
            table.rows = [(name, blocks) for name, blocks in table.rows if name in same]


# ---- which row is whose ----------------------------------------------------------------------------------------------------
def _check_rows(states: Object, worker: Worker) -> None:
    """Adds a fault to the worker where its two maps and its list of free rows disagree."""
    names = {row.integer(): name.string(1000) for row, name in states.attr("index_to_req_id").items(MAX_REQUESTS)}
    free = set(numbers_until(states.rt, states.attr("free_indices"), MAX_REQUESTS))
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


# ---- counters by row -------------------------------------------------------------------------------------------------------
def _counts(rt: Runtime, states: Object, worker: Worker) -> None:
    """Fills in the runner's counters for each request."""
    for field, name in (("prompt", "prompt_len"), ("prefill", "prefill_len"), ("total", "total_len"), ("computed", "")):
        name = name or ("num_computed_tokens_np" if has(states, "num_computed_tokens_np") else "num_computed_tokens")
        held = at(states, name)
        if held is None:  # a release without it
            continue
        try:
            for row in worker.rows.values():
                setattr(row, field, _at_row(rt, held, row.row))
        except GdbextError as e:
            worker.unread.append((name, str(e)))


def _at_row(rt: Runtime, held: Object, row: int) -> Any:
    """The number in one row of a numpy array, a UvaBackedTensor (by the numpy array that it is filled from), a StagedWriteTensor
    or a tensor. `GdbextError` for one on a device."""
    array = held if numpy_objects.is_array(held) else at(held, "np")
    if array is not None:
        return numpy_objects.item(array, row)
    tensor, staged = _staged(rt, held)
    waiting = [content[0] for index, _, content in staged if index == row]
    return waiting[-1] if waiting else tensor.values([(row,)])[0]


def _staged(rt: Runtime, held: Object) -> tuple[Tensor, list[tuple[int, int, list[int]]]]:
    """The memory of a StagedWriteTensor or a plain tensor, and the numbers that wait to be written there: [(row, first column,
    numbers)]."""
    plain = is_tensor(held)
    tensor = read_tensor(rt, (held if plain else held.attr("gpu")).address)
    if tensor.doubt:
        raise GdbextError(left_out(tensor))
    if plain:
        return tensor, []

    def lists() -> list[list[int]]:
        names = ("indices", "starts", "contents", "cu_lens")
        return [numbers_until(rt, held.attr(f"_staged_write_{name}"), MAX_STAGED) for name in names]

    def waiting() -> list[list[int]]:
        found = lists()
        if not rt.target.is_stopped:
            rt.target.drop_pages()
            if found != lists():
                raise NotFoundError("what waits to be written changes while it is read")
        return found

    rows, starts, contents, ends = at_once(rt, waiting)
    begins = [0, *ends]
    if not len(rows) == len(starts) == len(ends) or begins != sorted(begins) or begins[-1] > len(contents):
        raise LayoutError(f"what waits to be written to the {held.type_name} at {held.address:#x} does not add up")
    return tensor, [(row, start, contents[a:b]) for row, start, a, b in zip(rows, starts, begins, ends)]


# ---- block tables ----------------------------------------------------------------------------------------------------------
def _tables(rt: Runtime, tables: Object, worker: Worker) -> None:
    """Fills in the block tables that can be read, and how long each is."""
    try:
        counts = _lengths(rt, tables.attr("num_blocks"))
    except GdbextError as e:
        worker.unread.append(("block tables", str(e)))
        return
    sizes = tables.attr("kernel_block_sizes" if has(tables, "kernel_block_sizes") else "block_sizes")
    share = optional(tables, "cp_size", default=1) or 1  # ranks that each keep their part of a block's tokens
    for row in worker.rows.values():
        row.blocks = {group: lengths[row.row] for group, lengths in enumerate(counts) if 0 <= row.row < len(lengths)}
    for group, (held, size) in enumerate(zip(tables.attr("block_tables").elements(1000), numbers_until(rt, sizes, 1000))):
        worker.sizes[group] = size * share
        try:
            rows = _table(rt, held, group, worker)
        except GdbextError as e:
            worker.unread.append((f"block table of group {group}", str(e)))
            continue
        worker.tables.append(Table(group, worker.sizes[group], rows, _slots(rt, tables, group)))


def _lengths(rt: Runtime, held: Object) -> list[list[int]]:
    """How many blocks each row of each group has, [group][row]."""
    array = None if is_tensor(held) else at(held, "np")
    if array is not None:
        found: list[list[int]] = numpy_objects.values(array, MAX_COUNTS)
        return found
    tensor, _ = _staged(rt, held)
    groups, rows = tensor.shape or (0, 0)
    numbers = tensor.values([(group, row) for group in range(groups) for row in range(rows)])
    return [numbers[group * rows : (group + 1) * rows] for group in range(groups)]


def _table(rt: Runtime, held: Object, group: int, worker: Worker) -> list[tuple[str, list[int]]]:
    tensor, staged = _staged(rt, held)
    if tensor.shape is None or len(tensor.shape) != 2 or tensor.dtype.name != "int32":
        raise LayoutError(f"a block table of shape {tensor.shape} and type {tensor.dtype.name}")
    found = []
    for name, row in worker.rows.items():
        count = row.blocks.get(group, 0)
        if not 0 <= row.row < tensor.shape[0] or not 0 <= count <= tensor.shape[1]:
            raise LayoutError(f"row {row.row} of {name} claims {count} blocks of a table of {list(tensor.shape)}")
        blocks = tensor.indexed([row.row, slice(0, count)]).values([(i,) for i in range(count)])
        for index, start, content in staged:
            if index == row.row and start < count:
                blocks[start : start + len(content)] = content[: count - start]
        found.append((name, blocks))
    return found


def _slots(rt: Runtime, tables: Object, group: int) -> list[int]:
    """Slots of the last step's tokens, as `Table` wants them; [] where they are on a device."""
    tensor = read_tensor(rt, tables.attr("slot_mappings").address)
    if tensor.doubt or tensor.shape is None or len(tensor.shape) != 2 or tensor.dtype.name != "int64":
        return []
    row = tensor.indexed([group])
    return without_padding(row.values([(i,) for i in range(tensor.shape[1])]))


# ---- how a request is sampled ----------------------------------------------------------------------------------------------
def sampling_of(runner: Object, request_id: str) -> dict[str, Any] | None:
    """{name: value} of a request's row in the sampler, by which its next token is drawn. None where it has no row, or this rank
    does not sample."""
    row = rows_of(runner).get(request_id)
    if row is None:
        return None
    found: dict[str, Any] = {"row": row}
    for name, member in SAMPLING.items():
        held = next((one for holder in SAMPLERS for one in [at(runner, f"{holder}.{member}")] if one is not None), None)
        if held is not None:
            found[name] = _at_row(runner.rt, held, row)
    return found if len(found) > 1 else None
