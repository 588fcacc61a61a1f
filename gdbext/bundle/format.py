"""The file of a bundle or a box: a zip archive with `manifest.json`, snapshots, and what was said of them.

`manifest.json`: an object with `schema` (SCHEMAS), `time` (seconds after the epoch), `gdbext` (version), `node`, and `processes`,
a list of objects with `label`, `pid`, `role`, `instance`, `program`, `pause` (seconds) and `file` (a name in the archive; null
for a process of which there is no snapshot).

A file that somebody sent may be built to harm: each size is known, and bounded, before anything is unpacked; nothing is unpacked
to a file with a name. Source: APPNOTE.TXT of the zip format, 4.3.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import zipfile
import zlib
from typing import IO, Any, Callable, Iterator, Mapping, NamedTuple

from ..access import files, room
from ..access.snapshot import CoreFileTarget
from ..errors import GdbextError, NotFoundError
from ..render.files import Draft

MANIFEST, HANG, VERDICT, FACTS, REQUESTS, MEMORY, PAGE = (
    *("manifest.json", "hang.json", "verdict.json", "facts.json", "requests.json", "memory.json"),
    "page.md",
)
BUNDLE, BOX = "gdbext-bundle/1", "gdbext-box/1"
SCHEMAS = {BUNDLE: "bundle", BOX: "box"}
SUFFIX = ".gdbext"
MAX_FILE, MAX_UNPACKED, MAX_TEXT = 1 << 30, 4 << 30, 64 << 20  # bytes: of the archive, of all members, of one that is text
MAX_MEMBERS, MAX_DIRECTORY = 4096, 1 << 20
MOST_OPEN = 8  # that stay open, with what they unpacked
END, END64, END_SIZE, LOCATOR_SIZE = b"PK\x05\x06", b"PK\x06\x07", 22, 20
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,127})?", re.ASCII)
WORD = re.compile(r"[A-Za-z0-9_.:#-]{1,64}", re.ASCII)  # a label that can stand in a path
CHUNK = 1 << 20
ZERO = bytes(1 << 12)
LEVEL = 6
BROKEN = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError)


class Inside(NamedTuple):
    """A process in a bundle. `file`: the name of its snapshot in the archive, '' where there is none. `told`: its entry of the
    manifest."""

    label: str
    pid: int | None
    file: str
    told: dict[str, Any]

    @property
    def own_label(self) -> str:
        """The label of an engine's process; "" for a program that is called by its pid."""
        return self.label if self.label != str(self.pid) else ""


READINGS: tuple[Callable[[Inside], str], ...] = (  # the words that name a process, the first ones first
    lambda one: one.label.lower(),
    lambda one: one.label.lower().rpartition(":")[2],
    lambda one: str(one.pid),
    lambda one: one.file.lower(),
)


def _by(reading: Callable[[Inside], str], processes: list[Inside]) -> dict[str, list[Inside]]:
    found: dict[str, list[Inside]] = {}
    for one in processes:
        found.setdefault(reading(one), []).append(one)
    return found


# ---- writing -----------------------------------------------------------------------------------------------------------
class TooBig(Exception):
    """The archive would have more bytes than it may. `without`: {name: bytes} of the open files that it has no room for, the
    biggest first; all of them where that is not enough."""

    def __init__(self, packed: Mapping[str, int], over: int) -> None:
        super().__init__(f"{over} bytes too many")
        self.without: dict[str, int] = {}
        for name in sorted(packed, key=lambda name: -packed[name]):
            if sum(self.without.values()) < over:
                self.without[name] = packed[name]


def write(
    path: str,
    manifest: Mapping[str, Any],
    members: Mapping[str, Any],
    option: str = "-o",
    force: bool = False,
    most: int = MAX_FILE,
) -> int:
    """Writes the archive, whole or not at all, readable by its user alone; -> its bytes. `members`: {name: bytes, or an object
    with the `fileno()` of an open file}. `TooBig` where it would have more than `most` bytes and a member that is a file could be
    left out. Errors as of `render.files.may_write`, whose `option` and `force` these are."""
    import json

    told = json.dumps({**manifest, "members": sorted(members)}, ensure_ascii=True, indent=1).encode()
    with contextlib.closing(Draft(path, option, force, mode=0o600)) as draft, draft.named():
        with zipfile.ZipFile(draft.file, "w", zipfile.ZIP_DEFLATED, allowZip64=False, compresslevel=LEVEL) as archive:
            for name, content in {MANIFEST: told, **members}.items():
                if not NAME.fullmatch(name):
                    raise ValueError(f"{name!r} cannot be a member's name")
                entry = zipfile.ZipInfo(name)
                entry.create_system, entry.external_attr, entry.compress_type = 3, 0o600 << 16, zipfile.ZIP_DEFLATED
                with archive.open(entry, "w") as out:
                    for piece in [content] if isinstance(content, bytes) else _pieces(content.fileno()):
                        out.write(piece)
            packed = {one.filename: one.compress_size for one in archive.infolist()}
        size = draft.file.tell()
        big = {name: packed[name] for name, content in members.items() if not isinstance(content, bytes)}
        if size > most and big:
            raise TooBig(big, size - most)
        draft.keep()
    return size


