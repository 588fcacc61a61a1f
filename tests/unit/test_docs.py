"""The documents agree with the code: the generated reference is current, every command and field is described, links lead
somewhere."""

import glob
import json
import os
import re
import shlex
import subprocess
import sys

from harness.gdb_run import ROOT
from tools.build_site import pages
from tools.wrap_docs import WIDTH, too_long, wrap

from gdbext.__main__ import SETUP, _parser
from gdbext.commands import table, verbs
from gdbext.setup.outside import line_of, with_process
from gdbext.verdict.kinds import GRAVITY

PAGES = sorted(page for where in ("", "docs", "docs/news") for page in glob.glob(os.path.join(ROOT, where, "*.md")))


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


def test_the_commands_reference_is_what_the_commands_declare():
    make = [sys.executable, os.path.join(ROOT, "scripts", "make-commands-reference"), "--check"]
    assert subprocess.run(make, check=False).returncode == 0, "run scripts/make-commands-reference"


def test_every_command_and_every_recorded_field_is_in_the_json_contract():
    text, missing = read("docs", "json.md"), []
    words = set(re.findall(r"[a-z_]\w*", text))
    for name in table.names():
        if not re.search(rf"\n### (.*, )?{name}(,.*)?\n", text):
            missing.append(name)
    fields = 0
    for asked, found in json.loads(read("tests", "answers", "fields.json")).items():
        for field in found:
            if "." not in field.replace("[].", "|") and field.count("[].") <= 1:
                fields += 1
                missing += [f"{asked}: {field}" for word in re.findall(r"\w+", field) if word not in words]
    assert fields > 300 and not missing, missing


def test_no_cell_of_the_json_contract_is_a_page():
    cells = [cell for line in read("docs", "json.md").splitlines() if line.startswith("|") for cell in line.split(" | ")]
    assert len(cells) > 3000 and max(map(len, cells)) <= 200, max(cells, key=len)


def test_the_help_of_llm_hang_names_every_verdict():
    text = " ".join(table.load("llm-hang").help().split()).partition("Verdicts:")[2].partition(". ")[0]
    assert set(re.findall(r"[a-z][a-z-]+", re.sub(r"\(.*?\)", "", text))) == set(GRAVITY)


def test_the_page_of_verdicts_has_a_row_for_each():
    first = read("docs", "verdicts.md").partition("\n\nEach rule")[0]
    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", first, re.M)) == sorted(GRAVITY)


def test_lines_are_short_enough_to_be_compared():
    """A row of a table cannot be wrapped; everything else is."""
    assert len(PAGES) > 15
    wrong = []
    for page in PAGES:
        text, generated = read(page), os.path.basename(page) == "commands.md"
        wrong += [f"{os.path.relpath(page, ROOT)}:{n}: longer than {WIDTH}" for n in too_long(text)]
        wrong += [f"{os.path.relpath(page, ROOT)}: run scripts/wrap-docs"] if not generated and wrap(text) != text else []
    assert not wrong, wrong


