"""Builds the documentation as a site: build/site/index.html. A link that leads nowhere, and a page that no list names, fail.

  scripts/build-site             with Sphinx, MyST and Furo, the extra "docs" of pyproject.toml, in an environment of their own
  scripts/build-site -source     the pages alone, build/site-source, without any of these

docs/commands.md becomes a page for each command, whose text is what the command's own help says."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys

from .environments import environment
from .say import Failed, say

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCE, SITE = os.path.join(ROOT, "build", "site-source"), os.path.join(ROOT, "build", "site")
OF_THE_ROOT = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")  # pages of the repository's first folder that are in the site


def read(*path: str) -> str:
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


def pages_of_commands(text: str) -> tuple[str, dict[str, str]]:
    """docs/commands.md as (the page that lists them, {name: its page}); links to headings lead to the pages."""
    before, mark, each = text.partition("\n## Each command\n")
    if not mark:
        raise Failed("docs/commands.md has no heading 'Each command'")
    summaries = dict(re.findall(r"^\| \[`[^|]*`\]\(#([\w-]+)\) \| (.*?) \| ", before.replace("\\|", "\0"), re.M))
    found = {}
    for part in each.split("\n### ")[1:]:
        name, _, text = part.partition("\n")
        if name not in summaries:
            raise Failed(f"docs/commands.md lists no {name}")
        fields = f"The fields of `{name} -json`: [JSON](../json.md).\n"
        found[name] = f"# {name}\n{text.rstrip()}\n\n{fields}"
    if set(found) != set(summaries):
        raise Failed(f"docs/commands.md describes other commands than it lists: {set(found) ^ set(summaries)}")
    return re.sub(r"\]\(#([\w-]+)\)", r"](commands/\1.md)", before) + "\n", found


def moved(text: str) -> str:
    """A page's text with the links that lead elsewhere in the site: to a command's page, and from the repository's folder."""
    text = re.sub(r"\]\(commands\.md#([\w-]+)\)", r"](commands/\1.md)", text)
    return re.sub(r"\]\(docs/([\w-]+\.(?:md|svg))", r"](\1", text)


def pages() -> dict[str, str]:
    """{path in the site's source: text} of all pages."""
    found = {os.path.basename(path): read(path) for path in glob.glob(os.path.join(ROOT, "docs", "*.md"))}
    found["commands.md"], commands = pages_of_commands(found["commands.md"])
    for name in OF_THE_ROOT:
        found["reporting.md" if name == "SECURITY.md" else name] = read(name)
    found.update({f"commands/{name}.md": text for name, text in commands.items()})
    return {path: moved(text) for path, text in found.items()}


def write(folder: str = SOURCE) -> int:
    """-> how many pages it has."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(os.path.join(folder, "commands"))
    made = pages()
    for path, text in made.items():
        with open(os.path.join(folder, path), "w", encoding="utf-8") as f:
            f.write(text)
    for name in ("curves.svg", "conf.py", "schemas.json", "site.css"):
        shutil.copy(os.path.join(ROOT, "docs", name), folder)
    shutil.copytree(os.path.join(ROOT, "docs", "screens"), os.path.join(folder, "screens"))
    return len(made)


def main(words: list[str]) -> int:
    if words not in ([], ["-source"]):
        print((__doc__ or "").strip())
        return 0 if words[0] in ("-h", "--help") else 2
    count = write()
    say(f"{os.path.relpath(SOURCE, ROOT)}: {count} pages")
    if words:
        return 0
    python = environment("docs")
    done = subprocess.run([python, "-m", "sphinx", "-W", "--keep-going", "-E", "-q", "-b", "html", SOURCE, SITE], check=False)
    if done.returncode == 0:
        say(f"{os.path.relpath(SITE, ROOT)}/index.html")
    return done.returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as e:
        sys.exit(f"build-site: {e}")
