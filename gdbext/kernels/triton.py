"""Kernels that Triton compiled, read from its own objects: the kernel of each driver function, and its parameters.

Source: triton/runtime/jit.py and triton/compiler/compiler.py of 3.0 to 3.9. A JITFunction keeps its compiled kernels in
`device_caches` {device: (cache, …)}, before 3.3 in `cache` {device: cache}. A CompiledKernel has:

* `function`: the driver's handle, once the kernel was loaded
* `name`
* `src.signature` {argument: type}: an argument whose value was compiled in has the type "constexpr" and is not passed
* `src.constants` {its place: value}
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator

from .. import log
from ..errors import GdbextError
from . import signatures
from .catalogue import modules_with_kernels

if TYPE_CHECKING:
    from ..cpython.objects import Object
    from ..cpython.runtime import Runtime
    from .parameters import Parameter

MAX_KERNELS = 8192
MAX_PER_FUNCTION = 512
_TYPES = {
    "i1": "bool",
    "u1": "bool",
    "i8": "signed char",
    "i16": "short",
    "i32": "int",
    "i64": "long",
    "u8": "unsigned char",
    "u16": "unsigned short",
    "u32": "unsigned int",
    "u64": "unsigned long",
    "fp32": "float",
    "f32": "float",
    "fp64": "double",
    "fp16": "fp16",
    "bf16": "bf16",
}
_SIZES = {"fp16": 2, "bf16": 2}
_POINTED = {"fp32": "float", "fp64": "double", "fp16": "fp16", "bf16": "bf16"}


_SUFFIX = re.compile(r"_0[0-9cde]*$")


def without_suffix(name: str) -> str:
    """A kernel's name without the suffix of Triton 2 (triton/compiler/code_generator.py, `kernel_suffix`): the number of each
    argument, with c, d or e where it is 1 or divisible by 16 or 8."""
    return _SUFFIX.sub("", name)


class Compiled:
    """One compiled kernel.

    `function`: the driver's handle. `parameters`: [(name, C type, size in bytes or None where the type gives it)] of the passed
    parameters, in order. `whole`: whether these are all; a tensor descriptor or a tuple ends the known part. `constants`: {name:
    int} of the values that were compiled in."""

    def __init__(self, name: str, function: int, parameters: list[Parameter], whole: bool, constants: dict[str, int]) -> None:
        self.name, self.function, self.parameters, self.whole, self.constants = name, function, parameters, whole, constants

    @property
    def signature(self) -> signatures.Signature:
        return signatures.Signature(self.name, [self.name], [], None, "", False)


def compiled(rt: Runtime) -> dict[int, Compiled]:
    """{handle: `Compiled`} of a process with Python; {} where Triton has loaded nothing."""
    found: dict[int, Compiled] = {}
    for function in _functions(rt):
        try:
            caches = _caches(function)
        except GdbextError as e:
            log.passed_over(e)
            continue
        for cache in caches:
            for kernel in _values(cache):
                if len(found) >= MAX_KERNELS:
                    return found
                try:
                    handle = kernel.attr("function")
                    if not handle.is_none():
                        one = _read(kernel, handle.integer())
                        found[one.function] = one
                except GdbextError as e:
                    log.passed_over(e)
                    continue  # compiled by another thread just now, or another kind of object
    return found


def _functions(rt: Runtime) -> Iterator[Object]:
    """The JITFunctions among the globals of modules that may have kernels, those inside autotuners and heuristics too."""
    seen = set()
    for _, contents in modules_with_kernels(rt):
        try:
            items = contents.items()
        except GdbextError as e:
            log.passed_over(e)
            continue
        for _, value in items:
            for _ in range(4):  # Autotuner(Heuristics(JITFunction))
                if value.type.name not in ("Autotuner", "Heuristics"):
                    break
                try:
                    value = value.attr("fn")
                except GdbextError as e:
                    log.passed_over(e)
                    break
            if value.type.name == "JITFunction" and value.address not in seen:
                seen.add(value.address)
                yield value


def _caches(function: Object) -> list[Object]:
    try:
        per_device = function.attr("device_caches")
        return [entry.item(0) for entry in _values(per_device)]
    except GdbextError as e:
        log.passed_over(e)
        return list(_values(function.attr("cache")))


def _values(mapping: Object) -> Iterator[Object]:
    for i, (_, value) in enumerate(mapping.items()):
        if i >= MAX_PER_FUNCTION:
            return
        yield value


def _read(kernel: Object, handle: int) -> Compiled:
    parameters: list[Parameter] = []
    whole = True
    for name, kind in kernel.attr("src").attr("signature").items():
        try:
            text = kind.string(64)
        except GdbextError as e:
            log.passed_over(e)
            whole = False
            break
        if text == "constexpr":
            continue
        c_type = (_POINTED.get(text[1:]) or _TYPES.get(text[1:], "void")) + "*" if text.startswith("*") else _TYPES.get(text)
        if c_type is None:
            whole = False
            break
        parameters.append((name.string(200), c_type, _SIZES.get(text)))
    return Compiled(kernel.attr("name").string(1000), handle, parameters, whole, _constants(kernel.attr("src")))


def _constants(source: Object) -> dict[str, int]:
    """{name: int} of the whole numbers and truth values that were compiled in."""
    found = {}
    try:
        names = [name.string(200) for name in source.attr("fn").attr("arg_names").elements()]
        for key, value in source.attr("constants").items():
            if value.type.name not in ("int", "bool"):
                continue
            if key.type.name == "tuple":  # (place,), from 3.2 on
                key = key.item(0)
            name = key.string(200) if key.type.name == "str" else names[key.integer()]
            found[name] = value.integer()
    except (GdbextError, IndexError) as e:
        log.passed_over(e)  # of another release: then nothing is known of them
    return found
