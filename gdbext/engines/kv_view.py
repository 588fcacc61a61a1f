"""What of an engine's KV cache can be read from one process and its siblings: the scheduler's `Cache`, and a `Worker` per shard."""

import contextlib
import dataclasses
import gc
import math
import re

from ..cpython.runtime import open_runtime
from ..errors import FaultError, GdbextError, LayoutError, NotFoundError
from . import rtp_llm_kv, sglang_kv, trtllm_kv, vllm_kv

TRIES = 60
LOOKS = 8  # of them for what is not found: a running frame may show nothing just now, but an object that is nowhere stays so
READERS = {"vllm": vllm_kv, "sglang": sglang_kv}
RELEASES = (
    "vLLM 0.6.0 to 0.32 (V0 to 0.10.2, V1 from 0.6.6), SGLang 0.4.3 to 0.5.23, RTP-LLM and TensorRT-LLM by debug information"
)
NATIVE = (rtp_llm_kv, trtllm_kv)  # C++ engines, by debug information
NEWEST = {"vllm": (0, 32), "sglang": (0, 5, 23)}  # the newest release whose own objects were read


def reader_of(rt):
    """The module that reads this process's engine; `NotFoundError` naming the engines that are known."""
    for name, reader in READERS.items():
        if rt.module(name) is not None:
            return reader
    raise NotFoundError(
        f"{rt.target.describe()} has loaded none of {', '.join(READERS)}: no KV cache of theirs is in it. Read are {RELEASES}"
    )


@contextlib.contextmanager
def _uncollected():
    """Without garbage collection: it would look through a million new tuples again and again, and none of them is garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _settled(target, read):
    """`read()`, again where the process runs on and changed under the reader."""
    for tries_left in range(0 if target.is_stopped else TRIES, -1, -1):
        try:
            return read()
        except GdbextError as e:
            if not tries_left or not isinstance(e, (FaultError, LayoutError)) and tries_left <= TRIES - LOOKS:
                raise
            target.invalidate()


class View:
    """`targets(role)`: asks the caller for sibling Targets, `[(label, Target)]`: role "scheduler" or "shards"."""

    def __init__(self, target, targets, root=None, content=False):
        self.target, self._targets, self._root, self._content = target, targets, root, content
        self.partial = []
        self.rt = open_runtime(target)
        self.reader = reader_of(self.rt)

    def cache(self):
        """The scheduler's `Cache`, of this process or of the sibling that has it."""
        root = self._root or self._scheduler(self.rt)
        if root is not None:
            return self._read(self.rt, root)
        for label, target in self._targets("scheduler"):
            if target is self.target:
                continue
            rt = open_runtime(target)
            root = self._scheduler(rt)
            if root is not None:
                self.unstopped(target)
                return self._read(rt, root)
        return self.reader.read(self.rt, None, self._content)  # says what is missing

    def _scheduler(self, rt):
        """The scheduler of a process or None; a process that runs on is looked at again before it is said to have none."""
        for _ in range(1 if rt.target.is_stopped else LOOKS):
            root = self.reader.find_scheduler(rt)
            if root is not None:
                return root
            rt.target.invalidate()
        return None

    def _read(self, rt, root):
        """The cache of a scheduler, which stays where it is."""

        def read():
            with _uncollected():
                return self.reader.read(rt, root, self._content)

        cache = _settled(rt.target, read)
        newest = NEWEST[cache.engine]
        if tuple(int(n) for n in re.findall(r"\d+", cache.version)[: len(newest)]) > newest:
            cache.notes.append(f"{cache.engine} {cache.version} is newer than any that was tried: {RELEASES}")
        return cache

    def workers(self, num_blocks=None):
        """A `Worker` per shard that can be read; what is missing goes to `partial`."""
        found, missing = [], []
        shards = self._targets("shards")
        for label, target in shards or [(self.target.label or "this process", self.target)]:
            try:
                found.append(_settled(target, lambda: self.reader.read_worker(open_runtime(target), label, num_blocks)))
                self.unstopped(target)
            except GdbextError as e:
                missing.append(f"{label}: {e}")
        if not found and not self.target.is_live:
            self.partial.append("the workers' memory is not in this core: addresses need their own cores")
        elif missing:
            self.partial += missing
        return found

    def unstopped(self, target):
        if not target.is_stopped and "unstopped" not in self.partial:
            self.partial.append("unstopped")


def block_values(layer, part, block):
    """The elements of one block of a `Part` as a `Tensor`: a view of the part's own, [kernel blocks, …]."""
    dims = [(layer.ratio, part.dims["block"][1]), *(d for name, d in part.dims.items() if name != "block")]
    offset = part.address(block=block * layer.ratio) - part.tensor.storage_data
    return dataclasses.replace(
        part.tensor,
        shape=tuple(n for n, _ in dims),
        stride=tuple(step // part.item for _, step in dims),
        storage_offset=offset // part.item,
        numel=math.prod(n for n, _ in dims),
    )


class NativeView:
    """A C++ engine's cache, read by debug information: `reader` of `NATIVE`; `found`: `(class, this, inner)` of a frame."""

    def __init__(self, target, reader, found):
        self.target, self.partial = target, []
        self._reader, self._found = reader, found

    def cache(self):
        return self._reader.read(self._found)

    def workers(self, num_blocks=None):
        """None: its layers are C++ torch tensors (RTP-LLM) or buffers of a type of its own (TensorRT-LLM), whose layout these names do not tell."""
        return []

    def unstopped(self, target):
        pass
