"""A kernel launch, decoded at the first instruction of the function that performs it: kernel, grid, block, stream, arguments.

The place of each value at that instruction comes from the procedure-call standards (System V AMD64, AAPCS64) and the public
headers. These declare cudaLaunchKernel, cudaLaunchConfig_t (cuda_runtime_api.h, driver_types.h), cuLaunchKernel and
CUlaunchConfig (cuda.h). hipLaunchKernel and hipModuleLaunchKernel take the same. dim3 is three 32-bit words, passed in two
general registers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, Tuple, TypedDict, Union

from .. import log
from ..access.model import Module
from ..access.unwind import ARGUMENTS
from ..errors import FaultError, GdbextError, NotFoundError
from . import signatures
from .catalogue import entry_at as catalogue_entry
from .stripped_code import code_of
from .watched import LAUNCHES

if TYPE_CHECKING:
    from ..access.base import Target
    from .parameters import Parameter
Registers = Mapping[str, int]
Register = Tuple[str, Optional[int]]  # its name, and which half: 0 = the low 32 bits, 1 = the high ones, None = all
Place = Union[Register, Tuple[int]]  # (n,) = stack word n past the return address


class Places(TypedDict, total=False):
    """Where the parts of a launch stand at the first instruction of a launch function."""

    function: Register
    config: Place
    grid: list[Place]
    block: list[Place]
    arguments: Place
    shared: Place
    stream: Place
    extra: Place


MAX_ARGUMENTS = 256
MAX_ATTRIBUTES = 64
CLUSTER = 4  # cudaLaunchAttributeClusterDimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
UNKNOWN_COUNT = 12  # parameters shown of a kernel whose signature is not known, as far as they can be read

_RUNTIME: dict[str, Places] = {
    "x86-64": {
        "function": ("rdi", None),
        "grid": [("rsi", 0), ("rsi", 1), ("rdx", 0)],
        "block": [("rcx", 0), ("rcx", 1), ("r8", 0)],
        "arguments": ("r9", None),
        "shared": (0,),
        "stream": (1,),
    },
    "aarch64": {
        "function": ("x0", None),
        "grid": [("x1", 0), ("x1", 1), ("x2", 0)],
        "block": [("x3", 0), ("x3", 1), ("x4", 0)],
        "arguments": ("x5", None),
        "shared": ("x6", None),
        "stream": ("x7", None),
    },
}
_COOPERATIVE: dict[str, Places] = {
    "x86-64": {
        "function": ("rdi", None),
        "grid": [("rsi", 0), ("rdx", 0), ("rcx", 0)],
        "block": [("r8", 0), ("r9", 0), (0,)],
        "shared": (1,),
        "stream": (2,),
        "arguments": (3,),
    },
    "aarch64": {
        "function": ("x0", None),
        "grid": [("x1", 0), ("x2", 0), ("x3", 0)],
        "block": [("x4", 0), ("x5", 0), ("x6", 0)],
        "shared": ("x7", 0),
        "stream": (0,),
        "arguments": (1,),
    },
}
_DRIVER: dict[str, Places] = {
    "x86-64": {**_COOPERATIVE["x86-64"], "extra": (4,)},
    "aarch64": {**_COOPERATIVE["aarch64"], "extra": (2,)},
}
_RUNTIME_EX: dict[str, Places] = {
    "x86-64": {"config": ("rdi", None), "function": ("rsi", None), "arguments": ("rdx", None)},
    "aarch64": {"config": ("x0", None), "function": ("x1", None), "arguments": ("x2", None)},
}
_DRIVER_EX: dict[str, Places] = {
    "x86-64": {"config": ("rdi", None), "function": ("rsi", None), "arguments": ("rdx", None), "extra": ("rcx", None)},
    "aarch64": {"config": ("x0", None), "function": ("x1", None), "arguments": ("x2", None), "extra": ("x3", None)},
}
_ABI = {
    "cudaLaunchKernel": _RUNTIME,
    "cudaLaunchCooperativeKernel": _RUNTIME,
    "hipLaunchKernel": _RUNTIME,
    "hipExtLaunchKernel": _RUNTIME,
    "cudaLaunchKernelExC": _RUNTIME_EX,
    "cuLaunchKernel": _DRIVER,
    "hipModuleLaunchKernel": _DRIVER,
    "cuLaunchCooperativeKernel": _COOPERATIVE,
    "cuLaunchKernelEx": _DRIVER_EX,
}
_SP = {"x86-64": ("rsp", 8), "aarch64": ("sp", 0)}  # the stack pointer and how far above it the caller's words begin


@dataclass
class Argument:
    """One argument of a launch.

    * `type`: as the signature or DWARF has it, '' when not known
    * `value`: int, float, bool or text, None when it could not be read
    * `raw`: whether it is just the bytes in memory (hex text)
    * `address`: of the parameter in the process, None in a register
    * `why`: why it could not be read
    * `points_to`: set by the code that looks it up"""

    index: int
    type: str
    value: Any = None
    raw: bool = False
    name: str = ""
    address: int | None = None
    why: str = ""
    points_to: Any = None

    @property
    def pointer(self) -> bool:
        return (
            not self.raw and isinstance(self.value, int) and not isinstance(self.value, bool) and signatures.is_pointer(self.type)
        )


class Launch:
    """`entry`: the function stopped in; `function`: the kernel's handle or host address; `signature`: of the kernel, None when
    it is not known; `grid`, `block`, `cluster`: extents (None for a CPU function, cluster for launches without);
    `shared_bytes`, `stream`: int; `arguments`: [`Argument`]; `counted`: whether their number is known."""

    def __init__(self, entry: str, function: int, signature: signatures.Signature | None) -> None:
        self.entry, self.function, self.signature = entry, function, signature
        self.grid: tuple[int, ...] | None = None
        self.block: tuple[int, ...] | None = None
        self.cluster: tuple[int, ...] | None = None
        self.shared_bytes: int | None = None
        self.stream: int | None = None
        self.arguments: list[Argument] = []
        self.problems: list[str] = []
        self.counted = True
        self.given_name = ""

    @property
    def name(self) -> str:
        return self.signature.text if self.signature is not None else self.given_name

    @property
    def base(self) -> str:
        return self.signature.base if self.signature is not None else self.given_name


def is_driver(entry: str) -> bool:
    """Whether a launch function is the driver's, not the runtime's."""
    return entry.startswith("cu") and not entry.startswith("cuda") or entry.startswith("hipModule")


def abi_of(entry: str, arch: str) -> Places:
    """The places of an entry on an architecture; `GdbextError` for one without a table."""
    table = _ABI.get(entry[:-5] if entry.endswith("_ptsz") else entry)
    if table is None or arch not in table:
        raise GdbextError(f"launches through {entry} on {arch} are not known to this pack")
    return table[arch]


def function_of(target: Target, entry: str, registers: Registers) -> int:
    """The kernel's handle or host address alone, which a breakpoint checks first."""
    place = abi_of(entry, target.arch)["function"]
    return registers[place[0]]


