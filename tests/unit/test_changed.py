"""`scripts/test -changed`: a change of a module, subject, page or command runs the tests that need it, by whatever way; what is
not understood runs all. On made-up projects, and on this one."""

import pytest
from tools import changed, run_tests

PROJECT = {
    "gdbext/__init__.py": "",
    "gdbext/__main__.py": "from .setup import outside",
    "gdbext/init.py": "from gdbext.commands import table",
    "gdbext/setup/__init__.py": "",
    "gdbext/setup/outside.py": "def f():\n    from ..commands import table",
    "gdbext/commands/__init__.py": "",
    "gdbext/commands/table.py": "",
    "gdbext/commands/llm_one.py": "from ..stacks.deep import walk",
    "gdbext/commands/pytwo.py": "from ..heap import graph",
    "gdbext/stacks/__init__.py": "",
    "gdbext/stacks/deep.py": "READER = 'gdbext.stacks.late'",
    "gdbext/stacks/late.py": "",
    "gdbext/heap/__init__.py": "",
    "gdbext/heap/graph.py": "",
    "gdbext/heap/unused.py": "",
    "gdbext/layouts/cpython.json": "{}",
    "gdbext/commands/help.txt": "=== llm-one hang llm_one.One\n...\n=== pytwo - pytwo.Two gdb\n",
    "scripts/tools/__init__.py": "",
    "scripts/tools/fuzz.py": "",
    "tests/harness/__init__.py": "",
    "tests/harness/answers.py": 'line = ["python3", "-m", "gdbext"]',
    "tests/gdb/subjects/titled.py": "",
    "tests/gdb/test_one.py": 'from harness.answers import answer\ndef test(): answer("llm-one 12 -json")',
    "tests/gdb/test_two.py": 'from harness.answers import answer\nSUBJECT = "titled.py"\ndef test(): answer(f"pytwo {1}")',
    "tests/unit/test_graph.py": "def test():\n    from gdbext.heap import graph",
    "tests/unit/test_fuzz.py": "from tools import fuzz",
    "tests/unit/test_pages.py": 'PAGE = "docs/security.md"',
    "tests/unit/test_sources.py": "import os\nos.walk('.')",
    "docs/security.md": "",
    "docs/other.md": "",
    "assets/logo.png": "",
    "pyproject.toml": "",
}
WALKER = "tests/unit/test_sources.py"


def touched(*new, gone=(), **more):
    sources = changed.Sources([*PROJECT, *more], {**PROJECT, **more}.__getitem__)
    found, why = changed.choose(sources, set(new), set(gone))
    return why or {path.rpartition("/")[2] for path in found if path != WALKER}


@pytest.mark.parametrize(
    "new, tests",
    [
        ("gdbext/heap/graph.py", {"test_graph.py", "test_two.py"}),  # by a command's module, by an import in a function
        ("gdbext/stacks/deep.py", {"test_one.py"}),
        ("gdbext/stacks/late.py", {"test_one.py"}),  # by a module's name in a string
        ("gdbext/heap/__init__.py", {"test_graph.py", "test_two.py"}),
        ("gdbext/heap/unused.py", set()),
        ("gdbext/commands/llm_one.py", {"test_one.py"}),
        ("gdbext/setup/outside.py", {"test_one.py", "test_two.py"}),  # by the door, through the harness
        ("gdbext/commands/table.py", {"test_one.py", "test_two.py"}),
        ("tests/harness/answers.py", {"test_one.py", "test_two.py"}),
        ("tests/gdb/subjects/titled.py", {"test_two.py"}),
        ("scripts/tools/fuzz.py", {"test_fuzz.py"}),
        ("docs/security.md", {"test_pages.py"}),
        ("docs/other.md", set()),
        ("tests/unit/test_graph.py", {"test_graph.py"}),
    ],
)
def test_a_change_touches_who_needs_it_and_nobody_else(new, tests):
    assert touched(new) == tests


@pytest.mark.parametrize(
    "new",
    ["gdbext/layouts/cpython.json", "gdbext/commands/help.txt", "assets/logo.png", "pyproject.toml", "tests/gdb/conftest.py"],
)
def test_in_doubt_all_run(new):
    assert new in touched(new, **{new: ""})


def test_what_was_removed_runs_all():
    assert "was removed" in touched(gone=["gdbext/heap/old.py"])


def test_who_looks_through_all_sources_runs_for_every_change():
    sources = changed.Sources(list(PROJECT), PROJECT.__getitem__)
    for path in ("gdbext/heap/unused.py", "docs/other.md"):
        assert changed.choose(sources, {path}, set())[0][WALKER] == "it looks through all sources"
    assert changed.choose(sources, set(), set()) == ({}, "")


@pytest.mark.sources
def test_of_this_project_the_known_ways_are_found():
    sources = changed.Sources(changed.listed())
    for path, tests, not_tests in (
        ("gdbext/heap/listing.py", {"tests/gdb/test_heap.py"}, {"tests/gdb/test_rings.py"}),
        ("gdbext/engines/sglang/kv_requests.py", {"tests/gdb/test_requests_sglang.py"}, set()),
        ("tests/gdb/subjects/titled.py", {"tests/gdb/test_ranks_live.py"}, {"tests/gdb/test_heap.py"}),
        ("scripts/tools/matrix.py", {"tests/unit/test_matrix.py"}, {"tests/gdb/test_heap.py"}),
        ("tests/harness/launches.py", {"tests/gdb/test_launch_triton.py"}, {"tests/gdb/test_heap_rings.py"}),
        ("gdbext/access/elf.py", {"tests/unit/test_kept_symbols.py", "tests/gdb/test_stacks.py"}, set()),
    ):
        found, why = changed.choose(sources, {path}, set())
        assert not why and tests <= set(found) and not not_tests & set(found), path
    assert changed.choose(sources, {"gdbext/layouts/cpython/3.11.json"}, set())[1]


@pytest.mark.sources
def test_modules_that_load_others_by_a_name_that_is_put_together_are_known():
    """Each file that calls `import_module` names what it loads whole, or stands in `BY_NAME`; the table's commands are named by
    who asks them, a collector's reader by who starts it."""
    known = {
        *changed.BY_NAME,
        "gdbext/commands/table.py",
        "gdbext/access/collector.py",
        "gdbext/package.py",
        "gdbext/dap/server.py",
        "gdbext/session/rehearsal.py",
        "gdbext/__init__.py",
    }
    calls = {path for path in changed.listed() if path.startswith("gdbext/") and path.endswith(".py")}
    assert {path for path in calls if "import_module(" in changed._text(path)} == known


def test_many_files_of_gdb_run_at_once_and_few_one_after_the_other():
    files = [path for path in changed.listed() if path.startswith("tests/gdb/test_")][: run_tests.FEW + 1]
    files = [f"{changed.ROOT}/{path}" for path in files]
    at_once = run_tests.runs("gdb", files, 2, "python3")
    assert (
        [more[:2] for more in at_once]
        == [["-m", "not alone"], ["-m", "alone"]]
        == [more[:2] for more in run_tests.runs("gdb", [], 2, "python3")]
    )
    assert run_tests.runs("gdb", files[1:], 2, "python3") == [[]] == run_tests.runs("gdb", [*files, "-x"], 2, "python3")
    assert run_tests.words_for("gdb", files) == files
