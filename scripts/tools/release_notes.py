"""Prints the notes of a release: its section of CHANGELOG.md. Refuses a tag that is not the pack's version or has no notes, and
while a change's file is left in docs/news.

scripts/release-notes vX.Y.Z"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

from . import news
from .say import Failed

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def notes(changes: str, tag: str, version: str, left: Sequence[str] = ()) -> str:
    """The section of `tag` in the text `changes`; `version`: what the pack says of itself; `left`: files in docs/news."""
    if tag != f"v{version}":
        raise Failed(f"the tag is {tag}, gdbext.__version__ is {version}: they must agree")
    found = re.search(rf"^## {re.escape(version)}(.*)\n((?:(?!## ).*\n?)*)", changes, re.M)
    if not found:
        raise Failed(f"CHANGELOG.md has no section {version}")
    if "not released" in found[1]:
        raise Failed(f"CHANGELOG.md still says that {version} is not released: put the date there")
    if "* " not in found[2]:
        raise Failed(f"the section {version} of CHANGELOG.md is empty")
    if left:
        raise Failed(f"{left[0]} is in no release: scripts/news release {version}")
    return found[2].strip() + "\n"


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0] in ("-h", "--help"):
        print((__doc__ or "").strip())
        return 0 if words else 2
    with open(os.path.join(ROOT, "CHANGELOG.md"), encoding="utf-8") as f:
        changes = f.read()
    with open(os.path.join(ROOT, "gdbext", "__init__.py"), encoding="utf-8") as f:
        version = re.search(r'__version__ = "(.+?)"', f.read())
    print(notes(changes, words[0], version[1] if version else "unknown", news.files()), end="")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as e:
        sys.exit(f"release-notes: {e}")