def return_address(target: Target, registers: Registers) -> int:
    """Where a function returns to, at its first instruction."""
    return target.u64(registers["rsp"]) if target.arch == "x86-64" else registers["x30"]


def signature_at(target: Target, function: int, registers: Registers) -> signatures.Signature | None:
    """The `Signature` of the launched kernel, or None. It comes from the symbol at the kernel's host address, else from the stub
    that launches it, or from the name that a stripped library registers."""
    for address, exact in ((function, True), (return_address(target, registers), False)):
        module = target.module_at(address)
        if module is None:
            continue
        try:
            symbol = (
                module.elf.function_from(address - module.bias) if exact else module.elf.function_at(address - 1 - module.bias)
            )
        except NotFoundError as e:
            log.passed_over(e)
            continue
        if symbol:
            found = signatures.parse(symbol)
            if exact or found.stub:
                return found
        name = "" if symbol and exact else _registered(target, module, address, exact, function)
        if name:
            return signatures.parse(name)
    return None


def _registered(target: Target, module: Module, address: int, exact: bool, function: int) -> str:
    """The mangled name of a kernel, or ''. In a stripped library it is found by the kernel's host function, in any by the handle
    that the launching code stores."""
    code = code_of(module.elf)
    if code is None or exact and module.elf.has_static_symbols:
        return ""
    if module.elf.has_static_symbols:  # its launching code is inlined at the launch
        for known in code.calls(address - 1 - module.bias):
            handle, host = (known.get(register) for register in code.ARGUMENTS[:2])
            if _holds(target, handle, module.bias, function) and host:
                return module.elf.function_from(host)
        return ""
    hosts = code.host_functions()
    if exact:
        return hosts.get(address - module.bias, "")
    for slot, host in code.handles(address - 1 - module.bias) if hosts else ():
        if _holds(target, slot, module.bias, function):
            return hosts[host]
    return ""


