"""The text of Python's own `repr`, from memory alone, bounded.

`Repr(limits)(obj)` -> text. `.truncated`: a bound cut something. `.opaque`: some part has a `__repr__` of Python code, which
cannot run here; such objects show as `<module.Class object at 0x…>`. An unreadable part shows as `<unreadable …>` in its place
and never spoils the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Set
from typing import Any, Callable, Iterable

from .. import log
from ..access.secrets import is_secret_name
from ..errors import FaultError, GdbextError, LayoutError, NotFoundError
from ..render.text import escape
from . import builtin_reprs, privacy, python_reprs, typing_reprs
from .adapters import DAMAGED, Adapter
from .builtin_reprs import default_repr
from .objects import Object
from .types import BYTES, DICT, EXCEPTION, LIST, LONG, STR, TUPLE, TYPE


class Limits:
    """Bounds of one repr: `items` per container, `string` characters per str, `depth` of nesting, `total` characters."""

    def __init__(self, items: int = 64, string: int = 200, depth: int = 6, total: int = 4000) -> None:
        self.items, self.string, self.depth, self.total = items, string, depth, total


_BY_NAME = {**builtin_reprs.BY_NAME, **typing_reprs.BY_NAME}
SHORT = Limits(items=12, string=80, depth=3, total=120)
NORMAL = Limits()
FULL = Limits(items=1 << 24, string=1 << 24, depth=64, total=1 << 26)
MADE = 16  # characters that a container of an expression counts for: one may hold another many times
_UNPRINTED = 10**4300  # Python itself refuses to print more digits, from 3.11 on


class Repr:
    """Shows values within `limits`. `private`: names of attributes, keys and variables whose text and containers are counted, not
    shown. With any private name, other text that a user may have written is counted too (privacy.py).

    Results: `truncated`, `opaque` (see the module's docstring), `hidden` (something private was left out), `multiline` (an array
    took several lines, as numpy writes it).
    """

    def __init__(self, limits: Limits = NORMAL, private: Set[str] = frozenset()) -> None:
        self.limits, self.private = limits, private
        self.truncated = self.opaque = self.hidden = self.multiline = False
        self._inside: list[int] = []
        self._spent = 0
        self._under = ""  # the name that the value at work stands under

    def __call__(self, value: Any) -> str:
        """The text of an `Object`, an `Adapter` or a plain Python value."""
        text = self.show(value, 0)
        if len(text) > self.limits.total:
            self.truncated = True
            text = text[: self.limits.total - 3] + "..."
        return text

    @property
    def one_line(self) -> bool:
        """Whether there is no room for several lines."""
        return self.limits.total <= SHORT.total

    def named(self, name: str | None, value: Any, depth: int = 0) -> str:
        """The text of a value under a name. Private content is counted, not shown."""
        name = (value.under if isinstance(value, Object) else "") or name
        if self.private and name in privacy.PROGRAM_TEXT - self.private and privacy.is_text(value):
            return Repr(self.limits)(value)
        if name in self.private or self.private and privacy.says_nothing(name) and privacy.is_content(value):
            if privacy.content_length(value):
                return self.count(value)
        if self.private and privacy.is_secret(name, value):
            return self.count(value)
        before, self._under = self._under, name or ""
        try:
            return self.show(value, depth) if depth else self(value)
        finally:
            self._under = before

    def _key_name(self, key: Any) -> str | None:
        """The name that a dict's key gives to its value: the key itself where it is a name, else the dict's name (`{"req-1":
        [7]}`). "_", which says nothing, where the dict's name is unknown or a user may have written the key."""
        if not self.private:
            return None
        text = None if not privacy.is_text(key) else key if isinstance(key, str) else str(key.string(64))
        if text is not None and (text.isidentifier() or text in self.private):
            return text
        return "_" if text is not None and not privacy.is_word(text) else self._under or "_"

    def under_key(self, key: Any, value: Any, depth: int) -> str:
        """The text of the value of a dict's key."""
        return self.named(self._key_name(key), value, depth)

    def entry(self, name: str, key: Any, value: Any) -> str:
        """As `under_key`, of the dict that stands under `name`."""
        self._under = name
        return self.under_key(key, value, 0)

    def count(self, value: Any) -> str:
        """The text that replaces private content."""
        self.hidden = True
        return privacy.counted(value)

    # ---- one value -----------------------------------------------------------------------------------------------
    def show(self, value: Any, depth: int) -> str:
        """The text of a value `depth` containers deep."""
        if not isinstance(value, Object):
            text = self._plain(value, depth)
            self._spent += MADE if isinstance(value, (list, tuple, set, frozenset, dict)) else len(text)
            return text
        if value.address in self._inside:
            kind = value.type.flags
            if kind & LIST or value.isa("collections.deque"):
                return "[...]"
            if kind & DICT and not value.isa("collections.OrderedDict") or value.isa("set"):
                return "{...}"
            return "(...)" if kind & TUPLE else "..."
        if self._spent > self.limits.total:
            self.truncated = True
            return "..."
        self._inside.append(value.address)
        before, self._under = self._under, value.under or self._under
        try:
            text = self._by_type(value, depth)
        except FaultError as e:
            text = f"<unreadable: {e}>"
        except (GdbextError, UnicodeDecodeError, OverflowError, MemoryError) as e:
            text = f"<invalid object at {value.address:#x}: {escape(str(e))}>"
        finally:
            self._inside.pop()
            self._under = before
        self._spent += len(text) if not text.startswith(("[", "(", "{")) else 2
        return text

    def _plain(self, value: Any, depth: int) -> str:
        """A value that an expression made here: its members may be objects of the process."""
        if isinstance(value, Adapter):
            text = value.text(self, depth)
            return f"<{type(value).__name__}>" if text is NotImplemented else str(text)
        if isinstance(value, (list, set, frozenset)) or type(value) is tuple:
            first = self._named_by(value) if isinstance(value, tuple) else None
            shown = zip((None, first) if first else itertools.repeat(None), list(value)[: self.limits.items])
            inner = self.each(len(value), shown, lambda v: self._member(v[0], v[1], depth))
            if isinstance(value, (set, frozenset)):
                braces = f"{{{inner}}}" if value else ""
                return braces if isinstance(value, set) and value else f"{type(value).__name__}({braces})"
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        if isinstance(value, dict):
            pairs = list(value.items())[: self.limits.items]

            def pair(p: tuple[Any, Any]) -> str:
                return f"{self.show(p[0], depth + 1)}: {self.named(self._key_name(p[0]), p[1], depth + 1)}"

            return "{" + self.each(len(value), pairs, pair) + "}"
        if isinstance(value, int) and abs(value) >= _UNPRINTED:
            return self.integer(value)
        if self.private and (
            isinstance(value, str) and not privacy.is_word(value) or isinstance(value, bytes) and not privacy.are_words(value)
        ):
            return self.count(value)
        return self.cut(repr(value), self.limits.string * 2)

    def _by_type(self, value: Object, depth: int) -> str:
        definer = value.type.python_definer("__repr__")
        adapter = value.adapter
        if adapter is not None and (adapter.reprs is None or definer is None or definer.full_name in adapter.reprs):
            try:
                text = adapter.text(self, depth)
                if text is not NotImplemented:
                    return str(text)
            except (LayoutError, NotFoundError, *DAMAGED) as e:
                log.passed_over(e)  # damaged, or a release that is not known here: an object like any other
        if definer is not None:
            known = python_reprs.show(self, value, definer, depth)
            if known is not None:
                return known
            self.opaque = True
            return default_repr(value)
        flags = value.type.flags
        if value.type.builtin_name == "bool":
            return str(value.boolean())
        if value.type.builtin_name == "NoneType":
            return "None"
        if flags & LONG:
            return self.integer(value.integer())
        if flags & STR:
            return self.string(value)
        if flags & BYTES or value.isa("bytearray"):
            return self.bytes(value)
        if value.isa("float"):
            return repr(value.floating())
        if flags & TUPLE:
            return self._struct_sequence(value, depth) or self._tuple(value, depth)
        if flags & LIST:
            return "[" + self.members(value, depth) + "]"
        if flags & DICT:
            return self._dict(value, depth)
        if flags & TYPE:
            return python_reprs.show_class(value)
        if flags & EXCEPTION:
            args = value.rt.object(value.rt.target.u64(value.address + value.rt.layout["exc.args"]))
            return f"{value.type.name}({self.members(args, depth, 'args')})"
        if not value.type.builtin_bases().isdisjoint(_BY_NAME):
            for name, show in _BY_NAME.items():
                if value.isa(name):
                    return show(self, value, depth)
        return default_repr(value)

    # ---- scalars -------------------------------------------------------------------------------------------------
    def integer(self, number: int) -> str:
        """An int's digits; hexadecimal ones where Python itself refuses to print so many."""
        if abs(number) >= _UNPRINTED:
            return hex(number) if self.limits is FULL else self.cut(hex(number), 80)
        return str(number)

    def cut(self, text: str, limit: int) -> str:
        """At most `limit` characters of a text, marked where it is less than whole."""
        if len(text) > limit:
            self.truncated = True
            return text[:limit] + "..."
        return text

    def string(self, value: Object) -> str:
        """The repr of a str."""
        if self.private and not privacy.is_word(value.string(privacy.MAX_WORD + 1)):
            return self.count(value)
        text = repr(value.string(self.limits.string))
        if value.len() > self.limits.string:
            self.truncated = True
            return text + "..."
        return text

    def bytes(self, value: Object) -> str:
        """The repr of bytes or a bytearray."""
        if self.private and (not privacy.are_words(value.raw_bytes(privacy.MAX_WORD + 1)) or privacy.is_secret(None, value)):
            return self.count(value)
        raw = value.raw_bytes(self.limits.string)
        text = repr(raw)
        if not value.type.flags & BYTES and not value.rt.minor.bytearray_of_bytes and text.startswith('b"'):
            text = text.replace("'", "\\'")  # a bytearray's repr escaped every ' until 3.15
        if value.len() > self.limits.string:
            self.truncated = True
            text += "..."
        return text if value.type.flags & BYTES else f"{value.type.name}({text})"

    # ---- containers ----------------------------------------------------------------------------------------------
    def each(self, count: int, members: Iterable[Any], show: Callable[[Any], str]) -> str:
        """The members' texts with commas between them. Dots follow where there are fewer than `count`, or no room is left."""
        shown: list[str] = []
        for member in members:
            if self._spent > self.limits.total:
                break
            shown.append(show(member))
            self._spent += 2
        if len(shown) < count:
            self.truncated = True
            shown.append("...")
        return ", ".join(shown)

    def record(self, name: str, pairs: list[tuple[str, Any]], depth: int) -> str:
        """`Name(field=value, …)`; a value of None: a field that is not set."""
        if depth >= self.limits.depth:
            self.truncated = True
            return f"{name}(...)"

        def field(pair: tuple[str, Any]) -> str:
            return f"{pair[0]}={'<not set>' if pair[1] is None else self.named(*pair, depth=depth + 1)}"

        return f"{name}({self.each(len(pairs), pairs, field)})"

    def members(self, value: Object, depth: int, name: str | None = None) -> str:
        """The text between the brackets of a list, tuple, set or deque. `name`: the name of each member, where members have
        one."""
        if depth >= self.limits.depth and value.len():
            self.truncated = True
            return "..."
        count = value.len()
        addresses = value.element_addresses(min(count, self.limits.items))

        def show(address: int) -> str:
            if not address:
                return "<NULL>"
            return self._member(name, value.rt.object(address), depth)

        return self.each(count, addresses, show)

    def _named_by(self, pair: Any) -> str | None:
        """The name that the first of two values gives to the second, as in an item of a dict or a header. None unless that name
        marks something private."""
        if not self.private or len(pair) != 2 or not privacy.is_text(pair[0]):
            return None
        name = self._key_name(pair[0])
        return name if name in self.private or is_secret_name(name) else None

    def _member(self, name: str | None, value: Any, depth: int) -> str:
        return self.show(value, depth + 1) if name is None else self.named(name, value, depth + 1)

    def _tuple(self, value: Object, depth: int) -> str:
        if value.len() == 2 and depth < self.limits.depth and all(value.element_addresses(2)):
            pair = value.item(0), value.item(1)
            name = self._named_by(pair)
            if name is not None:
                return f"({self.each(2, zip((None, name), pair), lambda v: self._member(v[0], v[1], depth))})"
        inner = self.members(value, depth)
        return f"({inner},)" if value.len() == 1 else f"({inner})"

    def _struct_sequence(self, value: Object, depth: int) -> str:
        """time.struct_time and the like, whose C members name the items in order; '' for any other tuple."""
        if "n_sequence_fields" not in value.type.namespace:
            return ""
        names = [n for n, _ in sorted(value.type.slots.items(), key=lambda s: s[1][0])]
        items = list(zip(names, value.element_addresses(self.limits.items)))
        inner = self.each(value.len(), items, lambda p: f"{p[0]}={self.show(value.rt.object(p[1]), depth + 1)}")
        return f"{value.type.raw_name}({inner})"

    def _dict(self, value: Object, depth: int) -> str:
        name = value.type.name
        if value.isa("collections.defaultdict"):
            factory = value.rt.target.u64(value.address + value.rt.layout["defaultdict.default_factory"])
            shown = self.show(value.rt.object(factory), depth + 1) if factory else "None"
            return f"{name}({shown}, {self._braces(value, depth)})"
        if value.isa("collections.OrderedDict"):
            return self._ordered(value, depth)
        if value.isa("frozendict"):
            return f"{name}({self._braces(value, depth)})" if value.len() else f"{name}()"
        return self._braces(value, depth)

    def pair(self, value: Object, depth: int, between: str = ": ") -> Callable[[tuple[int, int]], str]:
        """-> a function that shows (key address, value address) of a dict."""

        def show(p: tuple[int, int]) -> str:
            key, held = value.rt.object(p[0]), value.rt.object(p[1])
            return f"{self.show(key, depth + 1)}{between}{self.named(self._key_name(key), held, depth + 1)}"

        return show

    def _braces(self, value: Object, depth: int) -> str:
        count = value.len()
        if depth >= self.limits.depth and count:
            self.truncated = True
            return "{...}"
        return "{" + self.each(count, value.dict_entries(self.limits.items), self.pair(value, depth)) + "}"

    def _ordered(self, value: Object, depth: int) -> str:
        """OrderedDict: `[(k, v)]` up to 3.11, `{k: v}` later."""
        name, pairs = value.type.name, value.ordered_entries()
        if not pairs:
            return f"{name}()"
        shown = pairs[: self.limits.items]
        if value.rt.minor.dict_odicts:
            return f"{name}({{{self.each(len(pairs), shown, self.pair(value, depth))}}})"
        show = self.pair(value, depth, ", ")
        return f"{name}([{self.each(len(pairs), shown, lambda p: f'({show(p)})')}])"
