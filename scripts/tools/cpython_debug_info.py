"""Run inside gdb by scripts/make-cpython-layouts: prints what the debug information of the open file says of CPython's types.

It is executed by its text, without the packages beside it: gdb's own Python runs it.
"""

import json

# prefix: ([names of the type, first found wins], [fields]). "*" takes every direct member; dotted names look into members.
STRUCTS = {
    "runtime": (
        ["struct pyruntimestate", "_PyRuntimeState"],
        """
        interpreters interpreters.head interpreters.main interpreters.next_id gilstate.tstate_current
        gilstate.autoInterpreterState gilstate.autoTSSkey ceval.gil ceval.gil.last_holder ceval.gil.locked
        ceval.gil.switch_number finalizing _finalizing _finalizing_id main_thread autoTSSkey debug_offsets initialized
        core_initialized preinitialized unicode_ids audit_hooks gc gc.collecting signals ceval.signals_pending""".split(),
    ),
    "interp": (
        ["struct _is", "PyInterpreterState"],
        """
        next tstate_head id modules sysdict builtins gc gc.collecting gc.generations gc.generation0
        gc.permanent_generation gc.young gc.old gc.visited_space gc.enabled gc.generation_stats gc.frame runtime threads
        threads.head threads.main threads.count threads.next_unique_id ceval ceval.gil ceval.recursion_limit
        ceval.eval_breaker ceval.instrumentation_version _gil _gil.last_holder _gil.locked _gil.enabled imports.modules
        imports.modules_by_index imports.lock.mutex imports.lock.thread imports.lock.level finalizing _finalizing
        _finalizing_id dict importlib import_func eval_frame
        codecs_initialized requires_idref id_refcount _initialized _ready _whence asyncio_tasks_head asyncio_tasks_lock
        tlbc_indices code_object_generation tlbc_generation stoptheworld types types.builtins types.for_extensions
        types.builtins.initialized types.builtins.num_initialized types.for_extensions.initialized
        types.for_extensions.next_index types.for_extensions.num_initialized _initial_thread monitors""".split(),
    ),
    "gil": (["struct _gil_runtime_state"], ["*"]),
    "worldstop": (["struct _stoptheworld_state"], ["*"]),
    "gcstate": (["struct _gc_runtime_state"], ["*"]),
    "gcgen": (["struct gc_generation"], ["*"]),
    "gcstat": (["struct gc_generation_stats"], ["*"]),
    "gcstats": (["struct gc_stats"], ["*"]),
    "gcyoung": (["struct gc_young_stats_buffer"], ["*"]),
    "gcold": (["struct gc_old_stats_buffer"], ["*"]),
    "gc.head": (["PyGC_Head"], ["*"]),
    "tstate": (["struct _ts", "PyThreadState"], ["*"]),
    "tstateimpl": (["struct _PyThreadStateImpl", "_PyThreadStateImpl"], "* gc llist_node mem_free_queue".split()),
    "stackchunk": (["struct _stack_chunk", "_PyStackChunk"], ["*"]),
    "cframe": (["struct _cframe", "struct _PyCFrame", "_PyCFrame", "CFrame"], ["*"]),
    "iframe": (["struct _PyInterpreterFrame", "_PyInterpreterFrame", "InterpreterFrame"], ["*"]),
    "frameobj": (["struct _frame", "PyFrameObject"], ["*"]),
    "tryblock": (["PyTryBlock"], ["*"]),
    "code": (["struct PyCodeObject", "PyCodeObject"], ["*"]),
    "codearray": (["_PyCodeArray"], ["*"]),
    "object": (["struct _object", "PyObject"], ["*"]),
    "varobj": (["PyVarObject"], ["*"]),
    "type": (["struct _typeobject", "PyTypeObject"], ["*"]),
    "heaptype": (["struct _heaptypeobject", "PyHeapTypeObject"], ["*"]),
    "statictype": (["static_builtin_state", "managed_static_type_state"], ["*"]),
    "long": (["struct _longobject", "PyLongObject"], "* long_value.lv_tag long_value.ob_digit".split()),
    "ascii": (
        ["PyASCIIObject"],
        "* state.interned state.kind state.compact state.ascii state.ready state.statically_allocated".split(),
    ),
    "compactunicode": (["PyCompactUnicodeObject"], ["*"]),
    "unicode": (["PyUnicodeObject"], ["*"]),
    "bytes": (["PyBytesObject"], ["*"]),
    "bytearray": (["PyByteArrayObject"], ["*"]),
    "tuple": (["PyTupleObject"], ["*"]),
    "list": (["PyListObject"], ["*"]),
    "dict": (["PyDictObject"], ["*"]),
    "dictkeys": (["struct _dictkeysobject"], ["*"]),
    "dictvalues": (["struct _dictvalues", "PyDictValues"], ["*"]),
    "dkentry": (["PyDictKeyEntry"], ["*"]),
    "dkuentry": (["PyDictUnicodeEntry"], ["*"]),
    "dictview": (["_PyDictViewObject"], ["*"]),
    "odict": (["struct _odictobject"], ["*"]),
    "odictnode": (["struct _odictnode"], ["*"]),
    "defaultdict": (["defdictobject"], ["*"]),
    "set": (["PySetObject"], ["*"]),
    "setentry": (["setentry"], ["*"]),
    "deque": (["dequeobject", "struct dequeobject"], ["*"]),
    "dequeblock": (["struct BLOCK", "block"], ["*"]),
    "gen": (["PyGenObject"], ["*"]),
    "coro": (["PyCoroObject"], ["*"]),
    "asyncgen": (["PyAsyncGenObject"], ["*"]),
    "asyncgenasend": (["struct PyAsyncGenASend", "PyAsyncGenASend"], ["*"]),
    "asyncgenathrow": (["struct PyAsyncGenAThrow", "PyAsyncGenAThrow"], ["*"]),
    "corowrapper": (["PyCoroWrapper"], ["*"]),
    "func": (["PyFunctionObject"], ["*"]),
    "method": (["PyMethodObject"], ["*"]),
    "instancemethod": (["PyInstanceMethodObject"], ["*"]),
    "classmethod": (["classmethod"], ["*"]),
    "staticmethod": (["staticmethod"], ["*"]),
    "property": (["propertyobject"], ["*"]),
    "cell": (["PyCellObject"], ["*"]),
    "cfunc": (["PyCFunctionObject"], ["*"]),
    "methoddef": (["struct PyMethodDef", "PyMethodDef"], ["*"]),
    "memberdef": (["struct PyMemberDef", "PyMemberDef"], ["*"]),
    "getsetdef": (["struct PyGetSetDef", "PyGetSetDef"], ["*"]),
    "wrapperbase": (["struct wrapperbase"], ["*"]),
    "descr": (["PyDescrObject"], ["*"]),
    "memberdescr": (["PyMemberDescrObject"], ["*"]),
    "methoddescr": (["PyMethodDescrObject"], ["*"]),
    "getsetdescr": (["PyGetSetDescrObject"], ["*"]),
    "wrapperdescr": (["PyWrapperDescrObject"], ["*"]),
    "methodwrapper": (["wrapperobject"], ["*"]),
    "module": (["PyModuleObject"], ["*"]),
    "moduledef": (["struct PyModuleDef", "PyModuleDef"], ["*"]),
    "weakref": (["struct _PyWeakReference", "PyWeakReference"], ["*"]),
    "float": (["PyFloatObject"], ["*"]),
    "complex": (["PyComplexObject"], "* cval.real cval.imag".split()),
    "range": (["rangeobject"], ["*"]),
    "slice": (["PySliceObject"], ["*"]),
    "mappingproxy": (["mappingproxyobject"], ["*"]),
    "capsule": (["PyCapsule"], ["*"]),
    "memoryview": (
        ["PyMemoryViewObject"],
        "* view.buf view.len view.obj view.itemsize view.ndim view.format view.readonly".split(),
    ),
    "namespace": (["_PyNamespaceObject"], ["*"]),
    "array": (["arrayobject"], ["*"]),
    "arraydescr": (["struct arraydescr"], ["*"]),
    "partial": (["partialobject"], ["*"]),
    "lock": (["lockobject"], ["*"]),
    "rlock": (["rlockobject"], "* lock.thread lock.level lock.mutex".split()),
    "simplequeue": (["simplequeueobject"], ["*"]),
    "task": (["TaskObj"], ["*"]),
    "future": (["FutureObj"], ["*"]),
    "asynciostate": (["asyncio_state", "asynciomodulestate"], ["*"]),
    "llistnode": (["struct llist_node"], ["*"]),
    "contextvar": (["struct _pycontextvarobject"], ["*"]),
    "exc": (["PyBaseExceptionObject"], ["*"]),
    "stopiteration": (["PyStopIterationObject"], ["*"]),
    "systemexit": (["PySystemExitObject"], ["*"]),
    "oserror": (["PyOSErrorObject"], ["*"]),
    "syntaxerror": (["PySyntaxErrorObject"], ["*"]),
    "importerror": (["PyImportErrorObject"], ["*"]),
    "unicodeerror": (["PyUnicodeErrorObject"], ["*"]),
    "attributeerror": (["PyAttributeErrorObject"], ["*"]),
    "exceptiongroup": (["PyBaseExceptionGroupObject"], ["*"]),
    "tb": (["struct _traceback", "PyTracebackObject"], ["*"]),
    "excstack": (["struct _err_stackitem", "_PyErr_StackItem"], ["*"]),
    "structseq": (["PyStructSequence"], ["*"]),
    "genericalias": (["gaobject"], ["*"]),
}
# Members that hold nothing to read, or that only repeat another structure.
SKIPPED = {"ob_base", "_base", "_PyGen_HEAD", "_padding", "padding"}


