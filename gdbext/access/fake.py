"""A target made of dicts: bytes, mappings, threads and symbols, for tests that need no process."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from typing import Iterable, Sequence

from ..errors import FaultError, NotFoundError
from .base import Target
from .model import Mapping, Module, Thread


class FakeTarget(Target):
    """`memory` maps start addresses to bytes; anything outside faults. `touch()` starts a new epoch. `reads` counts the reads."""

    kind = "fake"

    def __init__(
        self,
        memory: Dict[int, bytes] | None = None,
        mappings: Iterable[Mapping] = (),
        *,
        threads: Iterable[Thread] = (),
        symbols: Dict[str, int] | None = None,
        argv: Iterable[str] = (),
        environ: Dict[str, str] | None = None,
        arch: str = "x86-64",
    ) -> None:
        super().__init__()
        self.memory = dict(memory or {})
        self._maps, self._fake_threads, self._symbols = list(mappings), list(threads), dict(symbols or {})
        self._argv, self._environ, self.arch = list(argv), dict(environ or {}), arch
        self._epoch = self.reads = 0

    @property
    def epoch(self) -> object:
        """The number of calls of `touch`."""
        return self._epoch

    def touch(self) -> None:
        """Starts a new epoch, as if the process had run."""
        self._epoch += 1

    def _read(self, address: int, size: int) -> bytes:
        self.reads += 1
        for start, data in self.memory.items():
            if start <= address and address + size <= start + len(data):
                return bytes(data[address - start : address - start + size])
        raise FaultError(address, size)

    def _mappings(self) -> list[Mapping]:
        return list(self._maps)

    def _threads(self) -> list[Thread]:
        return list(self._fake_threads)

    def argv(self) -> list[str]:
        """As given."""
        return list(self._argv)

    def environ(self) -> dict[str, str]:
        """As given."""
        return dict(self._environ)

    def symbol(self, name: str, modules: Sequence[Module] | None = None) -> int:
        """Of the given ones; `NotFoundError` otherwise."""
        if name in self._symbols:
            return self._symbols[name]
        raise NotFoundError(f"fake: no symbol {name}")
