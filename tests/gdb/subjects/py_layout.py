"""Says where its own objects are and what their members hold: `facts` are [address, path, kind, value].

A path is words: a key of the layout or a number is added to the address, `*` follows the pointer there. `kind` is u64, i64,
i32, u8, f64, tagged (a pointer whose low two bits may be set), text (a C string) or bytes (hex).
"""

import array
import asyncio
import builtins
import collections
import ctypes
import functools
import gc
import json
import os
import struct
import sys
import threading
import time
import types
import weakref

facts, sizes, keep = [], {}, []
CODE_OF_FRAME = "iframe.f_code" if sys.version_info < (3, 13) else "iframe.f_executable"


def fact(obj, path, value, kind="u64"):
    keep.append(obj)
    facts.append([id(obj), path, kind, value])


def at(address, path, value, kind="u64"):
    facts.append([address, path, kind, value])


def pointers(obj, prefix, **members):
    for name, value in members.items():
        keep.append(value)
        fact(obj, f"{prefix}.{name}", id(value))


class Base:
    __slots__ = ("alpha", "beta")


class Heap(Base):
    """With a dict of its own."""

    def method(self, first, /, second, *, third):
        inner = [first, second, third]
        return lambda: inner

    @property
    def prop(self):
        return 1

    @prop.setter
    def prop(self, value):
        pass

    @classmethod
    def cm(cls):
        pass

    @staticmethod
    def sm():
        pass


heap = Heap()
lst = [10**20, "x", None, 4.5, b"y"]
tup = ("a", 10**21, ())
mapping = {f"key{i}": i for i in range(5)}
for obj in (lst, tup, mapping, heap, Heap, int, type, "s", 5, 1.5, None, len, Heap.method, heap.method, sys, {1}, range(3)):
    fact(obj, "object.ob_type", id(type(obj)))
fact(lst, "varobj.ob_size", len(lst), "i64")
fact(tup, "varobj.ob_size", len(tup), "i64")
fact(b"12345", "varobj.ob_size", 5, "i64")
for i, v in enumerate(lst):
    fact(lst, f"list.ob_item * {8 * i}", id(v))
for i, v in enumerate(tup):
    fact(tup, f"tuple.ob_item {8 * i}", id(v))
