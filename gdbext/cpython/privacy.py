"""What may be a user's prompt or tokens, told by the value itself and by how little its name says.

In a process of an engine three things are counted instead of shown, unless somebody asks for content: what stands under a name
that engines give to content (their specs' `sensitive`); text and integers under a name that says nothing (`x`, `data`, `line`);
and any text, wherever it lies, that does not look like a word of the program: an identifier, a number, a path, an address, a
digest. Text under a name that only programs give (`__doc__`, `_fmt`) is shown, whatever it looks like.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import GdbextError
from .objects import Object
from .types import BYTES, DICT, LIST, STR, TUPLE

MAX_LOOKED_AT = 16  # items of a container that tell what it holds
MAX_WORD = 128  # characters of the longest word of a program: a path, an address of a socket, several ids
# ASCII on purpose: a prompt in Chinese has no spaces.
_WORD = re.compile(r"[A-Za-z0-9_.:/@+=,~#%&*|^$<>()\[\]-]*")
_DIGESTS = frozenset((16, 20, 28, 32, 36, 48, 64))  # bytes of a hash, with or without the number of a KV group
_SAYS_NOTHING = frozenset(
    "_ a1 a2 answer arg args argument buf buffer chat chunk chunks cur current data dialog doc docs document documents "
    "element elements first history ids inp input inputs item items kwargs last left line lines message msg new obj object "
    "old out output outputs param params part parts prev previous query question raw rep reply req request res resp "
    "response rest result results ret right s1 s2 sentence seq seqs sequence sequences string strings temp tmp token tokens "
    "turn turns val value values word words".split()
)
# Documentation, names of code, formats of logs, names of devices: with spaces, and yet nobody's prompt.
PROGRAM_TEXT = frozenset(
    "__doc__ __name__ __qualname__ __module__ __file__ __version__ _fmt fmt _datefmt datefmt log_format _description usage "
    "device_name gpu_name cpu_name thread_name _thread_name_prefix thread_name_prefix".split()
)


def says_nothing(name: str | None) -> bool:
    """Whether a name leaves open what stands under it."""
    return bool(name) and (len(name or "") == 1 or (name or "").strip("_").lower() in _SAYS_NOTHING)


def is_word(text: str) -> bool:
    """Whether text looks like a word of a program, not like something that a person wrote."""
    return len(text) <= MAX_WORD and bool(_WORD.fullmatch(text))


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


def is_content(value: Any, depth: int = 2) -> bool:
    """Whether a value is text or numbers, or a list, tuple, set or deque of such: what prompts and tokens are made of."""
    if not isinstance(value, Object):
        if isinstance(value, (list, tuple, set, frozenset)):
            return bool(depth) and any(is_content(v, depth - 1) for v in list(value)[:MAX_LOOKED_AT])
        return isinstance(value, (str, bytes, int, float))
    try:
        if value.type.flags & (STR | BYTES) or value.isa("bytearray", "array.array", "int", "float"):
            return True
        inner = _wrapped(value)
        if inner is not None and depth:
            return is_content(inner, depth)
        if value.type.flags & (LIST | TUPLE) and depth:
            return any(is_content(value.item(i), depth - 1) for i in range(min(value.len(), MAX_LOOKED_AT)))
        if value.isa("set", "frozenset", "collections.deque") and depth:
            return any(is_content(v, depth - 1) for v in value.elements(MAX_LOOKED_AT))
    except GdbextError:
        pass
    return False


def _wrapped(value: Object) -> Object | None:
    """The container that a wrapper is around: vLLM's ConstantList, collections' UserList, UserString and UserDict."""
    if not value.type.is_heap:
        return None
    user = any(base.module == "collections" and base.name.startswith("User") for base in value.type.bases())
    inner = dict(value.instance_entries()).get("data" if user else "_x")
    return value.rt.object(inner) if inner else None


def counted(value: Any) -> str:
    """What is shown of private content: how much there is."""
    if is_number(value):
        return "<a number, private: -show-content shows it>"
    return f"<{content_length(value)} {'characters' if is_text(value) else 'items'}, private: -show-content shows them>"


def content_length(value: Any) -> int:
    """How many characters or items a str, bytes, container or array holds; 0 for anything else."""
    if not isinstance(value, Object):
        return len(value) if isinstance(value, (str, bytes, list, tuple, dict)) else 0
    try:
        adapter = value.adapter
        known = adapter.length() if adapter is not None else NotImplemented
        if known is not NotImplemented:
            return int(known)
        if value.type.is_heap and not value.type.flags & (LIST | TUPLE | DICT | STR) and not value.isa("array.array"):
            inner = _wrapped(value)
            return content_length(inner) if inner is not None else 0
        return value.len()
    except GdbextError:
        return 0
