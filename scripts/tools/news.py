"""What users see of a change is a file of its own, docs/news/NAME.KIND.md (KIND: changed, added, fixed, removed): one paragraph
of at most 60 words. A release joins them.

  scripts/news                  prints them as the section "Unreleased"
  scripts/news release X.Y.Z    writes them into CHANGELOG.md as the section of X.Y.Z, of today, and removes the files;
                                gdbext.__version__ and the tag vX.Y.Z are set beside it (CONTRIBUTING.md, "A release")
"""

from __future__ import annotations

import datetime
import glob
import os
import re
import sys

from .say import Failed
from .wrap_docs import wrap

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "docs", "news")
KINDS = ("changed", "added", "removed", "fixed")
WORDS = 60


def files(folder: str = FOLDER) -> list[str]:
    return sorted(path for path in glob.glob(os.path.join(folder, "*")) if os.path.basename(path) != "README.md")


def kind_of(path: str) -> str:
    """Failed: a name that says no kind."""
    found = re.fullmatch(r"[a-z0-9-]+\.([a-z]+)\.md", os.path.basename(path))
    if not found or found[1] not in KINDS:
        raise Failed(f"{os.path.basename(path)}: a file of docs/news is called NAME.KIND.md, KIND one of {', '.join(KINDS)}")
    return found[1]


def text_of(path: str) -> str:
    """The paragraph of a file. Failed: it is none, or a long one."""
    with open(path, encoding="utf-8") as f:
        text = f.read().strip()
    if not text or "\n\n" in text or text.startswith(("#", "* ", "- ")):
        raise Failed(f"{os.path.basename(path)}: it is to be one paragraph, without a mark before it")
    if len(text.split()) > WORDS:
        raise Failed(f"{os.path.basename(path)}: {len(text.split())} words: at most {WORDS}, the pages have the rest")
    return " ".join(text.split())


def section(head: str, folder: str = FOLDER) -> str:
    """The files as a section of CHANGELOG.md, those that begin in bold first."""
    found = [(kind_of(path), text_of(path)) for path in files(folder)]
    parts = [f"## {head}\n"]
    for kind in KINDS:
        lines = sorted((text for one, text in found if one == kind), key=lambda text: not text.startswith("**"))
        if lines:
            parts.append(f"### {kind.capitalize()}\n\n" + "\n".join(f"* {line}" for line in lines) + "\n")
    return wrap("\n".join(parts))


def released(changes: str, version: str, day: str, folder: str = FOLDER) -> str:
    """The text of CHANGELOG.md with the section of a release before the others."""
    if not files(folder):
        raise Failed("docs/news has no file: nothing to release")
    if re.search(rf"^## {re.escape(version)}\b", changes, re.M):
        raise Failed(f"CHANGELOG.md has a section {version} already")
    before, mark, after = changes.partition("\n## ")
    return f"{before}\n{section(f'{version} ({day})', folder)}{mark}{after}"


def main(words: list[str]) -> int:
    if not words:
        print(section("Unreleased"), end="")
        return 0
    if len(words) != 2 or words[0] != "release" or not re.fullmatch(r"\d+\.\d+\.\d+", words[1]):
        print((__doc__ or "").strip())
        return 0 if words[0] in ("-h", "--help") else 2
    path, today = os.path.join(ROOT, "CHANGELOG.md"), datetime.date.today()
    with open(path, encoding="utf-8") as f:
        text = released(f.read(), words[1], f"{today.day} {today:%B %Y}")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    for name in files():
        os.unlink(name)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as e:
        sys.exit(f"news: {e}")
