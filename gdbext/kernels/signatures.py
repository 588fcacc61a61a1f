"""C++ signatures as the demangler prints them, taken apart: qualified name, template arguments, parameters and how each is
passed."""

from __future__ import annotations

import re

from ..render import names

STUB = "__device_stub_"  # nvcc's host function that launches: __device_stub_ + the kernel's mangled name


class Signature:
    """`text`: all of it; `path`: the qualified name's parts without template arguments (`["vllm",
    "paged_attention_v1_kernel"]`); `template`: the last part's template arguments, `parameters`: both as lists of texts, None
    where the name has no parameter list; `clone`: 'omp_fn.0' and the like; `stub`: the symbol is nvcc's launching stub of that
    kernel."""

    def __init__(
        self, text: str, path: list[str], template: list[str], parameters: list[str] | None, clone: str, stub: bool
    ) -> None:
        self.text, self.path, self.template, self.parameters, self.clone, self.stub = (
            text,
            path,
            template,
            parameters,
            clone,
            stub,
        )

    @property
    def name(self) -> str:
        return "::".join(self.path)

    @property
    def base(self) -> str:
        """The identifier alone: `paged_attention_v1_kernel`."""
        return self.path[-1] if self.path else ""


def parse(symbol: str) -> Signature:
    """A `Signature` of a symbol, mangled or not."""
    stub = False
    text = names.demangle(symbol)
    at = text.find(STUB)
    if at >= 0 and not text[:at].endswith("__wrapper"):
        stub = True
        inner = re.match(r"\w+", text[at + len(STUB) :])
        if inner and inner.group().startswith("_Z"):
            text = names.demangle(inner.group())
        elif inner:
            text = inner.group().lstrip("_")
    clone = ""
    found = re.search(r"((?: \[clone [^\]]*\])+)$", text)
    if found:
        clone, text = found.group(1).strip(), text[: found.start()]
    head, parameters = _split_parameters(text)
    path, template = _path(head)
    return Signature(text, path, template, parameters, clone, stub)


def split(text: str) -> list[str]:
    """A comma-separated list, brackets respected."""
    parts: list[str] = []
    open_: list[str] = []
    start = 0
    for i, c in enumerate(text):
        if _bracket(text, i, open_) is None and c == "," and not open_:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return parts + [last] if last or parts else []


def _split_parameters(text: str) -> tuple[str, list[str] | None]:
    """(all before the parameter list, [parameters] or None)"""
    text = re.sub(r"(\)) (const|&|&&|noexcept)+$", r"\1", text)
    if not text.endswith(")"):
        return text, None
    depth = 0
    for i in range(len(text) - 1, -1, -1):
        if text[i] == ")":
            depth += 1
        elif text[i] == "(":
            depth -= 1
            if depth == 0:
                if text[:i].endswith("operator"):
                    return text, None
                return text[:i], [p for p in split(text[i + 1 : -1]) if p != "void"]
    return text, None


def _bracket(text: str, i: int, open_: list[str]) -> str | None:
    """Maintains `open_`, the brackets that are open before text[i]. -> "open" or "close" where text[i] is one, None elsewhere:
    `>` in (8>0) and -> is none"""
    c = text[i]
    if c in "<([{":
        open_.append(c)
        return "open"
    if c == ">":
        if not open_ or open_[-1] != "<" or text[i - 1 : i] == "-":
            return None
        open_.pop()
        return "close"
    if c in ")]}":
        while open_ and open_[-1] == "<":
            open_.pop()  # it was a comparison
        if open_:
            open_.pop()
        return "close"
    return None


def _path(head: str) -> tuple[list[str], list[str]]:
    """The qualified name's parts and the last one's template arguments; a return type before it is dropped."""
    parts: list[str] = []
    template: list[str] = []
    open_: list[str] = []
    current, i, start = "", 0, 0
    while i < len(head):
        c = head[i]
        if head.startswith("operator", i) and not open_ and (i == 0 or not (head[i - 1].isalnum() or head[i - 1] == "_")):
            symbol = re.match(r"operator(\(\)|\[\]|[-+*/%^&|~!=<>]+| [\w:]+)?", head[i:])
            assert symbol is not None  # it begins with "operator", and the rest is optional
            current += symbol.group()
            i += symbol.end()
            continue
        inside = bool(open_)
        kind = _bracket(head, i, open_)
        if kind == "open":
            start = start if inside else i
        elif kind == "close":
            if not open_ and c == ">":
                template = split(head[start + 1 : i])
        elif not open_:
            if c == " ":
                parts, current, template = [], "", []  # the text before was the return type
            elif c == ":" and head[i : i + 2] == "::":
                parts.append(current)
                current, template = "", []
                i += 1
            else:
                current += c
        i += 1
    parts.append(current)
    return [p for p in parts if p], template


# How a parameter is passed: (size in bytes, struct format, class in C: "int", "float", "memory" or "reference").
_SCALARS = {
    "bool": (1, "?"),
    "char": (1, "b"),
    "signed char": (1, "b"),
    "unsigned char": (1, "B"),
    "short": (2, "h"),
    "unsigned short": (2, "H"),
    "int": (4, "i"),
    "unsigned int": (4, "I"),
    "long": (8, "q"),
    "unsigned long": (8, "Q"),
    "long long": (8, "q"),
    "unsigned long long": (8, "Q"),
    "float": (4, "f"),
    "double": (8, "d"),
    "int8_t": (1, "b"),
    "uint8_t": (1, "B"),
    "int32_t": (4, "i"),
    "uint32_t": (4, "I"),
    "int64_t": (8, "q"),
    "uint64_t": (8, "Q"),
}


def scalar(kind: str) -> tuple[int, str] | None:
    """(size in bytes, struct format) of a parameter's type, pointers and references included. None for a type whose size does not
    follow from its name (a struct or an enum by value)."""
    plain = re.sub(r"\b(const|volatile|__restrict__)\b", "", kind).strip()
    plain = re.sub(r"\s+", " ", plain)
    if plain.endswith(("*", "&")) or "(*)" in plain or re.search(r"\[\d*\]$", plain):
        return 8, "Q"
    return _SCALARS.get(plain)


def is_pointer(kind: str) -> bool:
    """Whether a parameter holds an address."""
    plain = re.sub(r"\b(const|volatile|__restrict__)\b", "", kind).strip()
    return plain.endswith(("*", "&")) or "(*)" in plain
