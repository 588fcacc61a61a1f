"""The arrays that vLLM's model runner V2 keeps by row: numpy's, a device's, and those that have both
(vllm/v1/worker/gpu/buffer_utils.py, sample/states.py)."""

from __future__ import annotations

import struct
from typing import Any

from ... import log
from ...cpython.libraries import numpy_objects
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import GdbextError, LayoutError, NotFoundError
from ...torch.tensor import Tensor
from ...torch.tensor_impl import is_tensor, read_tensor
from ..objects import at, at_once, first_present, left_out, numbers_until, stands_in
from .paths import SAMPLING, V2_FOLDER

MAX_STAGED = 1 << 20  # numbers that wait to be written
MAX_COUNTS = 1 << 20
STAGING = ("stage_write", "stage_write_elem", "clear_staged_writes", "apply_write", "apply")  # functions that change those
SAMPLERS = ("sampler.sampling_states", "sampler.penalties_state", "req_states")  # of a runner: the owner of parameters by row


def in_rows(rt: Runtime, held: Object, rows: list[int]) -> list[Any]:
    """The numbers in some rows of a numpy array, a UvaBackedTensor (by the numpy array that it is filled from), a
    StagedWriteTensor or a tensor. `GdbextError` for one on a device."""
    array = held if numpy_objects.is_array(held) else at(held, "np")
    if array is not None:
        column = numpy_objects.read_array(array)
        return [column.part(row).elements(rt) for row in rows]
    tensor, writes = staged(rt, held)
    waiting = {index: content[0] for index, _, content in writes}
    return [waiting.get(row, value) for row, value in zip(rows, tensor.values([(row,) for row in rows]))]


def row_of(tensor: Tensor, row: int, count: int, staged: list[tuple[int, int, list[int]]]) -> list[int]:
    """The first numbers of a row of an int32 tensor of two dimensions, with those that wait to be written there."""
    shape, stride = tensor.shape or (), tensor.stride or ()
    if len(shape) != 2 or stride[1] != 1 or tensor.dtype.name != "int32" or not 0 <= row < shape[0] or not 0 <= count <= shape[1]:
        raise LayoutError(f"row {row} claims {count} numbers of a {tensor.dtype.name} tensor of {list(shape)}")
    found = list(struct.unpack(f"<{count}i", tensor.read_bytes(4 * stride[0] * row, 4 * count))) if count else []
    for index, start, content in staged:
        if index == row and start < count:
            found[start : start + len(content)] = content[: count - start]
    return found


def staged(rt: Runtime, held: Object) -> tuple[Tensor, list[tuple[int, int, list[int]]]]:
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
    if not len(rows) == len(starts) == len(ends) and stands_in(rt, STAGING, V2_FOLDER):
        count = min(len(rows), len(starts), len(ends))  # the lists are filled and emptied one after the other, in this order
        rows, starts, ends = rows[:count], starts[:count], ends[:count]
    begins = [0, *ends]
    if not len(rows) == len(starts) == len(ends) or begins != sorted(begins) or begins[-1] > len(contents):
        raise LayoutError(f"what waits to be written to the {held.type_name} at {held.address:#x} does not add up")
    return tensor, [(row, start, contents[a:b]) for row, start, a, b in zip(rows, starts, begins, ends)]


def lengths(rt: Runtime, held: Object) -> list[list[int]]:
    """How many blocks each row of each group has, [group][row]."""
    array = None if is_tensor(held) else at(held, "np")
    if array is not None:
        found: list[list[int]] = numpy_objects.values(array, MAX_COUNTS)
        return found
    tensor, _ = staged(rt, held)
    groups, rows = tensor.shape or (0, 0)
    numbers = tensor.values([(group, row) for group in range(groups) for row in range(rows)])
    return [numbers[group * rows : (group + 1) * rows] for group in range(groups)]


def values(rt: Runtime, held: Object | None) -> list[Any] | None:
    """The numbers of a tensor of one or two dimensions; None where they cannot be read."""
    try:
        if held is None or not is_tensor(held):
            return None
        tensor = read_tensor(rt, held.address)
        shape = tensor.shape or ()
        if tensor.doubt or len(shape) not in (1, 2):
            return None
        if len(shape) == 1:
            return tensor.values([(i,) for i in range(shape[0])])
        numbers = tensor.values([(i, k) for i in range(shape[0]) for k in range(shape[1])])
    except GdbextError as e:
        log.passed_over(e)
        return None
    return [numbers[i * shape[1] : (i + 1) * shape[1]] for i in range(shape[0])]


def sampling_arrays(runner: Object) -> dict[str, Object]:
    """{parameter: the array that has it by row}; {} on a rank that does not sample."""
    held = {name: first_present(runner, [("", f"{one}.{member}") for one in SAMPLERS]) for name, member in SAMPLING.items()}
    return {name: one for name, one in held.items() if one is not None}
