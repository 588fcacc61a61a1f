"""Whether a value may be a user's prompt or tokens, judged by the value itself and by its name; and whether it is a secret.

In a process of an engine four kinds of values are counted instead of shown, unless content is asked for:

- values under a name that engines give to content (their specs' `sensitive`);
- text and integers under a name that says nothing (`x`, `data`, `line`);
- keys and passwords, recognised by their names (`authkey`, `HF_TOKEN`) or their type;
- any text, wherever it lies, that does not look like a word of the program: an identifier, a number, a path, an address, a
  digest.

Text under a name that only programs give (`__doc__`, `_fmt`) is always shown.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Iterator

from .. import log
from ..access.secrets import is_secret_name, secret_parts
from ..errors import GdbextError
from .adapters import Adapter
from .objects import Object
from .types import BYTES, DICT, LIST, STR, TUPLE

_ID = re.compile(r"(^|_)(id|ids|rid|rids|uuid)$")
MAX_DEPTH = 4  # of containers in each other
MAX_HASHES = 1 << 16  # of one dict or set
MAX_LOOKED_AT = 16  # items of a container that are looked at
MAX_WORD = 128  # characters of the longest word of a program: a path, an address of a socket, several ids
# ASCII on purpose: a prompt in Chinese has no spaces.
_WORD = re.compile(r"[A-Za-z0-9_.:/@+=,~#%&*|^$<>()\[\]-]*")
_DIGESTS = frozenset((16, 20, 28, 32, 36, 48, 64))  # bytes of a hash, with or without the number of a KV group
_SAYS_NOTHING = frozenset(
    "answer arg argument arr array buf buffer char chat chunk cur current data dialog doc document elem element first found "
    "history hit ids inp input it item kwarg last left line list lst match message msg new obj object old out output pair param "
    "part piece prev previous query question raw rep reply req request res resp response rest result ret right sentence seq "
    "sequence str string temp tmp tok token tup tuple turn txt val value word".split()
)
_NAME = re.compile(
    r"[^ ]*( \([^ ]*\))?"
    r"|(?i:(\w+ )?(worker|asyncio|event|main|io|pool|loop|thread|background|monitor)( (thread|loop|pool|worker))+)"
)
_SECRET_TYPE = "AuthenticationString"  # multiprocessing's
_VIEWS = frozenset(f"{of}_{what}" for of in ("dict", "odict") for what in ("keys", "values", "items"))
# Documentation, names of code, formats of logs, names of devices: with spaces, and yet no prompts.
PROGRAM_TEXT = frozenset(
    "__doc__ __name__ __qualname__ __module__ __file__ __version__ _fmt fmt _datefmt datefmt log_format _description usage "
    "device_name gpu_name cpu_name thread_name _thread_name_prefix thread_name_prefix".split()
)


def says_nothing(name: str | None) -> bool:
    """Whether a name leaves its value's meaning open."""
    if not name:
        return False
    bare = name.strip("_").lower().rstrip("0123456789")  # x1, vals
    return len(bare) <= 1 or bare in _SAYS_NOTHING or bare.endswith("s") and bare[:-1] in _SAYS_NOTHING


def is_secret(name: str | None, value: Any) -> bool:
    """Whether text, bytes or a container of such is a secret: by its type, or by the name that it stands under."""
    if isinstance(value, Object) and value.type.flags & BYTES and value.type.is_heap:
        if any(base.name == _SECRET_TYPE for base in value.type.bases()):
            return True
    return is_secret_name(name) and not is_number(value) and is_content(value) and bool(content_length(value))


def is_word(text: str) -> bool:
    """Whether text looks like a word of a program and holds no secret. False for text that a person may have written."""
    return len(text) <= MAX_WORD and bool(_WORD.fullmatch(text)) and not secret_parts(text)


def is_program_name(text: str) -> bool:
    """Whether the name of a thread or task comes from a program, not from a person. Such a name is a word, with more in brackets,
    or a few words that libraries use."""
    return bool(_NAME.fullmatch(text)) and all(map(is_word, text.split(" ")))


