"""Which block of a kernel works on a given sequence and attention head: the arithmetic of each kernel, shown as it is done.

Each rule is that of the kernels' sources (catalogue.json names them and which rule a kernel follows). A rule that needs a table of the
kernel's own (which request a block serves) reads it through `Question.table`.
"""

import struct

from ..errors import GdbextError, NotFoundError

PARTITION = 512  # tokens in a partition of paged_attention_v2
MAX_TABLE = 1 << 16  # entries of a table that is searched


class Question:
    """What is asked: `seq`, `head` and `part` (partition, KV split, segment or query block; None where not given), the kernel's `grid`, and what only the user
    can tell: `heads` (of the query), `kv_heads`, `queries` (query heads to a KV head), `rows` (query rows in a block, BLOCK_Q), `table`: the address of the
    kernel's index array on the device; `read(address, size)` reads there."""

    def __init__(self, seq, head, part, grid, heads=None, queries=None, rows=None, table=None, read=None):
        self.seq, self.head, self.part, self.grid = seq, head, part, tuple(grid)
        self.heads, self.queries, self.rows, self.table, self.read = heads, queries, rows, table, read

    def need(self, name, why):
        value = getattr(self, name)
        if value is None:
            option = {"rows": "block-q", "queries": "queries-per-kv"}.get(name, name)
            raise GdbextError(f"-{option} is needed: {why}")
        return value

    def words(self, count):
        """`count` 32-bit integers of the table."""
        if self.table is None or self.read is None:
            raise GdbextError("-table ADDR is needed: the device address of the kernel's own index array (its argument; llm-launch shows arguments at the launch)")
        if not 0 < count <= MAX_TABLE:
            raise GdbextError(f"a table of {count} entries is more than makes sense")
        return struct.unpack(f"<{count}i", self.read(self.table, 4 * count))


def block_of(rule, question):
    """(block (x, y, z), [lines of arithmetic]) of a rule; `GdbextError` where something is missing or the answer is outside the grid."""
    if rule not in RULES:
        raise NotFoundError("how its blocks are laid out is not known: persistent kernels map no block to a sequence; focus a block by number with: cuda block (x,y,z)")
    block, lines = RULES[rule](question)
    for axis, at, size in zip("xyz", block, question.grid):
        if not 0 <= at < size:
            said = " * ".join(map(str, question.grid))
            raise GdbextError(f"block ({block[0]},{block[1]},{block[2]}) is outside the grid of {said} blocks: {axis} goes from 0 to {size - 1}; " + "; ".join(lines))
    return block, lines


def _heads_seqs(q):
    return (q.head, q.seq, 0), [f"x = head = {q.head}", f"y = sequence = {q.seq}"]


def _heads_seqs_512(q):
    part = q.part or 0
    return (q.head, q.seq, part), [f"x = head = {q.head}", f"y = sequence = {q.seq}",
                                   f"z = partition = {part}: tokens {part * PARTITION} to {part * PARTITION + PARTITION - 1} ({PARTITION} each)"]  # fmt: skip


def _seqs_heads(q):
    return (q.seq, q.head, 0), [f"x = sequence = {q.seq}", f"y = head = {q.head}"]


