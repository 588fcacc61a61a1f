"""Names of Rust's compiler for people: version 0 (`_RNvCs1234_7mycrate3foo`, RFC 2603) and the older one, C++'s with escapes.

A name may refer back to its parts again and again: what it expands to is bounded, by pieces, depth and bytes."""

from __future__ import annotations

import re
from typing import Callable

MAX_TEXT, MAX_STEPS, MAX_DEPTH = 1 << 16, 1 << 13, 150
BASIC = dict(
    zip(
        "bceuaslxnihtmyojfdzpv",
        "bool char str () i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize f32 f64 ! _ ...".split(),
    )
)
SPECIAL = {"C": "closure", "S": "shim"}  # namespaces whose names are the compiler's
_OLD = re.compile(r"^_ZN.*17h[0-9a-f]{16}E")
_ESCAPES = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}


class NotRustError(Exception):
    """What is no name of Rust's, or one that is too large."""


def demangle(name: str) -> str:
    """The text of a name of version 0; another, and one that is too large, as it is."""
    try:
        return _Name(name).text()
    except (NotRustError, ValueError, RecursionError):  # of Python's: the callers' depth counts too
        return name


def is_old(name: str) -> bool:
    """Whether a C++ name is one that Rust's older mangling made: it ends in a hash."""
    return bool(_OLD.match(name))


def without_escapes(text: str) -> str:
    """What C++'s demangler makes of an older name, as Rust has it: without the hash, `$LT$` as `<`, `..` as `::`."""
    text = re.sub(r"::h[0-9a-f]{16}(?=$|\.| )", "", text)
    parts = re.sub(r"(^|::)_\$", r"\1$", text)
    parts = re.sub(r"\$u([0-9a-f]{1,6})\$", lambda m: chr(int(m[1], 16)) if int(m[1], 16) < 0x110000 else m[0], parts)
    parts = re.sub(r"\$([A-Z]{1,2})\$", lambda m: _ESCAPES.get(m[1], m[0]), parts)
    return parts.replace("..", "::")


def short(text: str, limit: int) -> str:
    """`<T as Trait>::f`, in which types and traits have no modules and, where that is still long, no arguments."""
    text = re.sub(r"(?<![\w:>])(?:[\w{}#]+::)+(?=[\w{])(?=[^<>]*[<>])", "", text)
    while len(text) > limit:
        folded = re.sub(r"(?<=[\w:])<(?!…>)[^<>]*(?:<…>[^<>]*)*>", "<…>", text)
        if folded == text:
            break
        text = folded
    return text if len(text) <= limit else text[: limit - 1] + "…"


