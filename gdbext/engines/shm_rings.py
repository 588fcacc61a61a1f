"""The rings in shared memory between an engine's core and its workers, for commands and answers: MessageQueue over ShmRingBuffer.

A ring has `max_chunks` chunks of `max_chunk_bytes`, then for each chunk 1 + `n_reader` bytes. The first byte is 1 once the chunk
is written, and each local reader's byte is 1 once that reader has read it. A chunk may be written again only when all readers
have read it. Source: the docstring of ShmRingBuffer in distributed/device_communicators/shm_broadcast.py, the same from vLLM
0.6.0 to 0.32 and in SGLang 0.4.3 to 0.5.23.
"""

from __future__ import annotations

from typing import Iterator, Sequence

from .. import log
from ..cpython.frames import PyFrame
from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..errors import GdbextError, LayoutError
from .registry import ENGINES
from .spec import named

QUEUE = "MessageQueue"
MAX_CHUNKS, MAX_READERS, MAX_FRAMES = 4096, 4096, 60


class Ring:
    """One end of a ring, as a process holds it.

    * `name`: of the shared memory, the same at all ends
    * `reader`: its number, None for the writer's end
    * `index`: the chunk that this end writes or reads next
    * `held`: the attribute that holds it
    * `chunks`: `[(written, [read])]`, all bool"""

    def __init__(
        self, name: str, reader: int | None, index: int, held: str, chunks: Sequence[tuple[bool, Sequence[bool]]]
    ) -> None:
        self.name, self.reader, self.index, self.held, self.chunks = name, reader, index, held, list(chunks)

    @property
    def hands_out_work(self) -> bool:
        """Whether it is the ring through which an engine's core sends commands to its workers."""
        return any(spec.rings is not None and self.held and self.held == spec.rings.broadcast for spec in ENGINES)

    @property
    def unread(self) -> list[int]:
        """How many messages each reader has not read yet."""
        return [
            sum(written and not read[i] for written, read in self.chunks)
            for i in range(len(self.chunks[0][1]) if self.chunks else 0)
        ]

    @property
    def full(self) -> list[int]:
        """Numbers of the readers for which the writer has to wait before its next message; [] where it can write."""
        written, read = self.chunks[self.index]
        return [i for i, done in enumerate(read) if not done] if written else []


def waits_in(function: str) -> bool:
    """Whether a process in `function` waits at a ring: for a message, or for room to write one."""
    return named("acquire_read|acquire_write", function)


def waits_to_write_in(function: str) -> bool:
    """Whether a process in `function` waits until all readers of a ring have read its oldest message."""
    return named("acquire_write", function)


def find(rt: Runtime) -> list[Ring]:
    """`[Ring]` that the frames of a process's main thread reach; [] where there are none."""
    found: dict[int, Ring | None] = {}
    for thread in rt.threads()[:1]:
        for frame in rt.frames(thread)[:MAX_FRAMES]:
            try:
                me = dict(frame.locals()).get("self")
                queues = list(_queues(me)) if me is not None else ()
            except GdbextError as e:
                log.passed_over(e)
                continue
            for held, queue in queues:
                if queue.address not in found:
                    found[queue.address] = _ring(queue, held)
    return [ring for ring in found.values() if ring is not None]


def awaited(frames: Sequence[PyFrame]) -> Ring | None:
    """The ring at which a thread waits for a message (its frames, innermost first), None."""
    for frame in frames:
        if frame.function.rpartition(".")[2] == "acquire_read":
            me = dict(frame.locals()).get("self")
            return _ring(me, "") if me is not None and me.type.name == QUEUE else None
    return None


def _queues(me: Object) -> Iterator[tuple[str, Object]]:
    if me.type.name == QUEUE:
        yield "", me
        return
    if not me.type.is_heap:
        return
    known = [spec.rings for spec in ENGINES if spec.rings is not None]
    for where in dict.fromkeys(name for rings in known for name in rings.within):
        holder: Object | None = _attribute(me, where) if where else me
        if holder is None:
            continue
        for name in dict.fromkeys(name for rings in known for name in rings.holders) if holder is not None else ():
            value = _attribute(holder, name)
            if value is None:
                continue
            for one in value.elements(MAX_READERS) if value.isa("list", "tuple") else [value]:
                if one.type.name == QUEUE:
                    yield name, one


def _attribute(obj: Object, name: str) -> Object | None:
    """An attribute that the object itself has and that is set, or None. No class's: nothing of a property is wanted."""
    own = dict(obj.instance_entries())
    value = obj.rt.object(own[name]) if name in own else None
    return None if value is None or value.is_none() else value


def _ring(queue: Object, held: str) -> Ring | None:
    """The `Ring` of a MessageQueue; None for one without shared memory (a reader on another machine), or that cannot be read."""
    try:
        buffer = _attribute(queue, "buffer")
        if buffer is None:
            return None
        readers, size, count, offset = (
            buffer.attr(n).integer() for n in ("n_reader", "max_chunk_bytes", "max_chunks", "metadata_offset")
        )
        index, writer, reader = (
            queue.attr("current_idx").integer(),
            queue.attr("_is_writer").boolean(),
            queue.attr("local_reader_rank").integer(),
        )
        if not (
            0 < readers <= MAX_READERS
            and 0 < count <= MAX_CHUNKS
            and 0 <= index < count
            and offset == size * count
            and (writer or 0 <= reader < readers)
        ):
            raise LayoutError(f"the ring at {buffer.address:#x} is laid out as no release that is known here does it")
        name = buffer.attr("shared_memory").attr("_name").string(256).lstrip("/")
        target = queue.rt.target
        start = next((m.start for m in target.mappings() if m.path.split(" ")[0] == "/dev/shm/" + name and not m.offset), None)
        if start is None:
            return None
        flags = target.read(start + offset, count * (1 + readers))
    except GdbextError as e:
        log.passed_over(e)
        return None
    chunks = []
    for at in range(0, len(flags), 1 + readers):
        chunks.append((flags[at] != 0, [byte != 0 for byte in flags[at + 1 : at + 1 + readers]]))
    return Ring(name, None if writer else reader, index, held, chunks)