fact(lst, "list.allocated", (lst.__sizeof__() - list.__basicsize__) // 8, "i64")

# dict: the table behind it, and what a split one shares with its class
fact(mapping, "dict.ma_used", 5, "i64")
fact(mapping, "dict.ma_values", 0)
fact(mapping, "dict.ma_keys * dictkeys.dk_nentries", 5, "i64")
fact(mapping, "dict.ma_keys * dictkeys.dk_usable", 0, "i64")
fact(mapping, "dict.ma_keys * dictkeys.dk_log2_size", 3, "u8")
fact(mapping, "dict.ma_keys * dictkeys.dk_log2_index_bytes", 3, "u8")
fact(mapping, "dict.ma_keys * dictkeys.dk_kind", 1, "u8")
fact({1: 2}, "dict.ma_keys * dictkeys.dk_kind", 0, "u8")
fact(mapping, "dict.ma_keys * dictkeys.dk_size", 8, "i64")

# types
SOME_TYPES = (Heap, Base, int, list, type, dict, Exception, str, collections.OrderedDict, asyncio.Future)
for t in SOME_TYPES:
    fact(t, "type.tp_basicsize", t.__basicsize__, "i64")
    fact(t, "type.tp_itemsize", t.__itemsize__, "i64")
    fact(t, "type.tp_dictoffset", t.__dictoffset__, "i64")
    fact(t, "type.tp_weaklistoffset", t.__weakrefoffset__, "i64")
    fact(t, "type.tp_base", id(t.__base__))
    if t in (Heap, Base):  # the static ones of 3.12+ keep it with the interpreter
        fact(t, "type.tp_mro", id(t.__mro__))
        fact(t, "type.tp_dict", id(gc.get_referents(t.__dict__)[0]))
        fact(t, "type.tp_name *", t.__name__, "text")
fact(Heap, "heaptype.ht_name", id(Heap.__name__))
fact(Heap, "heaptype.ht_qualname", id(Heap.__qualname__))

# descriptors
member = Base.__dict__["beta"]
pointers(member, "descr", d_type=Base, d_name=member.__name__)
fact(member, "memberdescr.d_member * memberdef.name *", "beta", "text")
slotted = Base()
slotted.beta = lst
fact(member, "memberdescr.d_member * memberdef.offset", object.__basicsize__ + 8, "i64")
fact(slotted, str(object.__basicsize__ + 8), id(lst))
prop = Heap.__dict__["prop"]
pointers(prop, "property", prop_get=prop.fget, prop_set=prop.fset)
fact(Heap.__dict__["cm"], "classmethod.cm_callable", id(Heap.__dict__["cm"].__func__))
fact(Heap.__dict__["sm"], "staticmethod.sm_callable", id(Heap.__dict__["sm"].__func__))
fact(heap.method, "method.im_self", id(heap))
fact(heap.method, "method.im_func", id(Heap.method))
fact(len, "cfunc.m_self", id(builtins))
fact(len, "cfunc.m_ml * methoddef.ml_name *", "len", "text")
fact(lst.append, "cfunc.m_self", id(lst))

# functions and code
f = Heap.method
c = f.__code__
pointers(f, "func", func_code=c, func_globals=f.__globals__, func_name=f.__name__, func_qualname=f.__qualname__)
for name in ("argcount", "posonlyargcount", "kwonlyargcount", "nlocals", "flags", "firstlineno", "stacksize"):
    fact(c, f"code.co_{name}", getattr(c, "co_" + name), "i32")
for name in ("consts", "names", "filename", "name", "qualname", "linetable", "exceptiontable"):
    if hasattr(c, "co_" + name):
        pointers(c, "code", **{"co_" + name: getattr(c, "co_" + name)})
if sys.version_info < (3, 11):
    pointers(c, "code", co_varnames=c.co_varnames, co_cellvars=c.co_cellvars, co_freevars=c.co_freevars, co_code=c.co_code)
else:
    fact(c, "code.co_code_adaptive", c.co_code[:2].hex(), "bytes")
    fact(c, "code.co_ncellvars", len(c.co_cellvars), "i32")
    fact(c, "code.co_nfreevars", len(c.co_freevars), "i32")
cell = heap.method(1, 2, third=3).__closure__[0]
fact(cell, "cell.ob_ref", id(cell.cell_contents))

# numbers and text
fact(1.5, "float.ob_fval", 1.5, "f64")
fact(2.5 - 3j, "complex.cval.real", 2.5, "f64")
fact(2.5 - 3j, "complex.cval.imag", -3.0, "f64")
for text in ("ascii", "", "lätin", "Ω", "\U0001f600"):
    fact(text, "ascii.length", len(text), "i64")
fact("ascii text", "ascii.__size", b"ascii text".hex(), "bytes")
wide = "\u0416" * 4
fact(wide, "compactunicode.__size", wide.encode("utf-16-le").hex(), "bytes")
raw = b"raw \x00 bytes"
fact(raw, "bytes.ob_sval", raw.hex(), "bytes")
ba = bytearray(b"growing")
fact(ba, "varobj.ob_size", 7, "i64")
fact(ba, "bytearray.ob_start *", ba.hex(), "bytes")
big = 3 * 2**60 + 7
digits = struct.pack("<III", 7, 0, 3).hex()
fact(big, "long.ob_digit" if sys.version_info < (3, 12) else "long.long_value.ob_digit", digits, "bytes")
if sys.version_info >= (3, 12):
    fact(-big, "long.long_value.lv_tag", 3 << 3 | 2)
else:
    fact(-big, "varobj.ob_size", -3, "i64")

# containers
some = {"only"}
fact(some, "set.used", 1, "i64")
fact(some, "set.fill", 1, "i64")
fact(set(range(20)), "set.used", 20, "i64")
dq = collections.deque(range(1000, 1100), maxlen=150)
fact(dq, "varobj.ob_size", 100, "i64")
fact(dq, "deque.maxlen", 150, "i64")
fact(collections.defaultdict(list), "defaultdict.default_factory", id(list))
od = collections.OrderedDict(a=1)
fact(od, "odict.od_first * odictnode.key", id("a"))
arr = array.array("d", [1.25, 2.5])
fact(arr, "array.ob_item * 8", 2.5, "f64")
fact(arr, "array.ob_descr * arraydescr.typecode", ord("d"), "u8")
fact(arr, "array.ob_descr * arraydescr.itemsize", 8, "i32")
sl = slice("from", "to", "by")
pointers(sl, "slice", start=sl.start, stop=sl.stop, step=sl.step)
rg = range(10**20, 10**21, 10**19)
pointers(rg, "range", start=rg.start, stop=rg.stop, step=rg.step)
proxy = types.MappingProxyType(mapping)
fact(proxy, "mappingproxy.mapping", id(mapping))
part = functools.partial(print, "a", sep="")
pointers(part, "partial", fn=part.func, args=part.args, kw=part.keywords)
ns = types.SimpleNamespace(a=1)
fact(ns, "namespace.ns_dict", id(ns.__dict__))
fact(os, "module.md_dict", id(os.__dict__))
fact(weakref.ref(heap), "weakref.wr_object", id(heap))
view = memoryview(ba)
fact(view, "memoryview.view.len", 7, "i64")
fact(view, "memoryview.view.obj", id(ba))


# generators, exceptions
def generate():
    yield 1


async def corot():
    pass


async def agen():
    yield 1


for g in (generate(), corot(), agen()):
    fact(g, "gen.gi_name", id(g.__name__))
    fact(g, "gen.gi_qualname", id(g.__qualname__))
    code = next(getattr(g, name) for name in ("gi_code", "cr_code", "ag_code") if hasattr(g, name))
    fact(g, "gen.gi_code", id(code))
    fact(g, f"gen.gi_iframe {CODE_OF_FRAME}", id(code), "tagged")
try:
    try:
        raise KeyError("inner")
    except KeyError as e:
        raise ValueError("outer", 2) from e
except ValueError as e:
    caught = e
if hasattr(caught, "add_note"):
    caught.add_note("a note")
    fact(caught, "exc.dict", id(caught.__dict__))  # where the notes are; the member `notes` stays empty
pointers(caught, "exc", args=caught.args, traceback=caught.__traceback__, context=caught.__context__, cause=caught.__cause__)
tb = caught.__traceback__
pointers(tb, "tb", tb_frame=tb.tb_frame)
fact(tb, "tb.tb_lasti", tb.tb_lasti, "i32")
if sys.version_info[:2] != (3, 11):  # -1: ask the line table for tb_lasti; 3.11 changed to that within its patch releases
    fact(tb, "tb.tb_lineno", tb.tb_lineno if sys.version_info < (3, 11) else -1, "i32")
try:
    raise StopIteration("done")
except StopIteration as e:
    keep.append(e)
    fact(e, "stopiteration.value", id(e.value))
missing = OSError(2, "gone", "file")
pointers(missing, "oserror", myerrno=missing.errno, strerror=missing.strerror, filename=missing.filename)

# locks, tasks
rlock = threading.RLock()
rlock.acquire()
rlock.acquire()
if sys.version_info < (3, 14):
    fact(rlock, "rlock.rlock_owner", threading.get_ident())
    fact(rlock, "rlock.rlock_count", 2)
else:
    fact(rlock, "rlock.lock.thread", threading.get_ident())
    fact(rlock, "rlock.lock.level", 1)  # counts the times beyond the first
lock = threading.Lock()
lock.acquire()
if sys.version_info < (3, 13):
    fact(lock, "lock.locked", 1, "u8")
elif sys.version_info >= (3, 14):
    fact(lock, "lock.lock", 1, "u8")


async def waits(future):
    await future


async def main():
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    task = loop.create_task(waits(future), name="a waiting task")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    keep.extend([future, task, loop, task.get_coro()])
    name = task.get_name()
    pointers(task, "task", task_coro=task.get_coro(), task_fut_waiter=future, task_name=name, task_loop=loop)
    fact(future, "future.fut_loop", id(loop))
    fact(future, "future.fut_state", 0, "i32")
    done = loop.create_future()
    done.set_result(lst)
    fact(done, "future.fut_result", id(lst))
    fact(done, "future.fut_state", 2, "i32")
    return task


loop = asyncio.new_event_loop()
keep.append(loop.run_until_complete(main()))
keep.append(loop)

# the interpreter
api = ctypes.pythonapi
for name in ("PyThreadState_Get", "PyInterpreterState_Get"):
    getattr(api, name).restype = ctypes.c_void_p
tstate, interp = api.PyThreadState_Get(), api.PyInterpreterState_Get()
runtime = ctypes.addressof(ctypes.c_char.in_dll(api, "_PyRuntime"))
at(runtime, "runtime.interpreters.head", interp)
at(runtime, "runtime.interpreters.main", interp)
at(runtime, "runtime.main_thread", threading.get_ident())
at(interp, "interp.id", 0)
at(interp, "interp.next", 0)
at(interp, "interp.sysdict", id(sys.__dict__))
at(interp, "interp.builtins", id(builtins.__dict__))
at(interp, "interp.modules" if sys.version_info < (3, 12) else "interp.imports.modules", id(sys.modules))
at(interp, "interp.threads.head" if sys.version_info >= (3, 11) else "interp.tstate_head", tstate)
at(interp, "interp.gc.collecting", 0, "i32")
at(tstate, "tstate.interp", interp)
at(tstate, "tstate.next", 0)
at(tstate, "tstate.thread_id", threading.get_ident())
at(tstate, "tstate.native_thread_id", threading.get_native_id())
for i, threshold in enumerate(gc.get_threshold()):
    at(interp, f"interp.gc.generation0 * {'gcgen.__size ' * i}gcgen.threshold", threshold, "i32")
at(interp, "interp.gc.young gcgen.threshold", gc.get_threshold()[0], "i32")


def outer():
    here = sys._getframe()
    keep.append(here)
    return inner(here)


def inner(back):
    here = sys._getframe()
    keep.append(here)
    code = here.f_code
    if sys.version_info < (3, 11):
        pointers(here, "frameobj", f_back=back, f_code=code, f_globals=here.f_globals)
    else:
        fact(here, "frameobj.f_frame * iframe.f_globals", id(here.f_globals))
        fact(here, "frameobj.f_frame * iframe.f_builtins", id(builtins.__dict__))
        fact(here, "frameobj.f_frame * iframe.frame_obj", id(here))
        fact(here, "frameobj.f_frame * iframe.previous * iframe.frame_obj", id(back))
        fact(here, f"frameobj.f_frame * {CODE_OF_FRAME}", id(code), "tagged")
        fact(here, "frameobj.f_frame * iframe.localsplus", id(back), "tagged")
        fact(here, "frameobj.f_frame * iframe.owner", 0, "u8")
    return park()


def park():
    current = sys._getframe()
    keep.append(current)
    if sys.version_info >= (3, 13):
        at(tstate, "tstate.current_frame * iframe.frame_obj", id(current))
    elif sys.version_info >= (3, 11):
        at(tstate, "tstate.cframe * cframe.current_frame * iframe.frame_obj", id(current))
    else:
        at(tstate, "tstate.frame", id(current))
    shapes = {
        "list": list,
        "dict": dict,
        "set": set,
        "float": float,
        "complex": complex,
        "cell": types.CellType,
        "func": types.FunctionType,
        "method": types.MethodType,
        "module": types.ModuleType,
        "slice": slice,
        "range": range,
        "property": property,
        "bytearray": bytearray,
        "deque": collections.deque,
        "odict": collections.OrderedDict,
        "partial": functools.partial,
        "defaultdict": collections.defaultdict,
        "mappingproxy": types.MappingProxyType,
        "tb": types.TracebackType,
        "exc": BaseException,
        "oserror": OSError,
        "stopiteration": StopIteration,
        "weakref": weakref.ref,
        "array": array.array,
        "object": object,
        "heaptype": type,
        "classmethod": classmethod,
        "staticmethod": staticmethod,
        "rlock": threading.RLock,
        "namespace": types.SimpleNamespace,
        "memberdescr": types.MemberDescriptorType,
        "future": asyncio.Future,
        "task": asyncio.Task,
        "unicode": str,
    }
    for prefix, t in shapes.items():
        if isinstance(t, type):
            sizes[prefix + ".__size"] = t.__basicsize__
    for t in SOME_TYPES:  # last: using a type's attributes sets bits in them
        fact(t, "type.tp_flags", t.__flags__)
    sys.stdout.write(json.dumps({"facts": facts, "sizes": sizes, "version": list(sys.version_info[:3])}) + "\n")
    sys.stdout.flush()
    time.sleep(3600)


outer()