def _lookup(gdb, names):
    """The first of these types that is a structure or union with fields, or None."""
    for name in names:
        try:
            t = gdb.lookup_type(name).strip_typedefs()
        except gdb.error:
            continue
        if t.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION) and t.fields():
            return t
    return None


def _members(gdb, t, base=0):
    """(name, bit position, bit width or 0, type) of the direct members; unnamed unions and structures are looked through."""
    for f in t.fields():
        if not hasattr(f, "bitpos"):
            continue
        inner = f.type.strip_typedefs()
        if f.name:
            yield f.name, base + f.bitpos, f.bitsize, inner
        elif inner.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
            yield from _members(gdb, inner, base + f.bitpos)


def _find(gdb, t, path):
    """(bit position, bit width or 0) of a member, dotted names look into members; None where there is none."""
    base, width = 0, 0
    for part in path.split("."):
        if t.code not in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
            return None
        found = next((m for m in _members(gdb, t) if m[0] == part), None)
        if found is None:
            return None
        _, position, width, t = found
        base += position
    return base, width


def _fields(gdb, t, wanted):
    """`[(name, bit position, bit width)]` of the wanted members that the type has."""
    found = []
    for name in wanted:
        if name == "*":
            found += [(n, position, width) for n, position, width, _ in _members(gdb, t) if n not in SKIPPED]
        else:
            where = _find(gdb, t, name)
            if where is not None:
                found.append((name, *where))
    return found