def _stage1(q):
    part = q.part or 0
    each, why = 1, "one head in each"
    if q.heads is not None:
        each = -(-q.heads // q.grid[1])
        why = f"{q.heads} heads in {q.grid[1]} blocks"
    y = q.head // each
    return (q.seq, y, part), [f"x = sequence = {q.seq}", f"y = head / {each} = {y} ({why}; -heads N for grouped kernels)", f"z = KV split = {part}"]


def _extend(q):
    part = q.part or 0
    return (q.seq, q.head, part), [f"x = sequence = {q.seq}", f"y = head = {q.head}", f"z = block of query rows = {part}"]


def _unified(q):
    rows = q.need("rows", "query rows in a block (BLOCK_Q of the launch; llm-launch does not see constants of Triton)")
    starts = q.words(q.seq + 2)
    queries = q.need("queries", "query heads to a KV head")
    first = starts[q.seq] // rows + q.seq
    row_block = (q.part or 0) if q.grid[2] <= 1 else 0
    segment = (q.part or 0) if q.grid[2] > 1 else 0
    lines = [f"x = query_start_loc[{q.seq}] / {rows} + {q.seq} + row block {row_block} = {starts[q.seq]} / {rows} + {q.seq} + {row_block} = {first + row_block}",
             f"y = KV head = head / {queries} = {q.head // queries}", f"z = segment = {segment}"]  # fmt: skip
    length = starts[q.seq + 1] - starts[q.seq]
    if row_block * rows >= max(length, 1):
        raise GdbextError(f"sequence {q.seq} has {length} query rows: there is no block {row_block} of {rows} rows")
    return (first + row_block, q.head // queries, segment), lines


def _flashinfer(q, place):
    queries = q.need("queries", "query heads to a KV head")
    served = q.words(q.grid[0])
    blocks = [i for i, seq in enumerate(served) if seq == q.seq]
    if not blocks:
        raise NotFoundError(f"no block of the grid serves request {q.seq}: request_indices holds {', '.join(map(str, served[:16]))}{', …' if len(served) > 16 else ''}")
    part = q.part or 0
    if part >= len(blocks):
        raise GdbextError(f"request {q.seq} is cut into {len(blocks)} parts: there is no part {part}")
    lines = [f"x: request_indices[{blocks[part]}] = {q.seq}" + (f", its part {part} of {len(blocks)}" if len(blocks) > 1 else ""),
             f"{place} = KV head = head / {queries} = {q.head // queries}"]  # fmt: skip
    return blocks[part], q.head // queries, lines


def _flashinfer_decode(q):
    x, head, lines = _flashinfer(q, "y")
    return (x, head, 0), lines


def _flashinfer_prefill(q):
    x, head, lines = _flashinfer(q, "z")
    return (x, 0, head), lines


def _flash_fwd(q):
    part = q.part or 0
    return (part, q.seq, q.head), [f"x = block of query rows = {part}", f"y = sequence = {q.seq}", f"z = head = {q.head}"]


def _flash_splitkv(q):
    heads = q.heads
    if heads is None and q.part is None:
        return (0, q.seq, q.head), ["x = block of query rows = 0", f"y = sequence = {q.seq} (one split: z is the head; -heads N where there are several)", f"z = head = {q.head}"]
    heads = q.need("heads", "with several splits z = sequence * heads + head")
    part = q.part or 0
    return (0, part, q.seq * heads + q.head), ["x = block of query rows = 0", f"y = split = {part}", f"z = {q.seq} * {heads} + {q.head} = {q.seq * heads + q.head}"]


def _token(q):
    return (q.seq, 0, 0), [f"x = token = {q.seq} of the batch (-seq counts tokens here: slot = slot_mapping[{q.seq}])"]


RULES = {
    "heads-seqs": _heads_seqs, "heads-seqs-512": _heads_seqs_512, "seqs-heads": _seqs_heads, "stage1": _stage1, "extend": _extend, "unified": _unified,
    "flashinfer-decode": _flashinfer_decode, "flashinfer-prefill": _flashinfer_prefill, "flash-fwd": _flash_fwd, "flash-splitkv": _flash_splitkv,
    "token": _token,
}  # fmt: skip


def works_on(rule, block):
    """{"seq", "head", "part"} that a block works on, where the rule alone tells; {} where it takes a table."""
    x, y, z = block
    return {"heads-seqs": {"seq": y, "head": x}, "heads-seqs-512": {"seq": y, "head": x, "part": z}, "seqs-heads": {"seq": x, "head": y},
            "extend": {"seq": x, "head": y, "part": z}, "flash-fwd": {"seq": y, "head": z, "part": x}, "token": {"seq": x}}.get(rule, {})  # fmt: skip