class _Name:
    def __init__(self, name: str) -> None:
        if not name.startswith("_R") or not name.isascii():
            raise NotRustError
        found = re.match(r"_R(\d*)([A-Za-z0-9_]*)(.*)$", name, re.S)
        assert found is not None
        if found[1]:  # a version that is not known
            raise NotRustError
        self.code, self.rest, self.at = found[2], found[3], 0
        self.out: list[str] = []
        self.size = self.steps = self.depth = self.bound = 0
        self.silent = False

    def text(self) -> str:
        self.path(True)
        if self.at < len(self.code):  # the crate that made this instance
            self.quietly(lambda: self.path(False))
        if self.at != len(self.code):
            raise NotRustError
        return "".join(self.out) + ("" if self.rest.startswith(".llvm.") else self.rest)

    # what is written and read

    def say(self, text: str) -> None:
        if not self.silent:
            self.size += len(text)
            if self.size > MAX_TEXT:
                raise NotRustError
            self.out.append(text)

    def quietly(self, read: Callable[[], None]) -> None:
        before, self.silent = self.silent, True
        read()
        self.silent = before

    def deeper(self, read: Callable[[], None]) -> None:
        self.steps += 1
        self.depth += 1
        if self.depth > MAX_DEPTH or self.steps > MAX_STEPS:
            raise NotRustError
        read()
        self.depth -= 1

    def next(self) -> str:
        if self.at >= len(self.code):
            raise NotRustError
        self.at += 1
        return self.code[self.at - 1]

    def eat(self, c: str) -> bool:
        found = self.code.startswith(c, self.at)
        self.at += found
        return found

    def digits(self, pattern: str) -> str:
        found = re.compile(pattern).match(self.code, self.at)
        if found is None:
            raise NotRustError
        self.at = found.end()
        return found[1]

    def number(self) -> int:
        """In base 62: `_` is 0, `0_` is 1."""
        text, value = self.digits(r"([0-9a-zA-Z]{0,12})_"), 0
        for c in text:
            value = value * 62 + (int(c, 36) if not c.isupper() else ord(c) - ord("A") + 36)
        return value + 1 if text else 0

    def optional(self, tag: str) -> int:
        return self.number() + 1 if self.eat(tag) else 0

    def back(self, read: Callable[[], None]) -> None:
        """What stands earlier in the name."""
        start = self.at - 1
        to = self.number()
        if to >= start:
            raise NotRustError
        if not self.silent:
            here, self.at = self.at, to
            self.deeper(read)
            self.at = here

    def many(self, read: Callable[[], None], between: str = ", ") -> int:
        """Until `E`; -> how many."""
        count = 0
        while not self.eat("E"):
            if count:
                self.say(between)
            self.deeper(read)
            count += 1
        return count

    # the grammar

    def identifier(self) -> str:
        foreign = self.eat("u")
        size = int(self.digits(r"(0|[1-9][0-9]{0,5})"))
        self.eat("_")
        text = self.code[self.at : self.at + size]
        if len(text) != size:
            raise NotRustError
        self.at += size
        if foreign:
            plain, _, rest = text.rpartition("_")
            text = f"{plain}-{rest}".encode().decode("punycode") if plain else rest.encode().decode("punycode")
        return text

    def path(self, in_value: bool) -> None:
        self.deeper(lambda: self._path(in_value))

    def _path(self, in_value: bool) -> None:
        tag = self.next()
        if tag == "C":
            self.optional("s")
            self.say(self.identifier())
        elif tag == "N":
            space = self.next()
            self.path(in_value)
            number, name = self.optional("s"), self.identifier()
            if space.isupper():
                self.say(f"::{{{SPECIAL.get(space, space)}{':' * bool(name)}{name}#{number}}}")
            elif name:
                self.say("::" + name)
        elif tag in "MXY":
            if tag != "Y":
                self.optional("s")
                self.quietly(lambda: self.path(False))
            self.say("<")
            self.type()
            if tag != "M":
                self.say(" as ")
                self.path(False)
            self.say(">")
        elif tag == "I":
            self.path(in_value)
            self.say("::<" if in_value else "<")
            self.many(self.argument)
            self.say(">")
        elif tag == "B":
            self.back(lambda: self.path(in_value))
        else:
            raise NotRustError

    def argument(self) -> None:
        if self.eat("L"):
            self.lifetime(self.number())
        elif self.eat("K"):
            self.constant(False)
        else:
            self.type()

    def lifetime(self, number: int) -> None:
        if number > self.bound:
            raise NotRustError
        at = self.bound - number
        self.say("'_" if not number else "'" + (chr(ord("a") + at) if at < 26 else f"_{at}"))

    def binder(self, read: Callable[[], None]) -> None:
        """Lifetimes that what follows may name."""
        count = self.optional("G")
        if count > MAX_DEPTH:
            raise NotRustError
        if count:
            self.say("for<")
            for i in range(count):
                self.say(", " * bool(i))
                self.bound += 1
                self.lifetime(1)
            self.say("> ")
        read()
        self.bound -= count

    def type(self) -> None:
        self.deeper(self._type)

    def _type(self) -> None:
        tag = self.next()
        if tag in BASIC:
            self.say(BASIC[tag])
        elif tag in "RQPO":
            self.pointer(tag)
        elif tag in "AST":
            self.several(tag)
        elif tag == "F":
            self.binder(self.function)
        elif tag == "D":
            self.dynamic()
        elif tag == "W":
            self.type()
            self.say(" is ")
            self.pattern()
        elif tag == "B":
            self.back(self.type)
        else:
            self.at -= 1
            self.path(False)

    def pointer(self, tag: str) -> None:
        if tag in "RQ":
            self.say("&")
            number = self.number() if self.eat("L") else 0
            if number:
                self.lifetime(number)
                self.say(" ")
            self.say("mut " * (tag == "Q"))
        else:
            self.say("*const " if tag == "P" else "*mut ")
        self.type()

    def several(self, tag: str) -> None:
        """An array, a slice, a tuple."""
        if tag == "T":
            self.say("(")
            self.say("," * (self.many(self.type) == 1) + ")")
            return
        self.say("[")
        self.type()
        if tag == "A":
            self.say("; ")
            self.constant(True)
        self.say("]")

    def traits(self) -> None:
        self.many(self.trait, " + ")

    def dynamic(self) -> None:
        self.say("dyn ")
        self.binder(self.traits)
        if not self.eat("L"):
            raise NotRustError
        number = self.number()
        if number:
            self.say(" + ")
            self.lifetime(number)

    def function(self) -> None:
        self.say("unsafe " * self.eat("U"))
        if self.eat("K"):
            abi = "C" if self.eat("C") else self.identifier().replace("_", "-")
            self.say(f'extern "{abi}" ')
        self.say("fn(")
        self.many(self.type)
        self.say(")")
        if not self.eat("u"):
            self.say(" -> ")
            self.type()

    def trait(self) -> None:
        """A trait and what its associated types are: `Iterator<Item = u8>`."""
        opened = self.open_path()
        while self.eat("p"):
            self.say(", " if opened else "<")
            opened = True
            self.say(self.identifier() + " = ")
            self.type()
        self.say(">" * opened)

    def open_path(self) -> bool:
        """A path; -> whether its list of arguments is still open."""
        opened: list[bool] = []
        if self.eat("B"):
            self.back(lambda: opened.append(self.open_path()))
        elif self.eat("I"):
            self.path(False)
            self.say("<")
            self.many(self.argument)
            return True
        else:
            self.path(False)
        return any(opened)

    def pattern(self) -> None:
        tag = self.next()
        if tag == "R":
            self.constant(True)
            self.say("..=")
            self.constant(True)
        elif tag == "O":
            self.many(self.pattern, " | ")
        elif tag == "N":
            self.say("!null")
        else:
            raise NotRustError

    def constant(self, in_value: bool) -> None:
        self.deeper(lambda: self._constant(in_value))

    def _constant(self, in_value: bool) -> None:
        tag = self.next()
        if tag == "p":
            self.say("_")
        elif tag in "htmyojaslxnibc":
            negative = tag in "aslxni" and self.eat("n")
            value = int(self.digits(r"([0-9a-f]*)_") or "0", 16)
            if tag == "b":
                self.say("true" if value else "false")
            elif tag == "c":
                self.say(_quoted(chr(value), "'"))
            else:
                self.say("-" * negative + (str(value) if value < 1 << 64 else hex(value)))
        elif tag == "B":
            self.back(lambda: self.constant(in_value))
        elif tag == "R" and self.eat("e"):
            self.string()
        elif tag in "eRQATV":
            self.say("{" * (not in_value))
            self.compound(tag)
            self.say("}" * (not in_value))
        else:
            raise NotRustError

    def compound(self, tag: str) -> None:
        """A constant with parts."""
        if tag == "e":
            self.say("*")
            self.string()
        elif tag in "RQ":
            self.say("&" + "mut " * (tag == "Q"))
            self.constant(True)
        elif tag in "AT":
            self.say("[" if tag == "A" else "(")
            count = self.many(lambda: self.constant(True))
            self.say("]" if tag == "A" else "," * (count == 1) + ")")
        else:
            self.path(True)
            kind = self.next()
            if kind in "TS":
                self.say("(" if kind == "T" else " { ")
                self.many(self.field if kind == "S" else lambda: self.constant(True))
                self.say(")" if kind == "T" else " }")
            elif kind != "U":
                raise NotRustError

    def field(self) -> None:
        self.optional("s")
        self.say(self.identifier() + ": ")
        self.constant(True)

    def string(self) -> None:
        self.say(_quoted(bytes.fromhex(self.digits(r"((?:[0-9a-f]{2})*)_")).decode(), '"'))


def _quoted(text: str, quote: str) -> str:
    known = {"\\": "\\\\", quote: "\\" + quote, "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
    shown = (known.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in text)
    return quote + "".join(shown) + quote