def _holds(target: Target, slot: int | None, bias: int, handle: int) -> bool:
    """Whether a word of a module, at an offset in its file, holds a kernel's handle."""
    try:
        return slot is not None and target.u64(slot + bias) == handle
    except FaultError as e:
        log.passed_over(e)
        return False


def decode(
    target: Target,
    entry: str,
    registers: Registers,
    signature: signatures.Signature | None = None,
    parameters: Sequence[Parameter] | None = None,
) -> Launch:
    """The `Launch` of a thread at the first instruction of `entry`.

    `registers`: {name: value} of general registers and the stack pointer. `signature`: of the kernel, looked up when not given.
    `parameters`: [(name, type, size in bytes)] from DWARF where it exists. Memory that cannot be read is listed in `problems`.
    """
    places = abi_of(entry, target.arch)
    sp, above = _SP[target.arch]

    def word(place: Place) -> int:
        if len(place) == 1:
            return target.u64(registers[sp] + above + 8 * place[0])
        value = registers[place[0]]
        return value if place[1] is None else value >> 32 & 0xFFFFFFFF if place[1] else value & 0xFFFFFFFF

    function = word(places["function"])
    launch = Launch(entry, function, signature if signature is not None else signature_at(target, function, registers))
    if "config" in places:
        _config(target, launch, word(places["config"]), is_driver(entry))
    else:
        launch.grid, launch.block = (tuple(word(p) & 0xFFFFFFFF for p in extent) for extent in (places["grid"], places["block"]))
        launch.shared_bytes, launch.stream = word(places["shared"]), word(places["stream"])
        if is_driver(entry):
            launch.shared_bytes &= 0xFFFFFFFF
    pointers = word(places["arguments"])
    if not pointers and "extra" in places and word(places["extra"]):
        launch.problems.append("its arguments are in one buffer (CU_LAUNCH_PARAM_BUFFER_POINTER): they are not taken apart")
        launch.counted = False
        return launch
    _arguments(target, launch, pointers, parameters)
    return launch


def _config(target: Target, launch: Launch, at: int, driver: bool) -> None:
    """CUlaunchConfig and cudaLaunchConfig_t agree but for the width of the shared memory's size."""
    blob = target.read(at, 56)
    launch.grid, launch.block = struct.unpack_from("<3I", blob, 0), struct.unpack_from("<3I", blob, 12)
    launch.shared_bytes = struct.unpack_from("<I" if driver else "<Q", blob, 24)[0]
    launch.stream, attributes, count = struct.unpack_from("<QQI", blob, 32)
    if count > MAX_ATTRIBUTES:
        launch.problems.append(f"{count} launch attributes are more than make sense: not read")
        return
    for i in range(count):
        blob = target.read(attributes + 72 * i, 20)
        if struct.unpack_from("<I", blob)[0] == CLUSTER:
            launch.cluster = struct.unpack_from("<3I", blob, 8)


def _arguments(target: Target, launch: Launch, pointers: int, parameters: Sequence[Parameter] | None) -> None:
    """The arguments: args[i] points to parameter i, and its type says how many of the bytes there belong to it."""
    kinds = launch.signature.parameters if launch.signature is not None else None
    if parameters is None and kinds is not None:
        parameters = [("", kind, None) for kind in kinds]
    launch.counted = parameters is not None
    wanted = parameters if parameters is not None else [("", "", None)] * UNKNOWN_COUNT
    for i, (name, kind, size) in enumerate(wanted[:MAX_ARGUMENTS]):
        try:
            address = target.u64(pointers + 8 * i)
            launch.arguments.append(parameter(target, i, kind, address, name, size))
        except FaultError as e:
            if not launch.counted:
                break
            launch.arguments.append(Argument(i, kind, name=name, why=str(e)))
            launch.problems.append(f"argument {i}: {e}")


def parameter(target: Target, index: int, kind: str, address: int, name: str = "", size: int | None = None) -> Argument:
    """An `Argument` whose parameter is at `address`."""
    known = signatures.scalar(kind)
    if known is None:
        raw = target.read_partial(address, min(size or 8, 64))
        if not raw:
            raise FaultError(address, size or 8)
        return Argument(index, kind, raw.hex(), True, name, address)
    return Argument(index, kind, struct.unpack("<" + known[1], target.read(address, known[0]))[0], False, name, address)


# ---- plain functions: CPU kernels and launchers ------------------------------------------------------------------------
_REFERENCED = (
    "at::Tensor",
    "std::__cxx11::basic_string<",
    "std::vector<",
    "std::optional<at::Tensor>",
    "c10::SymInt",
    "c10::List<",
    "std::tuple<",
    "std::optional<c10::",
    "std::optional<std::",
    "c10::optional<at::Tensor>",
)