def _pieces(file: int) -> Iterator[bytes]:
    at = 0
    while True:
        piece = os.pread(file, CHUNK, at)
        if not piece:
            return
        yield piece
        at += len(piece)


# ---- reading -----------------------------------------------------------------------------------------------------------
class Bundle:
    """An open bundle or box. `kind`: "bundle" or "box"; `manifest`; `processes`: the `Inside`s; `names`: of all members.
    `GdbextError` for a file that is none, or damaged; `NotFoundError` for one that cannot be opened."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = files.open_regular(path)
        try:
            self._sizes_are_bounded()
            with self._decoding():
                self._archive = zipfile.ZipFile(self._file)
                self.names = self._checked(self._archive.infolist())
            self.manifest: dict[str, Any] = self.json(MANIFEST)
            self.kind = SCHEMAS.get(str(self.manifest.get("schema")), "")
            if not self.kind:
                raise GdbextError(f"{path}: no bundle or box that this gdbext knows (schema {self.manifest.get('schema')!r:.40})")
            self.processes = self._processes()
            self._readings = [_by(reading, self.processes) for reading in READINGS]
        except BaseException:
            self._file.close()
            raise
        self._unpacked: dict[str, IO[bytes]] = {}
        self.kept: dict[str, Any] = {}  # what a reader of a member has made of it

    def fileno(self) -> int:
        """The descriptor of the archive: its owner is who wrote it."""
        return self._file.fileno()

    @contextlib.contextmanager
    def _decoding(self) -> Iterator[None]:
        with files.reading(self.path, *BROKEN):
            yield

    def _sizes_are_bounded(self) -> None:
        """Before zipfile reads the directory. An archive of ours has no comment, and needs no 64-bit sizes."""
        size = os.fstat(self._file.fileno()).st_size
        if size > MAX_FILE:
            raise GdbextError(f"{self.path}: {size >> 20} MiB: a bundle has at most {MAX_FILE >> 20}")
        tail = os.pread(self._file.fileno(), END_SIZE + LOCATOR_SIZE, max(size - END_SIZE - LOCATOR_SIZE, 0))
        end = tail[-END_SIZE:]
        if len(end) < END_SIZE or end[:4] != END:
            raise GdbextError(f"{self.path}: no bundle, or one that is cut short: it does not end as one")
        count, directory = struct.unpack_from("<HI", end, 10)
        if tail[:4] == END64 or count > MAX_MEMBERS or directory > MAX_DIRECTORY:
            raise GdbextError(f"{self.path}: no bundle: a zip archive with too many members")

    def _checked(self, found: list[zipfile.ZipInfo]) -> frozenset[str]:
        for one in found:
            name = one.filename
            if not NAME.fullmatch(name) or one.orig_filename != name:
                raise GdbextError(f"{self.path}: damaged: a member with the name {name!r:.80}")
            if one.flag_bits & 1 or one.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise GdbextError(f"{self.path}: damaged: {name} is encrypted, or packed in a way that no bundle is")
        names = frozenset(one.filename for one in found)
        if len(names) < len(found):
            raise GdbextError(f"{self.path}: damaged: two members have one name")
        if sum(one.file_size for one in found) > MAX_UNPACKED:
            raise GdbextError(f"{self.path}: unpacked it has more than {MAX_UNPACKED >> 20} MiB, which no bundle has")
        if MANIFEST not in names:
            raise GdbextError(f"{self.path}: no bundle: a zip archive without {MANIFEST}")
        return names

    def _processes(self) -> list[Inside]:
        listed = self.manifest.get("processes")
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise GdbextError(f"{self.path}: damaged: {MANIFEST} lists no processes")
        if len(listed) > MAX_MEMBERS:
            raise GdbextError(f"{self.path}: damaged: {MANIFEST} lists more than {MAX_MEMBERS} processes")
        found = []
        for one in listed:
            label, pid, file = one.get("label") or "", one.get("pid"), one.get("file") or ""
            if not (isinstance(label, str) and isinstance(file, str) and (pid is None or type(pid) is int)):
                raise GdbextError(f"{self.path}: damaged: a process of {MANIFEST} has no label, pid or file of the right kind")
            if file and file not in self.names:
                raise GdbextError(f"{self.path}: damaged: it lacks {file!r:.80}, which {MANIFEST} names")
            found.append(Inside(label, pid, file, one))
        return found

    def read(self, name: str, limit: int = MAX_TEXT) -> bytes:
        """The bytes of a member; `NotFoundError` where there is none, `GdbextError` where it has more than `limit`."""
        if name not in self.names:
            raise NotFoundError(f"{self.path}: it has no {name}")
        if self._archive.getinfo(name).file_size > limit:
            raise GdbextError(f"{self.path}: {name} has more than {limit >> 20} MiB")
        with self._decoding(), self._archive.open(name) as source:  # it never inflates beyond what is asked for
            return b"".join(iter(lambda: source.read(CHUNK), b""))

    def json(self, name: str) -> dict[str, Any]:
        """The object of a member of JSON; errors as of `read`."""
        data = self.read(name)
        try:
            found = files.json_of(data, f"{self.path}: {name}")
        except ValueError as e:
            raise GdbextError(f"{self.path}: damaged: {name} is no JSON: {str(e)[:80]}") from None
        if not isinstance(found, dict):
            raise GdbextError(f"{self.path}: damaged: {name} is no JSON object")
        return found

    def unpacked(self, name: str) -> IO[bytes]:
        """A member as an open file that has no name; it is closed with the bundle. Zeros take no memory. `GdbextError` where
        there is no room."""
        if name not in self._unpacked:
            size = self._archive.getinfo(name).file_size
            room.need(size, f"{self.path}: {name}")
            file = room.nameless_file()
            try:
                with self._decoding(), self._archive.open(name) as source:
                    for data in iter(lambda: source.read(CHUNK), b""):
                        _write_sparse(file, data)
                file.truncate(size)
                file.flush()
            except BaseException:
                file.close()
                raise
            self._unpacked[name] = file
        return self._unpacked[name]

    def path_of(self, one: Inside) -> str:
        """The path that names a process, as of `split`: by its label where no other has it."""
        alone = len(self._readings[0][one.label.lower()]) == 1
        return f"{self.path}/{one.label if alone and WORD.fullmatch(one.label) else one.file}"

    def with_memory(self) -> list[Inside]:
        """The processes of which there is a snapshot."""
        return [one for one in self.processes if one.file]

    def named(self, word: str) -> list[Inside]:
        """The processes that a word names: a label without regard to case, with or without its engine's name, a pid, or a
        snapshot's name in the archive; all of them with ''."""
        if not word:
            return self.processes
        for known in self._readings:
            if word.lower() in known:
                return known[word.lower()]
        some = ", ".join(one.label or str(one.pid) for one in self.processes[:16])
        raise NotFoundError(f"{self.path}: it has no process {word}; it has {some or 'none'}")

    def core(self, word: str) -> CoreFileTarget:
        """The snapshot of the one process that a word names; errors as of `named` and `CoreFileTarget`."""
        found = [one for one in self.named(word) if one.file]
        if not found:
            what = word or "any process"
            raise NotFoundError(f"{self.path}: this {self.kind} has no memory of {what}: llm-hang tells what was seen")
        if len(found) != 1:
            raise GdbextError(f"{self.path}/{word} names {len(found)} processes with memory in it")
        return CoreFileTarget(self.path_of(found[0]), found[0].own_label, self.unpacked(found[0].file), self)

    def close(self) -> None:
        """Frees what was unpacked."""
        for file in self._unpacked.values():
            file.close()
        self._unpacked = {}
        self._archive.close()
        self._file.close()


def _write_sparse(file: IO[bytes], data: bytes) -> None:
    at = 0
    while at < len(data):
        end = at
        zeros = data[at : at + len(ZERO)] == ZERO
        while end < len(data) and (data[end : end + len(ZERO)] == ZERO) == zeros:
            end += len(ZERO)
        if zeros:
            file.seek(end - at, os.SEEK_CUR)
        else:
            file.write(data[at:end])
        at = end


_open: dict[str, tuple[tuple[int, ...], Bundle]] = {}  # those asked for last, the newest at the end


def open_bundle(path: str) -> Bundle:
    """The `Bundle` of a path, opened once while the file is the same and among the last `MOST_OPEN`; errors as of `Bundle`."""
    path = os.path.expanduser(path)
    try:
        there = os.stat(path)
    except (OSError, ValueError) as e:
        raise NotFoundError(f"{path}: {getattr(e, 'strerror', None) or e}") from None
    mark = (there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns)
    known = _open.pop(path, None)
    _open[path] = known if known is not None and known[0] == mark else (mark, Bundle(path))
    for oldest in list(_open)[:-MOST_OPEN]:
        del _open[oldest]  # it is closed once nobody reads its memory
    return _open[path][1]
