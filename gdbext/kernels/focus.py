"""The block of a kernel that works on a given sequence and attention head. The arithmetic of each kernel is shown with the
result.

Each rule is that of the kernels' sources (catalogue.json names them, and the rule of each kernel). A rule may need more than the
grid: the request that a block serves, how many heads share a block. It takes this from the launch's parameters
(kernels/parameters.py) or from the user.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Callable, List, Sequence, Tuple

from ..errors import GdbextError, NotFoundError
from . import parameters
from .catalogue import Kernel

Answer = Tuple[Tuple[int, int, int], List[str]]  # block (x, y, z), lines of arithmetic

PARTITION = 512  # tokens in a partition of paged_attention_v2
MAX_TABLE = 1 << 16  # entries of a table that is searched


class Question:
    """The question: which block works on a sequence and a head.

    * `seq`, `head`, `part` (partition, KV split, segment or query block): None where not given
    * `grid`, `name`: of the kernel, the name with its template arguments
    * `heads` (of the query), `queries` (query heads to a KV head), `rows` (query rows in a block, BLOCK_Q): the user may give
      them
    * `table`: the address of the kernel's index array on the device, which the user may give; `read(address, size)` reads there

    Values that the user does not give come from three sources. `launched()`: the bytes of the kernel's parameters. `facts()`: the
    `parameters.Facts` of a kernel that Triton compiled. `variable(name)`: a variable by the kernel's own debug information, or
    None."""

    def __init__(
        self,
        seq: int,
        head: int,
        part: int | None,
        grid: Sequence[int],
        *,
        heads: int | None = None,
        queries: int | None = None,
        rows: int | None = None,
        table: int | None = None,
        read: Callable[[int, int], bytes] | None = None,
        launched: Callable[[], bytes] | None = None,
        facts: Callable[[], parameters.Facts] | None = None,
        variable: Callable[[str], Any] | None = None,
        name: str = "",
    ) -> None:
        self.seq, self.head, self.part, self.grid, self.name = seq, head, part, tuple(grid), name
        self.heads, self.queries, self.rows, self.table, self.read = heads, queries, rows, table, read or _unreadable
        self.launched = launched
        self.facts: Callable[[], parameters.Facts] = facts or parameters.Facts
        self.variable: Callable[[str], Any] = variable or (lambda name: None)

    def words(self, address: int, count: int) -> tuple[int, ...]:
        """`count` 32-bit integers on the device."""
        if not 0 < count <= MAX_TABLE:
            raise GdbextError(f"the kernel's index array would have {count} entries: -table or -seq is wrong")
        return struct.unpack(f"<{count}i", self.read(address, 4 * count))


def _unreadable(address: int, size: int) -> bytes:
    raise GdbextError(f"the kernel's index array at {address:#x} cannot be read: no device memory is at hand here")


# Why no block can be named, by `unfocused` of the catalogue. `{scheduler}`: of the kernel's template arguments.
REFUSALS = {
    "tile-scheduler": "it is persistent ({scheduler}): a block takes its next tile of (sequence, head, rows) from a counter on "
    "the device when it has done one, so that which block works on a sequence is decided while it runs",
    "work-list": "it is persistent: block y works through the tiles work_indptr[y] to work_indptr[y + 1] of FlashInfer's plan, "
    "which name rows of the batch's queries and a KV head, no sequence",
    "sm-parts": "block z works through a range of sequences, from tile_scheduler_metadata[z] on the device, whose fields differ "
    "by release of FlashMLA",
    "one-request": "it works on one request alone: its blocks are parts of it and heads",
    "closed": "it comes as machine code without source: its grid is not known here",
}
_SCHEDULER = re.compile(r"\w*TileScheduler\w*")


def refusal(kernel: Kernel | None, name: str) -> str:
    """Why the block of a running kernel cannot be determined, in one clause. `kernel`: its entry of the catalogue, without a
    rule; `name`: with its template arguments."""
    advice = "focus a block by number with: cuda block (x,y,z)"
    if kernel is None:
        return f"it is none of the catalogue's kernels (llm-kernels): {advice}"
    if kernel.unfocused:
        found = _SCHEDULER.search(name)
        why = REFUSALS[kernel.unfocused].format(scheduler=found.group() if found else "it has a tile scheduler")
        return f"{why}; {advice}"
    return f"how its grid is cut into sequences and heads is not known here: {advice}"


def block_of(rule: str, question: Question) -> Answer:
    """(block (x, y, z), [lines of arithmetic]) of a rule; `GdbextError` where something is missing or the answer is outside the
    grid."""
    if rule not in RULES:
        raise NotFoundError(f"there is no rule {rule!r} of how a grid is laid out")
    block, lines = RULES[rule](question)
    for axis, at, size in zip("xyz", block, question.grid):
        if not 0 <= at < size:
            said = " * ".join(map(str, question.grid))
            raise GdbextError(
                f"block ({block[0]},{block[1]},{block[2]}) is outside the grid of {said} blocks: "
                f"{axis} goes from 0 to {size - 1}; " + "; ".join(lines)
            )
    return block, lines


def _heads_seqs(q: Question) -> Answer:
    return (q.head, q.seq, 0), [f"x = head = {q.head}", f"y = sequence = {q.seq}"]


def _heads_seqs_512(q: Question) -> Answer:
    part = q.part or 0
    return (q.head, q.seq, part), [
        f"x = head = {q.head}",
        f"y = sequence = {q.seq}",
        f"z = partition = {part}: tokens {part * PARTITION} to {part * PARTITION + PARTITION - 1} ({PARTITION} each)",
    ]


def _seqs_heads(q: Question) -> Answer:
    return (q.seq, q.head, 0), [f"x = sequence = {q.seq}", f"y = head = {q.head}"]


def _stage1(q: Question) -> Answer:
    part = q.part or 0
    return (q.seq, q.head, part), [f"x = sequence = {q.seq}", f"y = head = {q.head}", f"z = KV split = {part}"]


def _grouped(q: Question) -> Answer:
    """_fwd_grouped_kernel_stage1: a block has min(BLOCK_H, query heads to a KV head) heads."""
    part = q.part or 0
    if q.heads is not None:
        each, why = -(-q.heads // q.grid[1]), f"{q.heads} heads in {q.grid[1]} blocks"
    else:
        facts = q.facts()
        facts = facts.narrowed(
            lambda f: (
                "q_head_num" not in f or -(-f["q_head_num"] // min(f.get("BLOCK_H", 1), f.get("kv_group_num", 1))) == q.grid[1]
            )
        )
        both = [facts.get("BLOCK_H"), facts.get("kv_group_num")]
        if None in both:
            raise GdbextError(
                "-heads N is needed, the query heads of the model on this rank: "
                + facts.reason("BLOCK_H" if both[0] is None else "kv_group_num")
            )
        each, why = min(both), "the smaller of BLOCK_H = {} and kv_group_num = {}, by Triton".format(*both)
    y = q.head // each
    return (q.seq, y, part), [f"x = sequence = {q.seq}", f"y = head / {each} = {y} ({why})", f"z = KV split = {part}"]


def _seqs_kv_heads(q: Question) -> Answer:
    """kernel_paged_attention_2d: a block has all query heads of a KV head."""
    facts = q.facts()
    queries = q.queries if q.queries is not None else facts.get("num_queries_per_kv")
    if queries is None:
        raise GdbextError(f"-queries-per-kv N is needed: {facts.reason('num_queries_per_kv')}")
    return (q.seq, q.head // queries, 0), [f"x = sequence = {q.seq}", f"y = KV head = head / {queries} = {q.head // queries}"]


def _extend(q: Question) -> Answer:
    part = q.part or 0
    return (q.seq, q.head, part), [f"x = sequence = {q.seq}", f"y = head = {q.head}", f"z = block of query rows = {part}"]


def _unified(q: Question) -> Answer:
    facts = q.facts()
    facts = facts.narrowed(
        lambda f: "num_query_heads" not in f or f["num_query_heads"] == q.grid[1] * f.get("num_queries_per_kv", 0)
    )
    rows, queries, table = (
        given if given is not None else facts.get(name)
        for given, name in ((q.rows, "BLOCK_Q"), (q.queries, "num_queries_per_kv"), (q.table, "query_start_len_ptr"))
    )
    for value, option, name in (
        (rows, "-block-q N", "BLOCK_Q"),
        (queries, "-queries-per-kv N", "num_queries_per_kv"),
        (table, "-table ADDR, the device address of query_start_loc,", "query_start_len_ptr"),
    ):
        if value is None:
            raise GdbextError(f"{option} is needed: {facts.reason(name)}")
    starts = q.words(table, q.seq + 2)
    first = starts[q.seq] // rows + q.seq
    row_block = (q.part or 0) if q.grid[2] <= 1 else 0
    segment = (q.part or 0) if q.grid[2] > 1 else 0
    lines = (
        []
        if q.rows and q.queries and q.table
        else [f"BLOCK_Q = {rows}, num_queries_per_kv = {queries}, query_start_loc at {table:#x} (by Triton's own objects)"]
    )
    lines += [
        f"x = query_start_loc[{q.seq}] / {rows} + {q.seq} + row block {row_block} = "
        f"{starts[q.seq]} / {rows} + {q.seq} + {row_block} = {first + row_block}",
        f"y = KV head = head / {queries} = {q.head // queries}",
        f"z = segment = {segment}",
    ]
    length = starts[q.seq + 1] - starts[q.seq]
    if row_block * rows >= max(length, 1):
        raise GdbextError(f"sequence {q.seq} has {length} query rows: there is no block {row_block} of {rows} rows")
    return (first + row_block, q.head // queries, segment), lines


def _flashinfer(q: Question, place: str) -> tuple[int, int, list[str]]:
    lines, mask, queries, table = [], 0, q.queries, q.table
    if queries is None or table is None:
        found, source = _flashinfer_parameters(q, place)
        kv_heads, mask = q.grid[1 if place == "y" else 2], found["block_valid_mask"]
        queries, table = queries or found["num_qo_heads"] // kv_heads, table or found["request_indices"]
        lines = [
            f"num_qo_heads = {found['num_qo_heads']}, {kv_heads} KV heads in the grid, request_indices at {table:#x} ({source})"
        ]
    served = list(q.words(table, q.grid[0]))
    if mask:  # a CUDA graph's grid is larger than the batch
        served = [seq if valid else -1 for seq, valid in zip(served, q.read(mask, q.grid[0]))]
    blocks = [i for i, seq in enumerate(served) if seq == q.seq]
    if not blocks:
        raise NotFoundError(
            f"no block of the grid serves request {q.seq}: request_indices holds "
            f"{', '.join(map(str, served[:16]))}{', …' if len(served) > 16 else ''}"
        )
    part = q.part or 0
    if part >= len(blocks):
        raise GdbextError(f"request {q.seq} is cut into {len(blocks)} parts: there is no part {part}")
    lines += [
        f"x: request_indices[{blocks[part]}] = {q.seq}" + (f", its part {part} of {len(blocks)}" if len(blocks) > 1 else ""),
        f"{place} = KV head = head / {queries} = {q.head // queries}",
    ]
    return blocks[part], q.head // queries, lines


def _flashinfer_parameters(q: Question, place: str) -> tuple[dict[str, Any], str]:
    """`({"num_qo_heads", "request_indices", "block_valid_mask"}, where from)`"""
    names = ("num_qo_heads", "request_indices", "block_valid_mask")
    told = {name: q.variable("params." + name) for name in names}
    if None not in told.values():
        return told, "debug information"
    if q.launched is None:
        raise GdbextError(
            "-queries-per-kv N and -table ADDR (request_indices) are needed: the kernel's parameters cannot be read here"
        )
    found, known = parameters.flashinfer(
        "flashinfer-decode" if place == "y" else "flashinfer-prefill", q.launched(), q.grid, q.name
    )
    return found, f"its parameters, {known['structure']} of FlashInfer {known['releases']}, proved by the grid"


def _flashinfer_decode(q: Question) -> Answer:
    x, head, lines = _flashinfer(q, "y")
    return (x, head, 0), lines


def _flashinfer_prefill(q: Question) -> Answer:
    x, head, lines = _flashinfer(q, "z")
    return (x, 0, head), lines


def _flash_fwd(q: Question) -> Answer:
    part = q.part or 0
    return (part, q.seq, q.head), [f"x = block of query rows = {part}", f"y = sequence = {q.seq}", f"z = head = {q.head}"]


def _flash_splitkv(q: Question) -> Answer:
    heads = q.heads if q.heads is not None else _flash_heads(q)
    if heads is None and q.part is None:
        return (0, q.seq, q.head), [
            "x = block of query rows = 0",
            f"y = sequence = {q.seq} (one split: z is the head; -heads N where there are several)",
            f"z = head = {q.head}",
        ]
    if heads is None:
        raise GdbextError(
            "-heads N is needed, the query heads of the model on this rank: with several splits z = sequence * heads + head"
        )
    part = q.part or 0
    return (0, part, q.seq * heads + q.head), [
        "x = block of query rows = 0",
        f"y = split = {part}",
        f"z = {q.seq} * {heads} + {q.head} = {q.seq * heads + q.head}",
    ]


def _flash_heads(q: Question) -> int | None:
    """The number of query heads where the grid is (rows, splits, batch * heads), else None.

    It is read from Flash_fwd_params, which begins with Qkv_params: three pointers, nine strides of 64 bits, then h, h_k and their
    ratio (csrc/flash_attn/src/flash.h of 2.0.0 to 2.8.3)."""
    heads = q.variable("params.h")
    if heads is None and q.launched is not None:
        data = q.launched()
        heads, kv_heads, ratio = struct.unpack_from("<3i", data, 96) if len(data) >= 108 else (0, 0, 0)
        heads = heads if heads > 0 and kv_heads > 0 and heads == kv_heads * ratio else None
    return heads if heads and q.grid[2] > heads and q.grid[2] % heads == 0 else None


def _token(q: Question) -> Answer:
    return (q.seq, 0, 0), [f"x = token = {q.seq} of the batch (-seq counts tokens here: slot = slot_mapping[{q.seq}])"]


RULES: dict[str, Callable[[Question], Answer]] = {
    "heads-seqs": _heads_seqs,
    "heads-seqs-512": _heads_seqs_512,
    "seqs-heads": _seqs_heads,
    "stage1": _stage1,
    "grouped": _grouped,
    "extend": _extend,
    "seqs-kv-heads": _seqs_kv_heads,
    "unified": _unified,
    "flashinfer-decode": _flashinfer_decode,
    "flashinfer-prefill": _flashinfer_prefill,
    "flash-fwd": _flash_fwd,
    "flash-splitkv": _flash_splitkv,
    "token": _token,
}


def works_on(rule: str, block: Sequence[int]) -> dict[str, int]:
    """{"seq", "head", "part"} that a block works on, where the rule alone gives them; {} where a table is needed."""
    x, y, z = block
    return {
        "heads-seqs": {"seq": y, "head": x},
        "heads-seqs-512": {"seq": y, "head": x, "part": z},
        "seqs-heads": {"seq": x, "head": y},
        "extend": {"seq": x, "head": y, "part": z},
        "flash-fwd": {"seq": y, "head": z, "part": x},
        "token": {"seq": x},
    }.get(rule, {})