def anchors(text):
    heads = [
        re.sub(r"[^\w\- ]", "", line.lstrip("# ").strip().lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    ]
    return set(heads)


def test_links_lead_to_pages_and_headings_that_are_there():
    links, dead = 0, []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", read(page), flags=re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            links += 1
            path, _, anchor = target.partition("#")
            file = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(file) or anchor and anchor not in anchors(read(file)):
                dead.append(f"{os.path.relpath(page, ROOT)}: {target}")
    assert links > 80 and not dead, dead


def test_files_that_the_pages_name_are_there():
    named = re.compile(r"`((?:gdbext|scripts|tests|docs|gdbinit\.d)/[\w./-]*[\w/-])[^`]*`")
    gone = []
    for page in PAGES:
        if os.path.basename(page) not in ("commands.md", "CHANGELOG.md"):
            for path in named.findall(read(page)):
                if (
                    not glob.glob(os.path.join(ROOT, path) + "*")
                    and not path.endswith(("NAME", "NAME/", "X_"))
                    and "NAME" not in path
                ):
                    gone.append(f"{os.path.relpath(page, ROOT)}: {path}")
    assert not gone, gone


def test_each_promise_of_the_security_page_names_a_test_that_is_there():
    text = read("docs", "security.md").partition("\n## Trust")[2].partition("\n## Reporting")[0]
    there = set()
    for path in glob.glob(os.path.join(ROOT, "tests", "*", "test_*.py")):
        there |= {os.path.basename(path), os.path.relpath(path, ROOT), *re.findall(r"^def (test_\w+)", read(path), re.M)}
    test = re.compile(r"`((?:tests/\w+/)?test_\w+(?:\.py)?)`")
    assert len(test.findall(text)) > 50 and not set(test.findall(text)) - there
    parts = re.split(r"\n(?=## |\*\*)", text)
    assert [part.split("\n")[0] for part in parts[1:] if not test.search(part) and not part.startswith("**Limits.**")] == []


def test_each_row_of_the_guides_says_where_its_command_was_run():
    """Numbered without a gap; a command that there is, or said to be none; and a test that there is, or "by hand", or
    "nowhere"."""
    rows = re.findall(r"^\| (\d+) \| (.+) \| (.+) \| (.+) \|$", read("docs", "guides.md"), re.M)
    assert [int(number) for number, *_ in rows] == list(range(1, len(rows) + 1)) and len(rows) > 100
    wrong = []
    for number, _, command, run in rows:
        cited = re.findall(r"`(tests/[^`]+)`", run)
        wrong += [f"row {number}: no {path}" for path in cited if not path.endswith(".py") or not holds_a_test(path)]
        if not cited and not re.search(r"by hand|nowhere|as row \d+", run):
            wrong.append(f"row {number}: {run!r} says nothing of where")
        first = [words.split()[0] for words in re.findall(r"`((?:llm|py)[\w-]*[^`]*)`", command)]
        wrong += [f"row {number}: no command {name}" for name in first if name not in table.names() and name != "python3"]
    assert not wrong, wrong


def holds_a_test(path):
    return os.path.exists(os.path.join(ROOT, path)) and re.search(r"^def test_", read(path), re.M)


def test_the_readme_and_the_figures_are_short():
    assert len(read("README.md").splitlines()) <= 70
    assert len(read("docs", "figures.md").splitlines()) <= 65


def prose(text):
    """A page without its tables and code."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    return [line for line in text.splitlines() if not re.match(r"\||    |<!--", line)]


def test_nobody_has_to_read_more_than_42000_words():
    """All prose; and all that is written for readers, tables and code too, without the reference and the lab book."""
    texts = {os.path.relpath(page, ROOT): read(page) for page in PAGES if "docs/news" not in page}
    assert sum(len(" ".join(prose(text)).split()) for text in texts.values()) <= 42000
    reference = {"docs/commands.md", "docs/json.md", "docs/measurements.md"}
    assert sum(len(text.split()) for page, text in texts.items() if page not in reference) <= 42000


def typed_lines(text):
    """[words] of each line of a page's code in which gdbext is called, or one of its commands at gdb's prompt."""
    for line in re.findall(r"^ *(?: {4}|RUN |\$ )(.*)$", text, re.M):
        line = re.split(r"   +|  #| #", line.strip())[0]
        for one in re.split(r" && | > |; ", line):
            found = re.match(r"(?:\(gdb\) |(?:\w+=\S+ )*(?:\$ )?(?:python3 (?:-m gdbext|\S*gdbext\.pyz)|gdbext) )(\S.*)$", one)
            if found and "…" not in found[1]:
                yield one.startswith("(gdb)"), shlex.split(found[1])


def test_each_line_of_the_pages_that_calls_a_command_parses():
    count = 0
    for page in PAGES:
        for in_gdb, words in [] if os.path.basename(page) == "commands.md" else typed_lines(read(page)):
            if in_gdb and words[0] not in table.names():
                continue  # gdb's own
            count += 1
            if words[0] in SETUP:
                _parser(words[0]).parse_args(words[1:])
                continue
            name, rest = (words[0], words[1:]) if in_gdb else verbs.command_of(["4711" if w == "PID" else w for w in words])
            assert name in table.names(), (page, words)
            command = table.load(name)
            command.parse(line_of(command, rest if in_gdb else with_process(command, rest)))
    assert count > 60


def test_the_site_has_a_page_for_each_command_and_no_dead_link():
    made = pages()
    assert {f"commands/{name}.md" for name in table.names()} == {path for path in made if path.startswith("commands/")}
    dead = []
    for path, text in made.items():
        for target in re.findall(r"\]\(([^)\s:]+\.md)", re.sub(r"```.*?```", "", text, flags=re.S)):
            if os.path.normpath(os.path.join(os.path.dirname(path), target)) not in made:
                dead.append(f"{path}: {target}")
    assert not dead, dead
    listed = re.findall(r'[" <]([\w-]+)>?"', read("docs", "conf.py").partition("NAVIGATION = {")[2].partition("\n}")[0])
    assert {path[:-3] for path in made if "/" not in path} <= {*listed, "index"}


def test_each_row_of_the_guides_names_a_real_command_and_its_run():
    rows = [line.split(" | ") for line in read("docs", "guides.md").splitlines() if re.match(r"\| \d+ \| ", line)]
    assert [int(row[0].strip("| ")) for row in rows] == list(range(1, len(rows) + 1)) and len(rows) >= 110
    for row in rows:
        _, by_hand, command, run = (cell.strip(" |") for cell in row)
        assert by_hand and command and run, row
        named = re.findall(r"(?<![\w-])(?:llm|py)[a-z-]*[a-z](?![\w.])", " ".join(re.findall(r"`([^`]+)`", command)))
        strange = [name for name in named if name.startswith(("llm-", "py")) and name not in table.names()]
        assert not set(strange) - {"python3", "python"}, row
        for path in re.findall(r"tests/[\w/]+\.py", run):
            assert os.path.exists(os.path.join(ROOT, path)), path
        assert re.search(r"tests/|nowhere|by hand|as row \d|as \d", run), row


def test_each_row_of_the_guides_has_real_options_and_tests():
    """Tests below tests/unit call the room behind a command, so they need not name it."""
    commands, wrong, options = {c.name: c for c in table.load_all()}, [], 0
    for line in read("docs", "guides.md").splitlines():
        if not re.match(r"\| \d+ \| ", line):
            continue
        number, _, cell, run = (part.strip(" |") for part in line.split(" | "))
        codes = [code for code in re.findall(r"`([^`]+)`", cell) if code.split()[0] in commands]
        for code in codes:
            name, known = code.split()[0], commands[code.split()[0]].all_options()
            for option in re.findall(r"\s--?([a-z][\w-]*)", code):
                options += 1
                wrong += [f"{number}: {name} has no -{option}"] if option not in {o.name for o in known} else []
        used = [path for path in re.findall(r"tests/[\w/]+\.py", run) if not path.startswith("tests/unit")]
        text = "".join(read(path) for path in used)
        if used and codes and not any(code.split()[0] in text for code in codes):
            wrong.append(f"{number}: {used} use none of {codes}")
    assert options > 40 and not wrong, wrong
