"""Forks a child of an engine's process for each name of an attribute; in it the engine's objects and classes have that attribute
under another name, as a new release might. Slots too: the class's own table of members says another name then."""

import ctypes
import gc
import json
import os
import signal
import sys
import time
import types

DESCRIBES = 5 * 8  # bytes before PyMemberDescrObject.d_member, whose first field is the name
PR_SET_PDEATHSIG = 1
keep = []


def owned(package):
    """(objects with a dict, classes) of an engine's own modules."""
    things = [o for o in gc.get_objects() if str(getattr(type(o), "__module__", "")).partition(".")[0] == package]
    classes = {c for o in things for c in type(o).__mro__ if str(c.__module__).partition(".")[0] == package}
    return [o for o in things if not isinstance(o, type) and hasattr(o, "__dict__")], sorted(classes, key=lambda c: c.__name__)


def named(package):
    """The names of all attributes of these objects."""
    objects, classes = owned(package)
    return {n for o in objects for n in vars(o)} | {n for c in classes for n in vars(c) if is_slot(c, n)}


def is_slot(kind, name):
    return isinstance(vars(kind)[name], types.MemberDescriptorType)


def rename(package, name):
    objects, classes = owned(package)
    other = f"another_{name[::-1]}"
    for one in objects:
        if name in vars(one):
            vars(one)[other] = vars(one).pop(name)
    for kind in classes:
        if name in vars(kind) and is_slot(kind, name):
            member = ctypes.c_void_p.from_address(id(vars(kind)[name]) + DESCRIBES).value
            keep.append(ctypes.create_string_buffer(other.encode()))
            ctypes.c_void_p.from_address(member).value = ctypes.addressof(keep[-1])
        if name in vars(kind) and not callable(vars(kind)[name]):  # slots, properties, and defaults of dataclasses
            setattr(kind, other, vars(kind)[name])
            delattr(kind, name)


def hold(package, scheduler, wanted):
    """Says {"pid", "names": {name: pid of its child}} of those of `wanted` that the objects have, and rests; "-" renames
    nothing. `scheduler` is a variable of a frame in each of them."""
    children, have = {}, named(package)
    for name in wanted:
        if name != "-" and name not in have:
            continue
        child = os.fork()
        if not child:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if name != "-":
                rename(package, name)
            rest(scheduler)
        children[name] = child
    time.sleep(0.2)
    print(json.dumps({"pid": os.getpid(), "names": children}), flush=True)
    rest(scheduler)


def rest(scheduler):
    while scheduler is not None:
        time.sleep(1000)
    sys.exit()
