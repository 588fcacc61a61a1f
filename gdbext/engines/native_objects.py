"""Shared by the readers of C++ engines. The caller gives the view of an object (`field`, `items`, `integer`): debug information
in gdb."""

from __future__ import annotations

import re
from typing import Any, Collection, Iterable

from .. import log
from ..errors import NotFoundError

READING = re.compile(
    "(get|is|has|num|total|available|config|debug|print|verify)|.*(num|nums|size|count)$", re.IGNORECASE
)  # methods of these names change nothing


def first(obj: Any, paths: Iterable[str]) -> Any:
    """The first of the members that exists and is not null; else None."""
    for path in paths:
        try:
            found = obj.field(path) if path else obj.object()
        except NotFoundError as e:
            log.passed_over(e)
            continue
        if found is not None:
            return found
    return None


def middle_of(inner: Iterable[tuple[str, str]], updating: Collection[str]) -> str:
    """'' or the innermost of `[(class, method)]` that changes the cache: a stop there is in the middle of an update."""
    return next((f"{owner}::{method}" for owner, method in inner if owner in updating and not READING.match(method)), "")
