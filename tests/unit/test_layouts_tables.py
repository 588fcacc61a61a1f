"""The tables of gdbext/layouts/cpython: complete, free of nonsense, and holding whatever the readers ask for."""

import ast
import glob
import importlib.util
import json
import os
import re
import struct

import pytest
from tools import prepare_tests

from gdbext.access.fake import FakeTarget
from gdbext.cpython import layout
from gdbext.cpython.dialects import NEWEST, OLDEST

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLES = sorted(glob.glob(os.path.join(ROOT, "gdbext", "layouts", "cpython", "*.json")))
NAMES = [os.path.basename(p)[:-5] for p in TABLES]
MINORS = [f"3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
CURE = "make the tables: scripts/get-pythons --debug MINOR, scripts/make-cpython-layouts"

EVERYWHERE = """
    runtime.interpreters.head runtime.interpreters.main interp.next interp.id interp.sysdict interp.builtins
    interp.gc.collecting tstate.prev tstate.next tstate.interp tstate.thread_id tstate.exc_info object.ob_type
    varobj.ob_size type.tp_name type.tp_basicsize type.tp_itemsize type.tp_flags type.tp_base type.tp_mro type.tp_dict
    type.tp_dictoffset heaptype.ht_name heaptype.ht_qualname heaptype.ht_cached_keys code.co_filename code.co_name
    code.co_firstlineno code.co_flags code.co_argcount func.func_code func.func_qualname method.im_func method.im_self
    cell.ob_ref list.ob_item tuple.ob_item dict.ma_keys dict.ma_values dict.ma_used dictkeys.dk_nentries dkentry.me_key
    dkentry.me_value set.table set.mask set.used setentry.key deque.leftblock deque.leftindex deque.rightblock
    deque.rightindex dequeblock.data dequeblock.rightlink float.ob_fval complex.cval.real bytes.ob_sval
    bytearray.ob_start ascii.length ascii.state exc.args exc.traceback exc.context exc.cause tb.tb_next tb.tb_frame
    tb.tb_lasti property.prop_get memberdescr.d_member memberdef.offset memberdef.type module.md_dict weakref.wr_object
    gen.gi_name range.start slice.start mappingproxy.mapping partial.fn array.ob_item task.task_coro
    task.task_fut_waiter future.fut_state gc.head._gc_next excstack.exc_value
""".split()
BY_RELEASE = {  # what a release has, first to last; '': it is still there
    "tstate.frame": ("3.9", "3.10"),
    "tstate.cframe": ("3.10", "3.12"),
    "tstate.current_frame": ("3.13", ""),
    "iframe.previous": ("3.11", ""),
    "iframe.prev_instr": ("3.11", "3.12"),
    "iframe.instr_ptr": ("3.13", ""),
    "iframe.is_entry": ("3.11", "3.11"),
    "iframe.owner": ("3.11", ""),
    "iframe.f_executable": ("3.13", ""),
    "code.co_lnotab": ("3.9", "3.9"),
    "code.co_linetable": ("3.10", ""),
    "code.co_localsplusnames": ("3.11", ""),
    "code.co_varnames": ("3.9", "3.10"),
    "long.ob_digit": ("3.9", "3.11"),
    "long.long_value.lv_tag": ("3.12", ""),
    "dictkeys.dk_size": ("3.9", "3.10"),
    "dictkeys.dk_log2_size": ("3.11", ""),
    "dictvalues.values": ("3.11", ""),
    "runtime.gilstate.tstate_current": ("3.9", "3.11"),
    "interp.ceval.gil": ("3.12", ""),
    "interp.modules": ("3.9", "3.11"),
    "interp.imports.modules": ("3.12", ""),
    "tstate.native_thread_id": ("3.11", ""),
    "iframe.stackpointer": ("3.14", ""),
}


def refuse_twins(pairs):
    keys = [k for k, _ in pairs]
    assert len(keys) == len(set(keys)), sorted(k for k in set(keys) if keys.count(k) > 1)
    return dict(pairs)


def load(path):
    with open(path) as f:
        return json.load(f, object_pairs_hook=refuse_twins)


@pytest.fixture(scope="module", params=TABLES, ids=NAMES)
def table(request):
    return load(request.param)


def minor(table):
    return "{}.{}".format(*table["version"])


def test_a_table_for_every_minor_and_every_free_threaded_build():
    free_threaded = {f"{name}t" for name in MINORS[MINORS.index("3.13") :]}
    assert set(NAMES) == set(MINORS) | free_threaded, CURE
    opcodes = load(os.path.join(ROOT, "gdbext", "layouts", "opcodes.json"))
    assert set(opcodes) - {"generated_by"} == set(MINORS), "scripts/make-cpython-opcodes adds a minor"


def test_whatever_names_the_newest_minor_names_this_one():
    """A minor that is added is added to each of these places."""
    newest = f"{NEWEST[0]}.{NEWEST[1]}"
    docs = [
        os.path.join(ROOT, "README.md"),
        *glob.glob(os.path.join(ROOT, "docs", "*.md")),
        os.path.join(ROOT, "docs", "gdbext.1"),
    ]
    docs = [
        path for path in docs if os.path.basename(path) not in ("measurements.md", "sources.md")
    ]  # what was measured, and read
    ranges = [(path, found) for path in docs for found in re.findall(r"\b3\.[89]\s+to\s+(3\.\d+)", read(path))]
    named = {f"{os.path.relpath(path, ROOT)}: 3.9 to {last}" for path, last in ranges if last != newest}
    named |= {f"{place} ends with {last}" for place, last in places().items() if last != newest}
    assert not named and len(ranges) > 15, f"the newest is {newest} (NEWEST in gdbext/cpython/dialects.py)"


def places():
    """{place: the newest minor that it names}"""
    get = re.search(r"minors=\$\{minors:-([ 0-9.]+)\}", read(os.path.join(ROOT, "scripts", "get-pythons")))
    classified = re.findall(r":: (3\.\d+)\"", read(os.path.join(ROOT, "pyproject.toml")))
    prepared = prepare_tests.MINORS[-1]
    return {
        "scripts/get-pythons: minors": get.group(1).split()[-1],
        "pyproject.toml: classifiers": classified[-1],
        "scripts/tools/prepare_tests.py: MINORS": f"{prepared[0]}.{prepared[1]}",
    }


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def test_a_table_says_what_it_is_and_where_it_comes_from(table, request):
    assert table["generated_by"] == "scripts/make-cpython-layouts"
    assert table["build"] in ("gil", "free-threaded")
    named = minor(table) + ("t" if table["build"] == "free-threaded" else "")
    assert named == request.node.callspec.params["table"].rpartition("/")[2][: -len(".json")]
    assert "headers" in table["from"] and "x86-64" in table["from"]


def test_members_lie_inside_their_structures(table):
    offsets = table["offsets"]
    assert len(offsets) > 600
    for key, value in offsets.items():
        assert isinstance(value, int) and value >= 0, key
        if key.endswith(".__size"):
            assert value > 0, key
            continue
        prefix = max((k[:-7] for k in offsets if k.endswith(".__size") and key.startswith(k[:-6])), key=len)
        assert value <= offsets[prefix + ".__size"], key  # equal: an array at the end that holds nothing yet
    for key, (at, bit, width) in table["bits"].items():
        assert 0 <= bit < 32 and 0 < width and bit + width <= 32, key
        assert at < offsets[key.partition(".")[0] + ".__size"], key


def test_members_of_objects_follow_the_object_header(table):
    offsets = table["offsets"]
    header = offsets["object.__size"]
    assert header == (32 if table["build"] == "free-threaded" else 16)
    for prefix in "list tuple dict set float code func cell method module deque partial property task exc tb".split():
        members = [v for k, v in offsets.items() if k.startswith(prefix + ".") and k != prefix + ".__size"]
        assert members and min(members) >= header, prefix


def test_a_table_has_what_its_release_has(table):
    offsets, here = table["offsets"], MINORS.index(minor(table))
    assert [k for k in EVERYWHERE if k not in offsets] == []
    wrong = [
        f"{key} is {'there' if key in offsets else 'not there'}"
        for key, (first, last) in BY_RELEASE.items()
        if (key in offsets) != (MINORS.index(first) <= here <= MINORS.index(last or MINORS[-1]))
    ]
    assert not wrong, f"{minor(table)}: {wrong}: set the first or last minor of each in BY_RELEASE ('': it is still there)"


def test_text_bits_are_there(table):
    assert {"ascii.state.kind", "ascii.state.compact", "ascii.state.ascii"} <= set(table["bits"])


def test_debug_offsets_are_named_from_313_on(table):
    if MINORS.index(minor(table)) < MINORS.index("3.13"):
        assert "debug_offsets" not in table
        return
    order, names = table["debug_offsets"], table["debug_names"]
    assert order["cookie"] == 0 and order["version"] == 8 and order["free_threaded"] == 16
    assert len(set(order.values())) == len(order)
    assert all(v % 8 == 0 for v in order.values())
    assert set(names) <= set(order) and set(names.values()) <= set(table["offsets"])
    # What has no counterpart with us is known by name: a new field must be looked at.
    unnamed = {k for k in order if k not in names and "." in k}
    assert {k for k in unnamed if not k.startswith("debugger_support.")} <= {
        "interpreter_state.gil_runtime_state_enabled",
        "interpreter_state.code_object_generation",
        "interpreter_state.tlbc_generation",
        "interpreter_frame.tlbc_index",
        "code_object.co_tlbc",
        "unicode_object.compactunicodeobject_size",
        "gc.generation_stats_size",
    }


def test_derived_parts_of_a_free_threaded_table_are_the_gil_build_moved():
    for name in NAMES:
        if not name.endswith("t"):
            continue
        free = load(TABLES[NAMES.index(name)])
        gil = load(TABLES[NAMES.index(name[:-1])])
        assert free["derived"]
        for prefix in free["derived"]:
            moved = {k: v for k, v in free["offsets"].items() if k.startswith(prefix + ".")}
            shifts = {v - gil["offsets"][k] for k, v in moved.items()}
            assert shifts in ({16}, {0}), (name, prefix)


def keys_in(path, prefixes):
    """The string literals of a file that look like keys of the tables."""
    with open(path) as f:
        tree = ast.parse(f.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            prefix, dot, rest = node.value.partition(".")
            if dot and prefix in prefixes and rest.replace(".", "").replace("_", "").isalnum() and not is_class(prefix, rest):
                yield node.value


def is_class(module, name):
    """ "array", "array"; "weakref", "WeakKeyDictionary": a type's name, no key."""
    return importlib.util.find_spec(module) is not None and isinstance(getattr(importlib.import_module(module), name, None), type)


def test_every_key_that_the_readers_name_is_in_some_table():
    known = {}
    for path in TABLES:
        data = load(path)
        known.update(data["offsets"])
        known.update(data["bits"])
    prefixes = {k.partition(".")[0] for k in known}
    found = set()
    for path in glob.glob(os.path.join(ROOT, "gdbext", "cpython", "*.py")):
        found.update(keys_in(path, prefixes))
    assert len(found) > 60
    assert sorted(found - set(known)) == []


def test_what_the_debug_offsets_do_not_tell_moves_with_what_they_tell():
    """3.14.0 to 3.14.4: the collector's state ends before three words that the table, of a later release, has."""
    table = load(os.path.join(ROOT, "gdbext", "layouts", "cpython", "3.14.json"))
    offsets, end = table["offsets"], table["offsets"]["interp.gc"] + 240
    told = {name: offsets[own] for name, own in table["debug_names"].items()}
    assert offsets["gcstate.__size"] == 264 and offsets["interp.sysdict"] == end + 24
    moved = {name for name, at in told.items() if name.startswith("interpreter_state.") and at > end}
    assert len(moved) == 7
    told.update({name: told[name] - 24 for name in moved | {"gc.size"}})
    blob = bytearray(layout.DEBUG_COOKIE.ljust(max(table["debug_offsets"].values()) + 8, b"\0"))
    for name, at in told.items():
        struct.pack_into("<Q", blob, table["debug_offsets"][name], at)
    found = layout.from_process(FakeTarget({0x1000: bytes(blob)}), 0x1000, (3, 14), False)
    assert "gcstate.generation0" not in found and found["gcstate.dummy1"] == 224
    for key, at in offsets.items():
        if key.startswith("interp.") and key != "interp.gc.generation0":
            assert found[key] == at - 24 * (at > end), key
        elif not key.startswith(("gcstate.", "interp.")):
            assert found[key] == at, key
