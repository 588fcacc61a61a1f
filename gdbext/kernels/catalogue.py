"""The attention and cache kernels that exist, by engine, backend and release, and those of them that a process has.

The names are data (catalogue.json, with their sources). A library's own symbol tables are mapped and searched for the mangled
identifiers. Nothing is loaded into gdb; a gigabyte of libraries takes a second or two.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import re
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence

from .. import log, package
from ..access.elf import Elf
from ..access.model import Module
from ..engines.registry import kernels_of
from ..errors import GdbextError, NotFoundError
from . import signatures
from .stripped_code import code_of

if TYPE_CHECKING:
    from ..access.base import Target
    from ..cpython.objects import Object
    from ..cpython.runtime import Runtime

# Functions that every launch of a kernel passes, by their parameters (kernels/launch.py decodes them).
RUNTIME_ENTRIES = (
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaLaunchCooperativeKernel",
    "cudaLaunchKernel_ptsz",
    "cudaLaunchKernelExC_ptsz",
    "cudaLaunchCooperativeKernel_ptsz",
    "hipLaunchKernel",
    "hipExtLaunchKernel",
)
DRIVER_ENTRIES = (
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuLaunchKernel_ptsz",
    "cuLaunchKernelEx_ptsz",
    "cuLaunchCooperativeKernel",
    "hipModuleLaunchKernel",
)
ENTRIES = RUNTIME_ENTRIES + DRIVER_ENTRIES
MAX_LOCATIONS = 20000

# A parameter that is a tensor or holds some; not one whose type was made inside a function that takes tensors (a lambda).
_TENSOR = re.compile(r"(?:const )?(?:(?:std|c10|at)::[\w:]+<)*at::Tensor\b")
# NVIDIA's own libraries: hundreds of MiB of packed GPU code, and none of the catalogue's kernels.
_NVIDIA = re.compile(
    r"/lib(cublas\w*|cudnn\w*|cufft\w*|curand|cusolver\w*|cusparse\w*|cutensor\w*|nccl|npp\w*|nvjpeg|nvshmem\w*)\.so"
)


class Kernel:
    """One name of the catalogue. `kernel`: identifier; `launch`: "runtime", "driver" or "cpu"; `role`, `engine`, `backend`,
    `releases`, `focus`, `unfocused`, `source` as catalogue.json says."""

    def __init__(self, group: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        self.kernel: str = row["kernel"]
        self.role, self.releases, self.focus = row["role"], row["releases"], row.get("focus", "")
        self.unfocused: str = row.get("unfocused", "")
        self.library = re.compile(group.get("library") or "$^")
        self.within: str = row.get("within", "")
        self.engine, self.backend, self.launch, self.source = group["engine"], group["backend"], group["launch"], group["source"]
        parts = self.kernel.split("::")
        self.word = parts[0]

    def as_launcher(self) -> Kernel:
        """The host function of the same name."""
        other = copy.copy(self)
        other.role, other.focus = "launcher", ""
        return other

    def fits(self, signature: signatures.Signature) -> bool:
        """Whether a symbol is an instance of it."""
        if self.within:
            return signature.base == self.within and any(re.search(rf"\b{self.word}\b", t) for t in signature.template)
        if self.kernel.endswith("*"):
            return signature.base.startswith(self.kernel[:-1])
        return signature.path[-len(self.kernel.split("::")) :] == self.kernel.split("::")

    @property
    def needle(self) -> bytes:
        """The part of a mangled name that identifies the kernel: the identifier with its length before it."""
        return (f"{len(self.word)}{self.word}" if not self.word.endswith("*") else self.word[:-1]).encode()


class Catalogue:
    def __init__(self, data: Mapping[str, Any]) -> None:
        self.kernels = [Kernel(group, row) for group in data["groups"] for row in group["kernels"]]
        self.libraries = [(re.compile(row["path"]), row["engine"]) for row in data["libraries"]]
        self.sources, self.looked_through = data["sources"], data["looked_through"]
        self.by_word: dict[str, list[Kernel]] = {}
        for kernel in self.kernels:
            self.by_word.setdefault(kernel.word, []).append(kernel)

    def engine_of(self, path: str) -> str:
        """The engine that a library belongs to, '' for none."""
        return next((engine for pattern, engine in self.libraries if pattern.search(path)), "")

    def entry_of(self, name: str) -> Kernel | None:
        """The entry of a running kernel, by the name that cuda-gdb gives, with its template arguments; None where it has none."""
        signature = signatures.parse(name)
        found = [k for k in self.kernels if k.role != "launcher" and k.fits(signature)] or self.named(signature.base)
        return next((k for k in found if k.focus), found[0] if found else None)

    def named(self, name: str) -> list[Kernel]:
        """The entries of a kernel's identifier, as Triton and the driver know it (their own suffixes cut off)."""
        found = [k for k in self.kernels if k.kernel == name or k.kernel.endswith("*") and name.startswith(k.kernel[:-1])]
        return found or [
            k
            for k in self.kernels
            if k.launch == "driver" and re.fullmatch(re.escape(k.kernel) + r"(_0d|_[0-9a-f]{8,})[\w]*", name)
        ]


