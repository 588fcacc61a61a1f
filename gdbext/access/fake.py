"""A FAKE target: bytes, mappings, threads and symbols from dicts, for tests that need no process."""

from ..errors import FaultError, NotFoundError
from .base import Target


class FakeTarget(Target):
    """`memory` maps start addresses to bytes; anything outside faults. `touch()` starts a new epoch."""

    kind = "fake"

    def __init__(self, memory=None, mappings=(), threads=(), symbols=None, argv=(), environ=None, arch="x86-64"):
        super().__init__()
        self.memory = dict(memory or {})
        self._maps, self._fake_threads, self._symbols = list(mappings), list(threads), dict(symbols or {})
        self._argv, self._environ, self.arch, self._epoch = list(argv), dict(environ or {}), arch, 0
        self.reads = 0

    @property
    def epoch(self):
        return self._epoch

    def touch(self):
        self._epoch += 1

    def _read(self, address, size):
        self.reads += 1
        for start, data in self.memory.items():
            if start <= address and address + size <= start + len(data):
                return bytes(data[address - start : address - start + size])
        raise FaultError(address, size)

    def _mappings(self):
        return list(self._maps)

    def _threads(self):
        return list(self._fake_threads)

    def argv(self):
        return list(self._argv)

    def environ(self):
        return dict(self._environ)

    def symbol(self, name, modules=None):
        if name in self._symbols:
            return self._symbols[name]
        raise NotFoundError(f"fake: no symbol {name}")