def are_words(data: bytes) -> bool:
    """As `is_word`, for bytes; a digest is no text either."""
    try:
        return is_word(data.decode("ascii"))
    except UnicodeDecodeError:
        return len(data) in _DIGESTS and not _is_utf8(data)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_text(value: Any) -> bool:
    """Whether a value is a str."""
    return isinstance(value, str) or isinstance(value, Object) and bool(value.type.flags & STR)


def is_number(value: Any) -> bool:
    """Whether a value is an int or a float, and no bool."""
    if isinstance(value, Object):
        return value.isa("int", "float") and not value.isa("bool")
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_content(value: Any, depth: int = 4) -> bool:
    """Whether a value can be prompts or tokens: text or numbers; a list, tuple, set, deque, array or integer tensor of such; or a
    dict from numbers to numbers."""
    if not isinstance(value, Object):
        if isinstance(value, (list, tuple, set, frozenset)):
            return bool(depth) and any(is_content(v, depth - 1) for v in list(value)[:MAX_LOOKED_AT])
        return isinstance(value, (str, bytes, int, float, complex, range, slice)) or (
            isinstance(value, Adapter) and value.has_integers()
        )
    try:
        if value.type.flags & (STR | BYTES) or value.isa("bytearray", "array.array", "int", "float"):
            return True
        inner = _wrapped(value)
        if inner is not None and depth:
            return is_content(inner, depth)
        shown = parts(value)
        if shown is not None:
            return bool(depth) and any(is_content(one, depth - 1) for one in shown)
        if value.type.flags & (LIST | TUPLE) and depth:
            return any(is_content(value.item(i), depth - 1) for i in range(min(value.len(), MAX_LOOKED_AT)))
        if value.isa("set", "frozenset", "collections.deque") and depth:
            return any(is_content(v, depth - 1) for v in value.elements(MAX_LOOKED_AT))
        if value.type.flags & DICT:
            pairs = value.items(MAX_LOOKED_AT)
            return bool(pairs) and all(is_number(one) for pair in pairs for one in pair)
        return value.isa("numpy.ndarray")
    except GdbextError as e:
        log.passed_over(e)
    return False


def parts(value: Object) -> list[Any] | None:
    """The parts of others that the repr of an object shows, although it is no container; at most `MAX_LOOKED_AT`. None for any
    other type.

    Such are: the members of a dict's view, the bounds of a slice or a range, the numbers of a complex one, the text of a match,
    the element of an itertools.repeat.
    """
    kind, rt = value.type.builtin_name, value.rt
    if kind in _VIEWS:
        which = (0,) if kind.endswith("keys") else (1,) if kind.endswith("values") else (0, 1)
        return [rt.object(pair[i]) for pair in _viewed(value).ordered_entries(MAX_LOOKED_AT) for i in which]
    if kind == "slice":
        bounds = [rt.object(rt.target.u64(value.address + rt.layout[f"slice.{key}"])) for key in ("start", "stop", "step")]
        return [bound for bound in bounds if not bound.is_none()]
    if kind == "range":
        bounds = value.range()
        return [bounds.start, bounds.stop]
    if kind == "complex":
        number = value.complex()
        return [number.real, number.imag]
    if kind == "re.Match":
        return [value.attr("string")]
    if kind == "itertools.repeat":
        return [_viewed(value)]
    return None


def _viewed(value: Object) -> Object:
    """The object to which the word behind an object's head points: the dict of a view, the element of a repeat."""
    return value.rt.object(value.rt.target.u64(value.address + value.rt.layout["object.__size"]))


def _wrapped(value: Object) -> Object | None:
    """The container inside a wrapper: vLLM's ConstantList, collections' UserList, UserString and UserDict."""
    if not value.type.is_heap:
        return None
    user = any(base.module == "collections" and base.name.startswith("User") for base in value.type.bases())
    inner = dict(value.instance_entries()).get("data" if user else "_x")
    return value.rt.object(inner) if inner else None


