"""Routers that are Python programs of one's own (toy proxies, examples): the engine instances that their objects name.

Looked at are the variables of the main module and of the main thread's frames, and what they refer to, the nearest first: URLs,
and pairs of a host and a port."""

from __future__ import annotations

import re
from collections import deque
from typing import Any, Iterator, Mapping

from .. import log
from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..errors import GdbextError

URL = re.compile(r"https?://(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]{1,200}):([0-9]{1,5})(?:[/?].*)?")
HERE = ("127.0.0.1", "localhost", "0.0.0.0", "[::1]", "::1", "[::]")
MAX_OBJECTS, MAX_MEMBERS, MAX_DEPTH, MAX_KNOWN = 3000, 200, 5, 64


def known_to(rt: Runtime, served: Mapping[int, str]) -> list[dict[str, Any]]:
    """`[{address, instance, where}]` of the addresses that a program's objects name. `served`: {port: the instance here that
    serves it}; `instance` is None for an address elsewhere, or one that no instance serves; `where`: the path from a variable."""
    found: dict[str, dict[str, Any]] = {}
    todo = deque((path, value, 0) for path, value in _variables(rt))
    seen: set[int] = set()
    while todo and len(seen) < MAX_OBJECTS and len(found) < MAX_KNOWN:
        path, value, depth = todo.popleft()
        try:
            if not hasattr(value, "isa") or value.address in seen:
                continue
            seen.add(value.address)
            for address in _addresses(value):
                host, _, port = address.rpartition(":")
                name = served.get(int(port)) if host in HERE else None
                found.setdefault(address, {"address": address, "instance": name, "where": path})
            if depth < MAX_DEPTH:
                todo.extend((f"{path}{step}", member, depth + 1) for step, member in _members(value))
        except (GdbextError, ValueError) as e:  # it runs on: what has changed is left out
            log.passed_over(e)
    return list(found.values())


def _variables(rt: Runtime) -> Iterator[tuple[str, Object]]:
    try:
        scope = rt.module("__main__")
        for key, value in scope.items(MAX_MEMBERS) if scope is not None else ():
            name = key.string(100) if key.isa("str") else ""
            if name and not name.startswith("__"):
                yield name, value
        for thread in rt.threads()[:1]:
            for frame in reversed(rt.frames(thread)):
                yield from ((name, value) for name, value in frame.locals() if value is not None)
    except GdbextError as e:
        log.passed_over(e)


def _addresses(value: Object) -> list[str]:
    """The addresses that an object is: a URL, or a dict or an object with a host and a port."""
    if value.isa("str"):
        url = URL.fullmatch(value.string(300))
        return [f"{url[1]}:{url[2]}"] if url and 0 < int(url[2]) < 65536 else []
    pair = dict(_members(value))
    host, port = (pair.get(f"['{name}']") or pair.get(f".{name}") for name in ("host", "port"))
    if host is None or port is None or not host.isa("str") or not port.isa("int", "str"):
        return []
    number = port.string(8) if port.isa("str") else str(port.integer(max_digits=2))
    return [f"{host.string(200)}:{number}"] if number.isdigit() and 0 < int(number) < 65536 else []


def _members(value: Object) -> Iterator[tuple[str, Object]]:
    if value.isa("dict"):
        for key, one in value.items(MAX_MEMBERS):
            yield (f"['{key.string(60)}']" if key.isa("str") else "[…]"), one
    elif value.isa("list", "tuple", "set", "collections.deque"):
        for number, one in enumerate(value.elements(MAX_MEMBERS)):
            yield f"[{number}]", one
    elif value.type.is_heap and not value.isa("type", "module"):
        for name, one in value.fields():
            if hasattr(one, "isa"):
                yield f".{name}", one
