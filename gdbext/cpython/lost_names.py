"""Names of C types whose text is lost: it lies in the read-only part of a file, a core leaves that part out, and the file is not
here. The interpreter's namespaces tell the names: `builtins`, and `types` for types without a name there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import log
from ..errors import GdbextError
from .types import TYPE

if TYPE_CHECKING:
    from .runtime import Runtime

UNKNOWN = "<type without a name here>"
_OWN_NAMES = {  # Lib/types.py: its name of a type -> tp_name
    "AsyncGeneratorType": "async_generator",
    "BuiltinFunctionType": "builtin_function_or_method",
    "CellType": "cell",
    "ClassMethodDescriptorType": "classmethod_descriptor",
    "CodeType": "code",
    "CoroutineType": "coroutine",
    "EllipsisType": "ellipsis",
    "FrameType": "frame",
    "FunctionType": "function",
    "GeneratorType": "generator",
    "GenericAlias": "types.GenericAlias",
    "GetSetDescriptorType": "getset_descriptor",
    "MappingProxyType": "mappingproxy",
    "MemberDescriptorType": "member_descriptor",
    "MethodDescriptorType": "method_descriptor",
    "MethodType": "method",
    "MethodWrapperType": "method-wrapper",
    "ModuleType": "module",
    "NoneType": "NoneType",
    "NotImplementedType": "NotImplementedType",
    "SimpleNamespace": "types.SimpleNamespace",
    "TracebackType": "traceback",
    "WrapperDescriptorType": "wrapper_descriptor",
}


def read(rt: Runtime) -> dict[int, str]:
    """{address of a type: its tp_name}, of the types that a namespace names."""
    found: dict[int, str] = {}
    for module, names in (("builtins", None), ("types", _OWN_NAMES)):
        try:
            for key, value in rt.namespace_of(module):
                name = rt.object(key).string(100)
                own = name if names is None else names.get(name)
                if own is not None and value % 8 == 0 and rt.object(value).type.flags & TYPE:
                    found.setdefault(value, own)
        except GdbextError as e:
            log.passed_over(e)
    return found