@functools.lru_cache(maxsize=None)
def catalogue() -> Catalogue:
    """The catalogue of catalogue.json, read once."""
    return Catalogue(package.table("kernels/catalogue.json"))


@dataclasses.dataclass
class BreakpointSite:
    """An address at which one instance of a kernel can be stopped.

    `kind`: "stub" (nvcc's launching stub), "wrapper" (the kernel's host function, which calls the stub), "registered" (the host
    function in a stripped library, whose stub has no known address), "function" (a launcher or a CPU function)."""

    address: int
    size: int
    symbol: str
    signature: signatures.Signature
    kind: str

    @property
    def is_local(self) -> bool:
        """Whether its mangled name is visible to its own object file only: static, or in a namespace without a name."""
        base = self.signature.base
        return f"L{len(base)}{base}" in self.symbol or "_GLOBAL__N_1" in self.symbol


@dataclasses.dataclass
class Row:
    """A kernel in a library.

    `where`: "host" (sites to stop at), "device" (only its GPU code is there), "driver" (launched by name). `sites`: addresses of
    the process. `module`: the Python module that has it."""

    kernel: Kernel
    name: str
    library: str
    engine: str
    where: str
    sites: list[BreakpointSite] = dataclasses.field(default_factory=list)
    module: str = ""

    @property
    def instances(self) -> int:
        """How many different instances there are."""
        return len({p.signature.text for p in self.sites})

    @property
    def inlined(self) -> set[str]:
        """Signatures of the instances whose host code may never be called. nvcc 13 makes the host code of templates static
        (-static-global-template-stub), and compilers then put a copy of it at the place of the launch."""
        stubs = {p.signature.text for p in self.sites if p.kind == "stub"}
        return {p.signature.text for p in self.sites if p.kind == "wrapper" and p.is_local} - stubs


def scan_library(elf: Elf, path: str, bias: int = 0, pattern: re.Pattern[str] | None = None, word: str = "") -> list[Row]:
    """The `Row`s of one library.

    `pattern`: demangled names must match it; it also finds kernels that the catalogue does not know. `word`: a kernel's
    identifier, in the catalogue or not. `bias`: the number to add to the file's addresses."""
    cache: dict[tuple[str, str | None, str], list[Row]] = elf.kept.setdefault("kernel_rows", {})
    key = path, pattern.pattern if pattern is not None else None, word
    if key not in cache:
        cache[key] = _Scan(elf, path, pattern, word).rows()
    return [
        dataclasses.replace(row, sites=[dataclasses.replace(s, address=s.address + bias) for s in row.sites])
        for row in cache[key]
    ]


