"""No code is run that somebody else has put into the current folder, or into a folder that is not the user's own."""

import ast
import glob
import os
import subprocess
import sys

import pytest
from harness import foreign
from harness.floor import newest, oldest
from harness.gdb_run import ROOT

from gdbext import package, wheels
from gdbext.access import guard
from gdbext.errors import GdbextError
from gdbext.render import files
from gdbext.setup import unpack

# What the pack imports, and what it looks whether it is there; the interpreter has loaded none of them when -m finds the pack.
NAMES = """
    __future__ argparse array asyncio base64 bisect concurrent csv ctypes datetime decimal difflib fcntl glob gzip hashlib json
    math mcp mcp_types mmap numpy platform pygments queue random resource secrets select shlex shutil signal socket struct
    subprocess tempfile textwrap threading torch typing unicodedata urllib uuid zipfile zlib
""".split()
SOURCES = glob.glob(os.path.join(ROOT, "gdbext", "**", "*.py"), recursive=True)
LOADED = "import os, sys\nnames = {m for m in sys.modules}\nimport runpy\nprint(*sys.modules)"


@pytest.fixture(params=["oldest", "newest", "this"])
def python(request):
    found = {"oldest": oldest, "newest": newest, "this": lambda: sys.executable}[request.param]()
    if not found:
        pytest.skip("no Python 3.8 is here, the documented floor")
    return found


@pytest.fixture
def workspace(tmp_path):
    return foreign.workspace(tmp_path, NAMES)


@pytest.mark.parametrize(
    "words", [["llm-ranks", "--json"], ["doctor", "--json"], ["mcp"], ["llm-nothing"], ["llm", "guide"], ["--help"]]
)
@pytest.mark.parametrize("more", ["", "{}:", ".:{}", "{here}:{}"], ids=["site", "empty", "dot", "named"])
def test_the_current_folder_is_on_no_path(python, workspace, words, more):
    if more and words[0] != "llm-ranks":
        pytest.skip("one command shows it")
    before = subprocess.run([python, "-c", LOADED], cwd="/", stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    known = set(before) & set(NAMES)  # what -m itself has loaded from where it stands, before any line of the pack
    path = more.format(ROOT, here=workspace) if more else ROOT
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}, "PYTHONPATH": path}
    done = subprocess.run(
        [python, "-m", "gdbext", *words], cwd=workspace, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.stdout or done.stderr and "Traceback" not in done.stderr, done.stderr
    assert set(foreign.ran(workspace)) <= known
    assert len(known) < 8


def test_the_packs_own_folder_stays(python):
    script = "import runpy, sys; sys.argv[1:] = ['--version']; runpy.run_module('gdbext', run_name='__main__')"
    for words in (["-m", "gdbext", "--version"], ["-c", script]):
        done = subprocess.run([python, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, env={})
        assert done.stdout.startswith("gdbext ")
    shown = "import sys; before = list(sys.path); import gdbext; print(before == sys.path)"  # as a library it changes nothing
    done = subprocess.run([python, "-c", shown], cwd="/", stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": f"{ROOT}:"})
    assert done.stdout == "True\n"


# ---- folders ---------------------------------------------------------------------------------------------------------
def spoiled(folder, inner):
    """Yields after each way in which another one may have a hand in `folder`, whose last part is `inner`, and mends it."""
    os.makedirs(os.path.join(folder, inner), exist_ok=True)
    own = os.path.join(folder, inner)
    for at in (own, folder):
        os.chmod(at, 0o777)
        yield f"{at} is writable by others"
        os.chmod(at, 0o755)
    if os.geteuid() == 0:
        for at in (own, folder):
            os.chown(at, 4711, 0)
            yield f"{at} belongs to user 4711"
            os.chown(at, 0, 4711)
            os.chmod(at, 0o775)
            yield f"{at} is writable by others"
            os.chown(at, 0, 0)
            yield ""  # the user's own group
            os.chmod(at, 0o755)


def wheels_door(folder, monkeypatch):
    monkeypatch.setenv("GDBEXT_DATA", folder)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not entry.endswith(WHEELS)])
    why = wheels.use(sys.version_info[:2])
    assert (wheels.wheels_folder(sys.version_info[:2]) in sys.path) is not bool(why)
    return why


def capture_door(folder, monkeypatch):
    try:
        files.folder_for(os.path.join(folder, "captures"), "-o")
    except GdbextError as e:
        return str(e)
    return ""


def pyz_door(folder, monkeypatch):
    try:
        unpack.private_folder(os.path.join(folder, "above", "mine"))
    except GdbextError as e:
        return str(e)
    return ""


WHEELS = os.path.basename(wheels.wheels_folder(sys.version_info[:2], {"GDBEXT_DATA": "/x"}))
DOORS = {wheels_door: WHEELS, capture_door: "captures", pyz_door: "above"}


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_folder_in_which_others_have_a_hand_is_refused(door, tmp_path, monkeypatch):
    folder = str(tmp_path / "folder")
    count = 0
    for wanted in spoiled(folder, DOORS[door]):
        why = door(folder, monkeypatch)
        assert wanted in why if wanted else not why, why
        count += 1
    assert not door(folder, monkeypatch) and count >= 2
    link = str(tmp_path / "link")
    os.symlink(folder, link)
    assert not door(link, monkeypatch)
    os.chmod(folder, 0o777)
    assert "writable by others" in door(link, monkeypatch)


@pytest.mark.parametrize("spoil", [lambda p: os.chmod(p, 0o777), lambda p: os.chown(p, 4711, 4711)])
def test_a_package_among_the_wheels_that_is_another_users(tmp_path, monkeypatch, spoil):
    if os.geteuid() and spoil.__code__.co_names[1] == "chown":
        pytest.skip("only root can give a file away")
    inside = tmp_path / WHEELS / "numpy"
    inside.mkdir(parents=True)
    assert wheels_door(str(tmp_path), monkeypatch) == ""
    spoil(inside)
    assert str(inside) in wheels_door(str(tmp_path), monkeypatch)


def test_what_may_be_written_by_all_counts_by_its_sticky_bit(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    assert package.owned_by_us(str(shared), sticky=True) == "" and "writable" in package.owned_by_us(str(shared))
    assert "No such file" in package.owned_by_us(str(tmp_path / "none"))


def test_no_python_starts_where_it_would_import_from_the_folder(workspace, monkeypatch):
    """`-c` and `-m` put it first."""
    (workspace / "pip.py").write_text(foreign.SAYS)
    monkeypatch.chdir(workspace)
    guard.find_python()
    wheels.find_pip()
    assert foreign.ran(workspace) == []
    for module in SOURCES:
        with open(module) as f:
            tree = ast.parse(f.read())
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if getattr(call.func, "attr", "") in ("run", "Popen", "check_output", "call") and "subprocess" in ast.dump(call.func):
                said = ast.dump(call)
                if "'sys'" in said and "executable" in said or "find_python" in said:
                    assert any(k.arg == "cwd" or k.arg is None for k in call.keywords), (module, call.lineno)