def _debug_offsets(gdb):
    """{"GROUP.FIELD": byte offset} of _Py_DebugOffsets, {} before 3.13."""
    t = _lookup(gdb, ["struct _Py_DebugOffsets", "_Py_DebugOffsets"])
    if t is None:
        return {}
    debug = {}
    for name, position, _, inner in _members(gdb, t):
        if inner.code == gdb.TYPE_CODE_STRUCT:
            for sub, more, _, _ in _members(gdb, inner):
                debug[f"{name}.{sub}"] = (position + more) // 8
        else:
            debug[name] = position // 8
    debug["__size"] = t.sizeof
    return debug


def extract():
    """Prints JSON {"offsets", "bits", "debug_offsets"} of the file that gdb has open."""
    import gdb

    offsets, bits = {}, {}
    for prefix, (names, wanted) in STRUCTS.items():
        t = _lookup(gdb, names)
        if t is None:
            continue
        offsets[prefix + ".__size"] = t.sizeof
        for name, position, width in _fields(gdb, t, wanted):
            if width:
                bits[f"{prefix}.{name}"] = [position // 32 * 4, position % 32, width]
            else:
                offsets[f"{prefix}.{name}"] = position // 8
    print("LAYOUT " + json.dumps({"offsets": offsets, "bits": bits, "debug_offsets": _debug_offsets(gdb)}))


if __name__ == "__layouts__":
    extract()