def decode_call(target: Target, name: str, registers: Registers, vector: Callable[[int], bytes | None]) -> Launch:
    """The `Launch` of a plain C++ function at its first instruction, from its demangled parameter list.

    `vector(i)`: the low 8 bytes of vector register i, or None where they are not known. How a class is passed by value is known
    from debug information only, so the arguments end before the first such parameter."""
    signature = signatures.parse(name)
    launch = Launch(signature.name, 0, signature)
    integers, sp, above = list(ARGUMENTS[target.arch]), *_SP[target.arch]
    state = {"vector": 0, "stack": registers[sp] + above}

    def general() -> bytes:
        if integers:
            return struct.pack("<Q", registers[integers.pop(0)])
        state["stack"] += 8
        return target.read(state["stack"] - 8, 8)

    def floating() -> bytes | None:
        if state["vector"] < 8:
            state["vector"] += 1
            return vector(state["vector"] - 1)
        state["stack"] += 8
        return target.read(state["stack"] - 8, 8)

    if len(signature.path) > 1 and signature.base == "operator()":
        launch.arguments.append(
            Argument(0, signature.name.rpartition("::")[0] + "*", struct.unpack("<Q", general())[0], name="this")
        )
    for kind in signature.parameters or ():
        index = len(launch.arguments)
        plain = kind.replace(" const", "").strip()
        known = signatures.scalar(kind)
        if known is not None:
            blob = floating() if known[1] in "fd" else general()
            value = None if blob is None else struct.unpack_from("<" + known[1], blob)[0]
            launch.arguments.append(
                Argument(index, kind, value, why="" if blob is not None else "vector registers are not known here")
            )
        elif plain.startswith(_REFERENCED):  # not trivially copyable: the caller passes the address of a copy
            launch.arguments.append(Argument(index, kind + "&", struct.unpack("<Q", general())[0]))
        elif plain.startswith(("c10::ArrayRef<", "std::basic_string_view<")):
            launch.arguments.append(
                Argument(index, kind, "%#x, length %d" % (*struct.unpack("<Q", general()), *struct.unpack("<Q", general())))
            )
        else:
            launch.problems.append(
                f"argument {index} is a {kind} by value, and only debug information says how it is "
                "passed: later arguments are not shown"
            )
            launch.counted = False
            break
    return launch


# ---- the launch of a stopped thread ----------------------------------------------------------------------------------------


def entry_at(target: Target, pc: int) -> str:
    """The launch function whose first instruction `pc` is, '' for none."""
    known = LAUNCHES.get((getattr(target, "pid", None), pc))
    if known is not None:
        return known
    module = target.module_at(pc)
    if module is None:
        return ""
    try:
        return catalogue_entry(module, pc)
    except NotFoundError as e:
        log.passed_over(e)
        return ""


def function_at(target: Target, pc: int) -> str:
    """The mangled name of a function of the catalogue whose first instruction `pc` is, '' for none."""
    from .catalogue import catalogue

    module = target.module_at(pc)
    if module is None:
        return ""
    try:
        symbol = module.elf.function_from(pc - module.bias)
    except NotFoundError as e:
        log.passed_over(e)
        return ""
    found = signatures.parse(symbol) if symbol else None
    known = found is not None and any(
        k.fits(found) and (k.launch == "cpu" or k.role == "launcher" or any("at::Tensor" in p for p in found.parameters or ()))
        for k in catalogue().by_word.get(found.base, [])
        + catalogue().by_word.get(found.path[-2] if len(found.path) > 1 else "", [])
    )
    return symbol if known and symbol is not None else ""


def launch_at(
    target: Target,
    registers: Registers,
    vector: Callable[[int], bytes | None] = lambda i: None,
    parameters_of: Callable[[signatures.Signature, int], Sequence[Parameter] | None] | None = None,
    signature: signatures.Signature | None = None,
) -> Launch | None:
    """The `Launch` that a thread with these registers is about to perform, None when it is at no launch function.
    `parameters_of(signature, function)`: the parameters by DWARF, or None."""
    pc = registers["rip" if target.arch == "x86-64" else "pc"]
    entry = entry_at(target, pc)
    if entry:
        function = function_of(target, entry, registers)
        signature = signature or signature_at(target, function, registers)
        return decode(
            target,
            entry,
            registers,
            signature,
            parameters_of(signature, function) if parameters_of and signature is not None else None,
        )
    name = function_at(target, pc)
    return decode_call(target, name, registers, vector) if name else None