class _Scan:
    """The symbols of one library against the catalogue."""

    def __init__(self, elf: Elf, path: str, pattern: re.Pattern[str] | None, word: str) -> None:
        self.elf, self.path, self.pattern, self.word = elf, path, pattern, word
        self.launches = launches_kernels(elf)
        book = catalogue()
        self.wanted = [k for k in book.kernels if k.launch == ("runtime" if self.launches else "cpu")]
        self.wanted.sort(key=lambda k: not k.library.search(path))
        self.engine = book.engine_of(path)

    def rows(self) -> list[Row]:
        """One `Row` per kernel, with the sites of its instances; in a stripped library the instances that its GPU code names."""
        needles = {k.needle for k in self.wanted}
        if self.launches and self.pattern is not None:
            needles.add(b"__device_stub_")
        if self.launches and self.word:
            needles.add(f"{len(self.word)}{self.word}".encode())
        registered = self._registered(needles - {b"__device_stub_"})
        symbols = [s for s in self.elf.symbols_named(sorted(needles)) if s[1] not in registered]
        rows: dict[Any, Row] = {}
        for symbol, value, size in symbols + [(name, a, 0) for a, name in registered.items()]:
            signature = signatures.parse(symbol)
            kernel = self._kernel_of(signature, value in registered)
            if kernel is None:
                continue
            key = kernel.kernel, kernel.backend, signature.name if not kernel.within else kernel.kernel
            if key not in rows:
                rows[key] = Row(kernel, key[2], self.path, kernel.engine or self.engine, "host")
            if len(rows[key].sites) < MAX_LOCATIONS:
                kind = _kind(kernel, signature, value in registered)
                rows[key].sites.append(BreakpointSite(value, size, symbol, signature, kind))
        if rows or not self.launches:
            return list(rows.values())
        return [
            Row(k, k.kernel, self.path, k.engine or self.engine, "device")
            for k in ([] if _NVIDIA.search(self.path) else _in_device_code(self.elf, self.wanted))
            if self.pattern is None or self.pattern.search(k.kernel)
        ]

    def _registered(self, words: set[bytes]) -> dict[int, str]:
        """{address of a host function: mangled name} of a stripped library, as its code registers them."""
        code = None if not self.launches or self.elf.has_static_symbols else code_of(self.elf)
        # a library such as cuBLAS has much code, and nothing of these
        if code is None or (self.pattern is None and not code.names(sorted(words))):
            return {}
        known = code.host_functions().items()
        return {a: name for a, name in known if self.pattern is not None or any(w.decode() in name for w in words)}

    def _kernel_of(self, signature: signatures.Signature, is_registered: bool) -> Kernel | None:
        """The catalogue's kernel of which a symbol is an instance, or a new one where the symbol matches `pattern` or `word`."""
        if ".cold" in signature.clone or not signature.path:
            return None
        kernel = next((k for k in self.wanted if k.fits(signature)), None)
        if kernel is None:
            by_pattern = self.pattern is not None and (signature.stub or is_registered)
            if not (by_pattern or (self.word and signature.base == self.word and self.launches)):
                return None
            kernel = Kernel(
                {"engine": "", "backend": "", "launch": "runtime", "source": ""},
                {"kernel": signature.base, "role": "other", "releases": ""},
            )
        if signature.clone and kernel.launch != "cpu":
            return None
        if self.pattern is not None and not self.pattern.search(signature.text):
            return None
        takes_tensors = any(_TENSOR.match(p) for p in signature.parameters or ())
        if takes_tensors and kernel.launch == "runtime" and kernel.role != "launcher":
            return kernel.as_launcher()  # vLLM names some host functions as their kernels
        return kernel


def _kind(kernel: Kernel, signature: signatures.Signature, is_registered: bool) -> str:
    """The kind of a symbol's `BreakpointSite`."""
    if is_registered:
        return "registered"
    if signature.stub:
        return "stub"
    return "function" if kernel.role == "launcher" or kernel.launch == "cpu" else "wrapper"


def launches_kernels(elf: Elf) -> bool:
    """Whether a library launches through the CUDA (or HIP) runtime; its own static copy of the runtime counts too."""
    return (
        any(
            elf.data.find(word, base, min(base + size, len(elf.data))) >= 0
            for _, _, base, size in elf._symbol_tables()
            for word in (b"cudaLaunchKernel", b"hipLaunchKernel", b"__cudaRegisterFatBinary")
        )
        or ".nv_fatbin" in elf.sections
    )


def _in_device_code(elf: Elf, wanted: list[Kernel]) -> list[Kernel]:
    """Kernels that only the GPU code of a stripped library names."""
    section = elf.sections.get(".nv_fatbin")
    if section is None:
        return []
    start, end = section[1], section[1] + section[2]
    return [k for k in wanted if k.role != "launcher" and elf.data.find(k.needle, start, end) >= 0]


def entries(module: Module, linked: bool = False) -> list[tuple[str, int]]:
    """`[(entry's name, address in the process)]` of the launch functions inside a module itself. `linked`: also those of a
    stripped module's own runtime, for which its code must be searched."""
    return [(name, value + module.bias) for name, value in _entries(module.elf) or linked and linked_entries(module.elf) or ()]


def entry_at(module: Module, address: int) -> str:
    """The launch function of a module whose first instruction is at an address of the process, '' for none."""
    vaddr = address - module.bias
    found = next((name for name, value in _entries(module.elf) if value == vaddr), "")
    code = None if found or module.elf.has_static_symbols else code_of(module.elf)
    if code is not None and (code.frames.extent(vaddr) or (None,))[0] == vaddr:
        found = next((name for name, value in linked_entries(module.elf) if value == vaddr), "")
    return found


def _entries(elf: Elf) -> list[tuple[str, int]]:
    if "launch_entries" not in elf.kept:
        found = elf.symbols_named([b"LaunchKernel", b"LaunchCooperativeKernel"])
        # a versioned name in .symtab carries its version
        elf.kept["launch_entries"] = [(name.split("@")[0], value) for name, value, _ in found if name.split("@")[0] in ENTRIES]
    known: list[tuple[str, int]] = elf.kept["launch_entries"]
    return known


def linked_entries(elf: Elf) -> list[tuple[str, int]]:
    """`[(name, address)]` of the launch functions of a runtime that is linked into a stripped file."""
    code = None if _entries(elf) or elf.has_static_symbols else code_of(elf)
    return code.runtime() if code is not None else []


