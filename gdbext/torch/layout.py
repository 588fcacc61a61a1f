"""The row of layouts/torch.json that holds for a process: one per torch minor, made from its headers by
scripts/make-torch-layouts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .. import log, package
from ..errors import GdbextError, LayoutError, NotFoundError

if TYPE_CHECKING:
    from ..access.base import Target
    from ..cpython.runtime import Runtime

_OLD_STRING = b"14torchCheckFailEPKcS2_jRKSs"  # c10::detail::torchCheckFail(…, std::string const&) as the old ABI mangles it
_VERSION_FILES = (
    ("version.py", r"^__version__\s*=\s*['\"]([^'\"]+)"),
    ("build-version", r"^(\d\S*)"),
)  # wheels, the libtorch zips
# sizeof(pthread_mutex_t) in glibc: an autograd Node has one before most of its fields and those of its subclasses. All else in
# the rows holds for both architectures.
_MUTEX = {"x86-64": 40, "aarch64": 48}


def _rows() -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = package.table("layouts/torch.json")["rows"]
    return rows


def known() -> list[str]:
    """The torch minors that there are layouts for, oldest first: ["2.1", …]."""
    return sorted(_rows(), key=lambda m: tuple(map(int, m.split("."))))


class TorchLayout:
    """Offsets, enumerations and bit-fields of one torch minor (`minor`: "2.13"). Offsets are bytes from the structure's start."""

    def __init__(self, minor: str, row: dict[str, Any], pre_cxx11_abi: bool = False, arch: str = "x86-64") -> None:
        self.minor, self.row = minor, {**row, **row.get("pre_cxx11_abi", {})} if pre_cxx11_abi else row
        node = self.row.get("PyNode")
        if node and arch in _MUTEX:
            longer = _MUTEX[arch] - _MUTEX["x86-64"]
            moved = {f: at + longer if f == "sizeof" or at > node["mutex_"] else at for f, at in node.items()}
            self.row = {**self.row, "PyNode": moved}
        self._names: dict[str, dict[int, str]] = {}

    def _field(self, struct: str, field: str) -> Any:
        """A row's entry of a field: an offset, or (byte, shift, width) of a bit-field."""
        try:
            return self.row[struct][field]
        except KeyError:
            raise LayoutError(
                f"torch {self.minor}: the layout has no {struct}::{field}; run scripts/make-torch-layouts"
            ) from None

    def offset(self, struct: str, field: str, *rest: str) -> int:
        """Of `field` in `struct`, plus, for each further (struct, field) pair in `rest`, of that field in the structure there."""
        total: int = self._field(struct, field)
        return total + self.offset(*rest) if rest else total

    def has(self, struct: str, field: str) -> bool:
        return field in self.row.get(struct, ())

    def size(self, struct: str) -> int:
        return self.offset(struct, "sizeof")

    def bits(self, struct: str, field: str, blob: bytes) -> int:
        """The value of a bit-field in `blob`, the bytes of a `struct`."""
        at, shift, width = self._field(struct, field)
        found: int = blob[at] >> shift & (1 << width) - 1
        return found

    def name(self, enum: str, value: int) -> str | None:
        """The enumerator of `enum` with this value, or None."""
        if enum not in self._names:
            self._names[enum] = {}
            for k, v in self.row[enum].items():
                self._names[enum].setdefault(v, k)
        return self._names[enum].get(value)

    def key_bit(self, functionality: str) -> int | None:
        """The bit of DispatchKeySet that stands for a functionality key, None where this release has no such key."""
        number = self.row["DispatchKey"].get(functionality)
        return None if number is None else 1 << (self.row["backends"] + number - 1)


def minor_of(text: str) -> str:
    """ "2.13" of torch.__version__ ("2.13.0+cpu"), "" where it is none."""
    m = re.match(r"(\d+)\.(\d+)", text or "")
    return f"{int(m.group(1))}.{int(m.group(2))}" if m else ""


def for_version(text: str, pre_cxx11_abi: bool = False, arch: str = "x86-64") -> TorchLayout:
    """The `TorchLayout` for a release as torch.__version__ gives it ("2.13.0+cpu"); `LayoutError` for one not known.

    `pre_cxx11_abi`: built with _GLIBCXX_USE_CXX11_ABI=0, where std::string is smaller (x86-64 wheels up to 2.6).
    """
    minor = minor_of(text)
    if minor not in _rows():
        rows = known()
        raise LayoutError(
            f"torch {text or '(no version)'} has no layout here (known: {rows[0]} to {rows[-1]}); "
            f"make it with: scripts/make-torch-layouts --headers DIR, where DIR is that torch's own torch/include folder"
        )
    return TorchLayout(minor, _rows()[minor], pre_cxx11_abi, arch)


def pre_cxx11_abi(target: Target) -> bool:
    """Whether this torch was built with _GLIBCXX_USE_CXX11_ABI=0: then libc10 has a function that takes the old std::string.

    False, as in newer builds, where the file is not here. A wrong answer shows later, when an AutogradMeta fails its proof.
    """
    for m in target.modules():
        if m.name.startswith("libc10.so"):
            try:
                return m.elf.data.find(_OLD_STRING) >= 0
            except (GdbextError, OSError) as e:
                log.passed_over(e)
                continue
    return False


def torch_version(target: Target, rt: Runtime | None = None) -> str:
    """torch.__version__ of a process: from its module torch.version, else from the version.py beside its mapped libtorch.

    `NotFoundError` when it has no torch.
    """
    module = rt.module("torch.version") if rt is not None else None
    if module is not None:
        try:
            version: str = module.item("__version__").string(64)
            return version
        except GdbextError as e:
            log.passed_over(e)  # half imported or changed: the file still tells
    for m in target.modules():
        folder, _, name = m.path.rpartition("/")
        if name.startswith(("libtorch_cpu.so", "libtorch.so", "libc10.so")) and folder.endswith("/lib"):
            for file, pattern in _VERSION_FILES:
                try:
                    lines = target.source_lines(folder[: -len("lib")] + file)
                except NotFoundError as e:
                    log.passed_over(e)
                    continue
                found = re.search(pattern, "\n".join(lines[:1000]), re.M)
                if found:
                    return found.group(1)
    raise NotFoundError(
        f"{target.describe()} has no torch: neither a module torch.version nor a mapped libtorch with its version.py"
    )


def for_process(target: Target, rt: Runtime | None = None) -> TorchLayout:
    """The `TorchLayout` of a process, once per epoch. `rt` is its `Runtime`, None where it runs no Python."""

    def find() -> TorchLayout:
        return for_version(torch_version(target, rt), pre_cxx11_abi(target), target.arch)

    return target.cached("torch layout", find)
