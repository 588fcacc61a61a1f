"""What vLLM's model runner V2 keeps twice, and what its last step read: host and device halves, pointers that kernels go by, the
tables that were gathered for attention (vllm/v1/worker/gpu/block_table.py, buffer_utils.py, model_runner.py)."""

from __future__ import annotations

from typing import Any

from ... import log
from ...cpython.libraries import numpy_objects
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import GdbextError
from ...kvcache.rules import WORKER_COPY
from ...torch.tensor_impl import is_tensor, read_tensor
from ..objects import at, is_set, settled_frames
from .arrays_v2 import MAX_COUNTS, row_of, sampling_arrays, values
from .paths import V2_FOLDER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...kvcache.model import Worker

PAIRS = ("req_states.prompt_len", "req_states.prefill_len", "block_tables.num_blocks")  # of a runner: UvaBackedTensors
POINTERS = (("block_table_ptrs", "block_tables"), ("input_block_table_ptrs", "input_block_tables"))
PREPARING = (  # functions of a step before its tables are gathered, and those that gather them
    *("finish_requests", "free_states", "add_requests", "update_requests", "apply_staged_writes"),
    *("gather_batch_req_state", "prepare_inputs", "prepare_attn", "gather_block_tables", "compute_slot_mappings"),
)
STEP, PREPARED = "execute_model", ("slot_mappings", "attn_metadata")  # the step's function, and what it has once it is prepared
OWN_STEPS = "pcp_manager"  # it keeps tables of its own for each step


def read_step(runner: Object, tables: Object, worker: Worker) -> None:
    """Fills in what the last step read. While the next one is prepared, it belongs to other requests than the rows: then it is
    left out."""
    waits = any(map(_waits, _elements(at(tables, "block_tables"))))
    why = "it prepares its next step" if waits or _prepares(runner.rt) else ""
    why = why or "each step has tables of its own" * is_set(runner, OWN_STEPS)
    if why:
        for table in worker.tables:
            table.slots = []
        worker.unread += [("its last step", why)] * runner.rt.target.is_stopped
        return
    starts = values(runner.rt, at(runner, "input_buffers.query_start_loc")) or []
    worker.requests = starts.index(max(starts)) if starts and max(starts) else None
    copies = at(tables, "input_block_tables")
    held = [] if copies is None else copies.elements(1000)
    for table in worker.tables:
        rows = worker.requests if worker.requests is not None else len(worker.rows) + len(table.former)
        width = max((len(blocks) for blocks in [*dict(table.rows).values(), *table.former]), default=0)
        try:
            tensor = read_tensor(runner.rt, held[table.group].address)
            if not tensor.doubt and tensor.shape is not None:
                columns = min(width, tensor.shape[1])
                table.gathered = [row_of(tensor, row, columns, []) for row in range(min(rows, tensor.shape[0]))]
        except (GdbextError, IndexError) as e:
            log.note("the tables of the last step are not read: %s", e)


def _prepares(rt: Runtime) -> bool:
    """Whether a thread is in a step whose tables are not gathered yet."""
    inside = [frame for frames in settled_frames(rt) for frame in frames if frame.file.rpartition("/")[0].endswith(V2_FOLDER)]
    if any(frame.function.rpartition(".")[2] in PREPARING for frame in inside):
        return True
    step = next((frame for frame in inside if frame.function.rpartition(".")[2] == STEP), None)
    try:
        return step is not None and not {name for name, value in step.locals() if value is not None}.intersection(PREPARED)
    except GdbextError as e:
        log.passed_over(e)
        return True


def check(runner: Object, worker: Worker) -> None:
    """Adds a fault for each pair of copies that differ, in rows that are in use. Between two steps nothing waits to be copied."""
    if any(_waits(table) for table in _elements(at(runner, "block_tables.block_tables"))):
        return
    names = {row.row: name for name, row in worker.rows.items()}
    pairs = [(path.rpartition(".")[2], at(runner, path)) for path in PAIRS]
    for what, held in [*pairs, *sampling_arrays(runner).items()]:
        host, device = _halves(runner.rt, held)
        for group, (own, other) in enumerate(zip(host, device)):
            differ = [row for row in names if row < len(own) == len(other) and own[row] != other[row]]
            alike = [own[row] for row in names if row < len(own) == len(other) and own[row] == other[row]]
            if not set(alike).difference((0, 1, worker.vocabulary)):
                continue  # what both begin with: no row shows that the array is copied at all
            worker.copies += len(alike) + len(differ)
            for row in differ:
                where = f"{what} of group {group}" if len(host) > 1 else what
                detail = f"{where} of {names[row]} (row {row}): {own[row]} on the host, {other[row]} for the device"
                worker.faults.append((WORKER_COPY, names[row], detail))
    _check_pointers(runner, worker)


def _check_pointers(runner: Object, worker: Worker) -> None:
    for name, whose in POINTERS:
        pointers = values(runner.rt, at(runner, f"block_tables.{name}")) or []
        for group, (pointer, held) in enumerate(zip(pointers, _elements(at(runner, f"block_tables.{whose}")))):
            try:
                tensor = read_tensor(runner.rt, (held if is_tensor(held) else held.attr("gpu")).address)
            except GdbextError as e:
                log.passed_over(e)
                continue
            worker.copies += 1
            if tensor.data_ptr and tensor.data_ptr != pointer % (1 << 64):
                detail = f"{name} of group {group} leads to {pointer % (1 << 64):#x}, its table is at {tensor.data_ptr:#x}"
                worker.faults.append((WORKER_COPY, "", detail))


def _halves(rt: Runtime, held: Object | None) -> tuple[list[Any], list[Any]]:
    """The host's and the device's numbers of a UvaBackedTensor, each as [[of a row, …] of a group, …]; empty where one of them
    cannot be read, or it has no two halves."""
    array = None if held is None or is_tensor(held) or numpy_objects.is_array(held) else at(held, "np")
    device = None if array is None or held is None else values(rt, at(held, "gpu"))
    if array is None or device is None:
        return [], []
    host = numpy_objects.values(array, MAX_COUNTS)
    return [one if one and isinstance(one[0], list) else [one] for one in (host, device)]  # type: ignore[return-value]


def _elements(held: Object | None) -> list[Object]:
    return [] if held is None else list(held.elements(1000))


def _waits(table: Object) -> bool:
    """Whether numbers wait to be written to a table of the device: what is copied with them waits too."""
    waiting = at(table, "_staged_write_indices")
    return waiting is not None and waiting.len() > 0