def exports(elf: Elf, entry: str) -> bool:
    """Whether others can call a launch function that a file holds: a runtime that is linked in serves its own file alone."""
    return elf.exported(entry) is not None


def passes(elf: Elf, entry: str) -> bool:
    """Whether a library calls a launch function, according to its symbol tables, or holds one. (CUDA 13 calls __cudaLaunchKernel,
    which jumps on.)"""
    if any(name == entry for name, _ in _entries(elf) or linked_entries(elf)):
        return True
    words = [
        b"\0" + entry.encode() + b"\0",
        b"\0" + entry.encode() + b"@",
        b"\0__" + entry.encode() + b"\0",
        b"\0__" + entry.encode() + b"@",
    ]
    return any(
        elf.data.find(word, base, min(base + size, len(elf.data))) >= 0
        for _, _, base, size in elf._symbol_tables()
        for word in words
    )


def search(
    target: Target, pattern: re.Pattern[str] | None = None, rt: Runtime | None = None, word: str = ""
) -> tuple[list[Row], list[tuple[str, int, str]], dict[str, str]]:
    """`([Row], [(entry, address, library)], {library: why it could not be read})` of a process. `rt`: its Python runtime where
    it has one, for the kernels that Triton makes; `pattern`, `word`: as in `scan_library`."""
    rows, gates, unread = [], [], {}
    for module in target.modules():
        try:
            elf = module.elf
            own = scan_library(elf, module.path, module.bias, pattern, word)
            rows += own
            gates += [(name, address, module.path) for name, address in entries(module, linked=bool(own))]
        except NotFoundError as e:
            if ".so" in module.name:
                unread[module.path] = str(e)
    if rt is not None:
        rows += _triton(rt, pattern)
    order = {"attention": 0, "reduce": 1, "cache": 2, "plan": 3, "launcher": 4, "other": 5}
    rows.sort(key=lambda r: (order[r.kernel.role], r.where, r.library, r.name))
    return rows, sorted(set(gates)), unread


def _triton(rt: Runtime, pattern: re.Pattern[str] | None) -> list[Row]:
    """Rows of the Triton kernels among the globals of the process's Python modules: they are launched by the driver, by name."""
    book, found = catalogue(), []
    names: dict[str, list[Kernel]] = {}
    for kernel in book.kernels:
        if kernel.launch == "driver":
            names.setdefault(kernel.kernel, []).append(kernel)
    for module, contents in modules_with_kernels(rt):
        engine = module.split(".")[0]
        for name, kernels in names.items():
            if pattern is not None and not pattern.search(name):
                continue
            try:
                value = contents.item(name)
            except GdbextError as e:
                log.passed_over(e)
                continue
            if value.type.name != "JITFunction":
                continue
            kernel = next((k for k in kernels if k.engine == engine), kernels[0])
            own = kernels_of(engine) or kernel.engine
            found.append(Row(kernel, name, "", own, "driver", module=module))
    return found


def modules_with_kernels(rt: Runtime) -> Iterator[tuple[str, Object]]:
    """(name, contents) of the imported modules that may define kernels of Triton, by their names. Thousands of others are not
    read."""
    for name in rt.modules():
        if not re.search(r"triton|attention|\bops\b|kernel|^__main__$", name):
            continue
        try:
            contents = rt.module(name)
        except GdbextError as e:
            log.passed_over(e)
            continue
        if contents is not None:
            yield name, contents


PAGED = "paged-attention"  # of llm-break: the kernels that compute attention over the KV cache here


def chosen(rows: Sequence[Row], name: str) -> list[Row]:
    """The rows that a NAME of llm-break means: an identifier, a qualified name, "paged-attention", or a regular expression of
    whole names."""
    if name == PAGED:
        return [r for r in rows if r.kernel.role == "attention"]
    exact = [r for r in rows if name in (r.kernel.kernel, r.name) or r.name.endswith("::" + name)]
    if exact:
        return exact
    # The driver launches by name: a name of the catalogue is enough, also where no Python module that holds it could be read.
    by_driver = [k for k in catalogue().kernels if k.launch == "driver" and k.kernel == name]
    if by_driver:
        return [Row(by_driver[0], name, "", by_driver[0].engine, "driver")]
    try:
        pattern = re.compile(name)
    except re.error:
        return []
    found = []
    for row in rows:
        sites = [p for p in row.sites if pattern.search(p.signature.text)]
        if sites or not row.sites and pattern.fullmatch(row.name):
            found.append(Row(row.kernel, row.name, row.library, row.engine, row.where, sites, row.module))
    return found
