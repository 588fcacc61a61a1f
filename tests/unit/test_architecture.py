"""Who may import whom (DESIGN.md, "The rooms"), what only gdb's side may import, and that nothing heavy is loaded by the door."""

import ast
import os
import shutil
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACK = os.path.join(ROOT, "gdbext")

# room -> rooms it may import; `errors` is for all
MAY = {
    "errors": set(),
    "lazy": set(),
    "wheels": set(),
    "render": set(),
    "layouts": set(),
    "access": {"layouts"},
    "cpython": {"access", "layouts", "render"},
    "torch": {"cpython", "access", "layouts", "render"},
    "kvcache": {"cpython", "torch", "access", "layouts", "render"},
    "kernels": {"kvcache", "cpython", "torch", "access", "layouts", "render", "engines"},
    "engines": {"kvcache", "cpython", "torch", "access", "layouts", "render"},
    "stacks": {"kvcache", "cpython", "torch", "access", "layouts", "render", "engines"},
    "verdict": {"kvcache", "cpython", "torch", "access", "layouts", "render", "engines", "stacks"},
    "control": {"kvcache", "cpython", "torch", "access", "layouts", "render", "engines", "stacks", "kernels"},
    "answers": {"control", "kvcache", "cpython", "torch", "access", "layouts", "render", "engines", "stacks", "kernels"},
    "session": {"control", "access", "layouts", "cpython", "torch", "kvcache", "render", "engines", "stacks", "kernels"},
    "setup": {"commands", "session", "access", "layouts", "render", "cpython", "torch"},  # runs commands outside gdb
}
ALL = set(MAY) - {"errors", "lazy", "wheels"} | {"commands", "printers", "functions", "frame_filters"}
MAY_GDB = (
    "init.py",
    "control/",
    "session/gdb_session.py",
    "commands/",
    "printers/",
    "functions/",
    "frame_filters/",
    "access/libraries.py",
)


def sources():
    for folder, _, names in os.walk(PACK):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                yield os.path.relpath(path, PACK).replace(os.sep, "/"), path


def imports(path, relative):
    """Absolute dotted names of everything a file imports, wherever in the file."""
    package = ["gdbext"] + relative.split("/")[:-1]
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read(), path, feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", "") == "lazy_module"
            and isinstance(node.args[0], ast.Constant)
        ):
            yield "gdbext." + node.args[0].value  # gdbext.lazy
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join(base + (node.module.split(".") if node.module else []))
            for alias in node.names:
                yield f"{stem}.{alias.name}"


@pytest.mark.parametrize("relative,path", sorted(sources()))
def test_arrows_point_one_way(relative, path):
    room = relative.split("/")[0] if "/" in relative else relative[:-3]
    for name in imports(path, relative):
        parts = name.split(".")
        if parts[0] == "gdb":
            allowed = relative.startswith(MAY_GDB) or (relative.startswith("access/") and relative.endswith("_gdb.py"))
            assert allowed, f"{relative} imports gdb"
        if parts[0] == "gdbext" and len(parts) > 1 and room in MAY:
            other = parts[1]
            if other in ALL and other != room and other not in ("errors", "lazy"):
                assert other in MAY[room], f"{relative} imports {name}: {room} may not know {other}"


def test_every_room_is_known():
    rooms = {r.split("/")[0] for r, _ in sources() if "/" in r}
    assert rooms <= ALL, f"rooms without a rule: {rooms - ALL}"


def test_thin_commands_load_without_gdb_and_without_heavy_modules():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from gdbext.commands import table\n"
        "loaded = table.load_all()\n"
        "assert len(loaded) == len(table.COMMANDS) and all(c.name == n for c, n in zip(loaded, table.COMMANDS))\n"
        "assert all(c.__doc__ and c.group is not None for c in loaded)\n"
        "heavy = {'numpy', 'torch', 'pygments', 'matplotlib', 'subprocess', 'asyncio', 'ctypes', 'gdb'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    said = subprocess.run([sys.executable, "-I", "-S", "-c", code, ROOT], stdout=subprocess.PIPE, check=True, text=True).stdout
    assert said.strip() == "[]"


def project_files():
    """Paths of the project's own files below ROOT: what git knows or would add; without git all but what Python and pytest leave behind."""
    if shutil.which("git"):
        listed = ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"]
        names = subprocess.run(listed, stdout=subprocess.PIPE, check=True, text=True).stdout.split("\n")
    else:
        names = [
            os.path.relpath(os.path.join(folder, name), ROOT)
            for folder, _, files in os.walk(ROOT)
            for name in files
            if not {".git", "__pycache__", ".pytest_cache", ".hypothesis", "build"} & set(folder.split(os.sep))
        ]
    return [name for name in names if os.path.isfile(os.path.join(ROOT, name))]


def test_no_file_names_a_registry_or_this_machine():
    words = [
        "pypi" + ".org",
        "download." + "pytorch",
        "files." + "pythonhosted",
        "deb." + "debian",
        "registry." + "npmjs",
        "/root/" + ".pyenv",
    ]
    looked = 0
    for name in project_files():
        path = os.path.join(ROOT, name)
        with open(path, encoding="utf-8", errors="replace") as f:
            text = f.read()
        looked += 1
        for word in words:
            assert word not in text, f"{name} names {word}"
    assert looked > 30