def _note(value: Any) -> None:
    """Tells the log of a copy that keeps no content where the characters, or the numbers that were looked at, of a value are."""
    read = value.rt.target.read_log if isinstance(value, Object) else None
    if read is None or read.content is None:
        return
    marks, read.marks = read.marks, None  # what is read here is not for an answer
    try:
        read.content.update(_places(value, MAX_DEPTH))
    except GdbextError as e:
        log.passed_over(e)
    finally:
        read.marks = marks


def _places(value: Any, depth: int, is_id: bool = False) -> Iterator[tuple[int, int, int]]:
    """(address, bytes, bytes of a character, 0 for a number) of the parts of content. `is_id`: one word may be a request's id, a
    key of a table or under such a name, which is shown elsewhere."""
    if not depth or not isinstance(value, Object):
        return
    kind = value.type.flags
    if kind & (STR | BYTES):
        if not is_id or not (is_word(value.string(MAX_WORD + 1)) if kind & STR else are_words(value.raw_bytes(MAX_WORD))):
            at, count, unit = value.characters()
            yield at, count * unit, unit
        return
    if value.isa("int") and not value.isa("bool"):
        if not -5 <= int(value.integer()) <= 256:  # those are shared by all
            yield value.address + _first_digit(value.rt.layout), 4, 0
        return
    inner: Iterable[Any] = ()
    if kind & DICT or value.isa("set", "frozenset"):
        yield from _hashes(value)
        inner = () if kind & DICT else value.elements()
        for key, one in value.items() if kind & DICT else ():
            name = key.string(MAX_WORD) if isinstance(key, Object) and key.type.flags & STR else ""
            yield from _places(key, depth - 1, True)
            yield from _places(one, depth - 1, _ID.search(name) is not None)
    elif value.type.builtin_name in _VIEWS:
        inner = [_viewed(value)]
    else:
        wrapped = _wrapped(value)
        inner = [wrapped] if wrapped is not None else parts(value) or value.elements(MAX_LOOKED_AT)
    for one in inner:
        yield from _places(one, depth - 1)


def _hashes(value: Object) -> Iterator[tuple[int, int, int]]:
    """The places of the hashes in a dict or a set: of a number it is the number."""
    layout, target = value.rt.layout, value.rt.target
    if value.type.flags & DICT:
        at, count, step, _ = value.rt.dialect.dict_keys(value.rt, target.u64(value.address + layout["dict.ma_keys"]))
        step = step if step == 24 else 0  # others have none
    else:
        at, count, step = (
            target.u64(value.address + layout["set.table"]) + 8,
            target.u64(value.address + layout["set.mask"]) + 1,
            16,
        )
    for i in range(min(count, MAX_HASHES)) if step else ():
        yield at + i * step, 8, 0


def _first_digit(layout: Any) -> int:
    return int(layout["long.long_value.ob_digit" if "long.long_value.ob_digit" in layout else "long.ob_digit"])


def counted(value: Any) -> str:
    """The text that replaces private content: how much there is."""
    _note(value)
    if is_number(value):
        return "<a number, private: -show-content shows it>"
    return f"<{content_length(value)} {'characters' if is_text(value) else 'items'}, private: -show-content shows them>"


def content_length(value: Any) -> int:
    """How many characters or items a str, bytes, container or array holds; 0 for anything else."""
    if isinstance(value, Adapter):  # a view that the expression itself makes, of a tensor
        try:
            return int(value.length())
        except TypeError:
            return 1
    if not isinstance(value, Object):
        if isinstance(value, (complex, slice)):
            return 1
        return len(value) if isinstance(value, (str, bytes, list, tuple, dict, set, frozenset, range)) else 0
    try:
        adapter = value.adapter
        known = adapter.length() if adapter is not None else NotImplemented
        if known is not NotImplemented:
            return int(known)
        shown = parts(value)
        if shown is not None:
            return int(_viewed(value).len()) if value.type.builtin_name in _VIEWS else len(shown)
        if value.type.is_heap and not value.type.flags & (LIST | TUPLE | DICT | STR | BYTES) and not value.isa("array.array"):
            inner = _wrapped(value)
            return content_length(inner) if inner is not None else 0
        return value.len()
    except GdbextError as e:
        log.passed_over(e)
        return 0
