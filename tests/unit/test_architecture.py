"""Who may import whom (docs/architecture.md), circles, sizes, annotations, and that nothing heavy is loaded by the door."""

import ast
import functools
import os
import re
import shutil
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACK = os.path.join(ROOT, "gdbext")

# room -> rooms it may import, also in functions; those of FOR_ALL are for all (docs/architecture.md)
READING = {"cpython", "torch", "access", "render"}
MAY = {
    "errors": set(),
    "log": {"render"},
    "package": set(),
    **dict.fromkeys(("wheels", "render", "access", "archive", "compiled"), set()),
    "layouts": set(),  # data: tables that access, cpython and torch read as files
    "primitives": set(),  # data: what libraries' objects of waiting are
    "cpython": {"access", "primitives", "render"},
    "observe": {"cpython", "access"},
    "torch": {"cpython", "access", "render"},
    "heap": {"cpython", "access", "torch", "observe"},
    "kvcache": {"render"},
    "bundle": {"access", "render"},
    "engines": {"observe", "cpython", "torch", "access", "bundle", "kvcache", "primitives"},
    "requests": {"observe", "cpython", "access", "kvcache", "engines"},
    "kernels": READING | {"engines"},
    "stacks": READING | {"engines", "observe", "primitives"},
    "timeline": {"cpython", "access", "render", "stacks", "observe", "engines", "primitives"},
    "verdict": READING | {"observe", "engines", "requests", "stacks", "primitives"},
    "watch": {"heap", "bundle", "timeline", "requests", "engines", "observe", "torch", "cpython", "access", "render"},
    "control": READING | {"engines", "kernels"},
    "answers": READING
    | {"heap", "kvcache", "observe", "engines", "requests", "kernels", "stacks", "timeline", "verdict", "control"},
    "session": READING | {"engines", "control", "wheels", "archive"},
    "gdbext": {"api"},  # the package itself: the library's names are loaded when they are asked for
    "api": READING | {"bundle", "kvcache", "engines", "requests", "stacks", "verdict", "answers", "session"},
    "commands": READING
    | {"heap", "kvcache", "observe", "engines", "requests", "kernels", "stacks", "timeline", "verdict", "control"}
    | {"answers", "session", "api", "watch", "bundle"},
    "printers": {"session", "torch", "render"},
    "functions": {"session", "torch", "render"},
    "frame_filters": {"session", "answers", "engines", "stacks", "access", "render"},
    "dap": {"cpython", "access", "render", "frame_filters", "session", "answers", "control", "engines"},
    "setup": {"commands", "session", "access", "render", "wheels"},  # runs commands outside gdb
    "init": {"commands", "session", "printers", "functions", "frame_filters", "dap", "wheels"},
    "agents": {"commands", "setup", "session", "access", "render"},  # the same commands for programs
    "__main__": {"commands", "session", "setup", "agents", "render"},
}
MAY_GDB = (
    "init.py",
    "control/",
    "setup/inside.py",
    "session/gdb_commands.py",
    "session/gdb_session.py",
    "commands/",
    "printers/",
    "functions/",
    "frame_filters/",
    "dap/",
    "access/libraries.py",
)
FOR_ALL = ("errors", "log", "package")
# The one index of commands, and what `llm` lists and tells: read by commands, themselves none.
INDEXES = {"gdbext.commands.table", "gdbext.commands.guide", "gdbext.commands.snapshot_reader"}
MAX_FILE, MAX_TEST_FILE, MAX_FUNCTION, MAX_PARAMETERS = 600, 800, 60, 6  # files are split by idea, long before that


CITES_NOTHING = r"\bthe contract\b|\bfacts/|\bfacts section|\bDESIGN\.md|\bCONTRACT\.md"
PAGES = {"architecture.md", "json.md", "sources.md", "security.md", "guides.md", "verdicts.md"}


def none_of(what, found):
    """Fails where there is any of something that there must not be, listing all of it."""
    found = list(found)
    assert not found, f"{what}: {len(found)}:\n" + "\n".join(map(str, found))


def sources():
    """(path below gdbext/, path) of every module of the pack."""
    for folder, _, names in os.walk(PACK):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                yield os.path.relpath(path, PACK).replace(os.sep, "/"), path


SOURCES = dict(sorted(sources()))


def module_of(relative):
    """ "cpython/gil.py" -> "gdbext.cpython.gil" """
    name = "gdbext." + relative[:-3].replace("/", ".")
    return name[: -len(".__init__")] if name.endswith(".__init__") else name


MODULES = {module_of(relative): relative for relative in SOURCES}


@functools.lru_cache(None)
def parsed(relative):
    with open(SOURCES[relative], encoding="utf-8") as f:
        return ast.parse(f.read(), relative, feature_version=(3, 8))


@functools.lru_cache(None)
def nodes(relative):
    """Every node of a module: the tree is walked once for all tests."""
    return tuple(ast.walk(parsed(relative)))


def package_of(relative):
    return ["gdbext"] + relative.split("/")[:-1]


def absolute(relative, node):
    """The module that a `from X import ...` names."""
    base = package_of(relative)
    base = base[: len(base) - node.level + 1] if node.level else []
    return ".".join(base + (node.module.split(".") if node.module else []))


def only_for_types(relative):
    """The nodes below `if TYPE_CHECKING:`."""
    found = set()
    for node in nodes(relative):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in (getattr(node.test, "id", ""), getattr(node.test, "attr", "")):
            found.update(below for child in node.body for below in ast.walk(child))
    return found


@functools.lru_cache(None)
def imports(relative):
    """[(absolute dotted name, whether at run time)] of all that a file imports, wherever in it, by `import` or by a string that
    names one of the pack's modules."""
    found, types = [], only_for_types(relative)
    for node in nodes(relative):
        at_run_time = node not in types
        if isinstance(node, ast.Import):
            found += [(alias.name, at_run_time) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(f"{absolute(relative, node)}.{alias.name}", at_run_time) for alias in node.names]
        elif isinstance(node, ast.JoinedStr):
            text = "".join(part.value for part in node.values if isinstance(part, ast.Constant))
            assert not text.startswith("gdbext."), f"{relative}:{node.lineno}: a module's name that is put together"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"gdbext(\.\w+)+", node.value):
            found.append((node.value, at_run_time))
    return found


def known_module(name):
    """The pack's module that a dotted name is or is in, or None."""
    parts = name.split(".")
    while len(parts) > 1:
        if ".".join(parts) in MODULES:
            return ".".join(parts)
        parts.pop()
    return None


def room_of(module):
    return module.split(".")[1] if "." in module else module


def wrong_arrows(relative):
    """What a module imports and its room may not."""
    room = room_of(module_of(relative))
    if room not in MAY:
        yield f"{relative} is in a room without a rule"
        return
    for name, _ in imports(relative):
        if name.split(".")[0] == "gdb":
            if not relative.startswith(MAY_GDB) and not (relative.startswith("access/") and relative.endswith("_gdb.py")):
                yield f"{relative} imports gdb"
        other = room_of(known_module(name) or name) if name.startswith("gdbext.") else None
        if other in MAY and other not in (room, *FOR_ALL) and other not in MAY[room]:
            yield f"{relative} imports {name}: {room} may not know {other}"


@pytest.mark.sources
def test_arrows_point_one_way():
    assert len(SOURCES) > 300
    none_of("arrows that are not allowed", (line for relative in SOURCES for line in wrong_arrows(relative)))


@pytest.mark.sources
def test_no_arrow_is_allowed_that_nobody_needs():
    used = set()
    for module, relative in MODULES.items():
        for name, _ in imports(relative):
            if name.startswith("gdbext."):
                used.add((room_of(module), room_of(known_module(name) or name)))
    none_of(
        "arrows that nobody needs",
        [(room, other) for room, others in MAY.items() for other in others if (room, other) not in used],
    )


@pytest.mark.sources
def test_the_page_draws_the_same_arrows():
    with open(os.path.join(ROOT, "docs", "architecture.md"), encoding="utf-8") as f:
        rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", f.read(), re.M)
    drawn = {room: set(re.findall(r"`(\w+)`", others)) for room, others in rows}
    assert drawn == {room: others for room, others in MAY.items() if room not in FOR_ALL}
    order = list(drawn)
    none_of(
        "arrows upwards", [(room, other) for room in order for other in drawn[room] if order.index(other) <= order.index(room)]
    )


@pytest.mark.sources
def test_no_command_imports_another():
    found = set()
    for module, relative in MODULES.items():
        if room_of(module) == "commands" and module not in INDEXES:
            others = {known_module(name) for name, _ in imports(relative)} - INDEXES - {module, "gdbext.commands"}
            found |= {(module, other) for other in others if other and room_of(other) == "commands"}
    none_of("commands that import a command", found)


def circles(graph):
    """The strongly connected parts of {node: {nodes}} that hold more than one node (Tarjan)."""
    number, low, stack, found = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in graph[node]:
            if other not in number:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == number[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(part) > 1:
                found.append(frozenset(part))

    for node in graph:
        if node not in number:
            visit(node)
    return found


def test_circles_are_found():
    assert circles({1: {2}, 2: {3}, 3: {1}, 4: {1}, 5: set()}) == [frozenset({1, 2, 3})]


@pytest.mark.sources
def test_modules_form_no_circle():
    """Imports inside functions count too: they only hide a circle."""
    graph = {
        module: {known_module(name) for name, at_run_time in imports(relative) if at_run_time} - {None, module, "gdbext"}
        for module, relative in MODULES.items()
    }
    none_of("circles", [sorted(part) for part in circles(graph)])


# ---- names that an import promises -------------------------------------------------------------------------------------
@functools.lru_cache(None)
def names_in(relative):
    """Every name that a module may have at its top: what it defines, assigns and imports."""
    found = set()
    for node in nodes(relative):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return found


def modules_by_name(relative):
    """{name in the file: the pack's module that it stands for}"""
    found = {}
    for node in parsed(relative).body:
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            if f"{absolute(relative, node)}.{alias.name}" in MODULES:
                found[alias.asname or alias.name] = f"{absolute(relative, node)}.{alias.name}"
    return found


def asked(relative):
    """(line, module, name) for every name that a module asks of another of the pack's."""
    known = modules_by_name(relative)
    for node in nodes(relative):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
            if not node.attr.startswith("__"):
                yield node.lineno, known[node.value.id], node.attr
        elif isinstance(node, ast.ImportFrom) and absolute(relative, node).startswith("gdbext"):
            for alias in node.names:
                yield node.lineno, absolute(relative, node), alias.name


def has(module, name):
    return f"{module}.{name}" in MODULES or (module in MODULES and name in names_in(MODULES[module]))


@pytest.mark.sources
def test_what_is_asked_of_a_module_is_in_it():
    questions = [(relative, *question) for relative in SOURCES for question in asked(relative)]
    assert len(questions) > 1000
    none_of(
        "names that their modules do not have",
        (f"{relative}:{line}: {module} has no {name}" for relative, line, module, name in questions if not has(module, name)),
    )


@pytest.mark.sources
def test_what_scripts_and_tests_import_of_the_pack_is_in_it():
    wrong, count = [], 0
    for name in project_files():
        if not name.startswith(("scripts/", "tests/")) or not name.endswith(".py"):
            continue
        with open(os.path.join(ROOT, name), encoding="utf-8") as f:
            text = f.read()
        for node in ast.walk(ast.parse(text)) if "from gdbext" in text else ():
            if isinstance(node, ast.ImportFrom) and not node.level and node.module.split(".")[0] == "gdbext":
                count += len(node.names)
                missing = [alias.name for alias in node.names if not has(node.module, alias.name)]
                wrong += [f"{name}:{node.lineno}: {node.module} has no {one}" for one in missing]
    assert count > 500
    none_of("names that their modules do not have", wrong)


# ---- size, annotations, words ------------------------------------------------------------------------------------------
def functions(tree, prefix=""):
    """(dotted name, node) of every function of a tree."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name, node
            yield from functions(node, prefix + node.name + ".")
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, prefix + node.name + ".")
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
            yield from functions(node, prefix)


def sizes():
    """(path below the repository, lines, tree) of every module of the pack and of the tests; the tree is empty where the module
    is too short for anything that the test looks for."""
    tests = {name for name in project_files() if name.startswith("tests/") and name.endswith(".py")}
    assert len(tests) > 100
    for name in sorted(tests | {"gdbext/" + relative for relative in SOURCES}):
        with open(os.path.join(ROOT, name), encoding="utf-8") as f:
            text = f.read()
        lines = text.count("\n")
        if name.startswith("gdbext/"):
            tree = parsed(name[len("gdbext/") :])
        else:
            tree = ast.Module([], []) if lines <= MAX_FUNCTION and "def __init__" not in text else ast.parse(text, name)
        yield name, lines, tree


@pytest.mark.sources
def test_files_functions_and_constructors_are_small():
    long_files, long_functions, wide = [], [], []
    for path, lines, tree in sizes():
        long_files += [f"{path}: {lines} lines"] if lines > (MAX_TEST_FILE if path.startswith("tests/") else MAX_FILE) else []
        for name, node in functions(tree):
            length = node.end_lineno - node.lineno + 1
            long_functions += [f"{path}: {name} has {length} lines"] if length > MAX_FUNCTION else []
            count = len(node.args.posonlyargs + node.args.args) - 1
            if node.name == "__init__" and count > MAX_PARAMETERS:
                wide.append(f"{path}: {name} takes {count} positional parameters")
    none_of("long files", long_files)
    none_of("long functions", long_functions)
    none_of("wide constructors", wide)


@pytest.mark.sources
def test_names_of_tests_are_read_at_a_glance():
    found = []
    for name in project_files():
        if name.startswith("tests/") and name.endswith(".py"):
            with open(os.path.join(ROOT, name), encoding="utf-8") as f:
                found += [f"{name}: {one}" for one in re.findall(r"^ *(?:async )?def (test_\w+)", f.read(), re.M)]
    assert len(found) > 1000
    none_of("names of tests over 70 characters", (one for one in found if len(one.partition(": ")[2]) > 70))


def unannotated(relative):
    """Functions and methods that lack the type of a parameter or of the result."""
    for name, node in functions(parsed(relative)):
        every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg)
        bare = [a for a in every if a is not None and a.annotation is None and a.arg not in ("self", "cls")]
        if node.returns is None or bare:
            yield name


@pytest.mark.sources
def test_functions_are_annotated():
    none_of("functions without annotations", [f"{relative}: {name}" for relative in SOURCES for name in unannotated(relative)])


@pytest.mark.sources
def test_nothing_cites_what_is_not_in_the_repository():
    found, pages = [], set(os.listdir(os.path.join(ROOT, "docs"))) if os.path.isdir(os.path.join(ROOT, "docs")) else PAGES
    for relative, path in SOURCES.items():
        with open(path, encoding="utf-8") as f:
            text = f.read()
        found += [f"{relative}: {word}" for word in re.findall(CITES_NOTHING, text)]
        found += [f"{relative}: docs/{page}" for page in re.findall(r"\bdocs/([\w-]+\.md)", text) if page not in PAGES | pages]
    none_of("words that cite a page that is not here", found)


def project_files():
    """Paths of the project's own files below ROOT: what git knows or would add; without git all but what Python and pytest leave
    behind."""
    if shutil.which("git") and os.path.exists(os.path.join(ROOT, ".git")):  # an sdist has none
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


@pytest.mark.sources
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


BUILTINS = {"list", "dict", "set", "frozenset", "tuple", "type"}


def annotations(relative):
    """The nodes of a module's annotations, which are never evaluated."""
    found = set()
    for node in nodes(relative):
        for name in ("annotation", "returns"):
            if getattr(node, name, None) is not None:
                found.update(ast.walk(getattr(node, name)))
    return found


@pytest.mark.sources
def test_no_builtin_type_is_subscripted_where_python_3_8_would_evaluate_it():
    """`set[int]()` is a TypeError there, and no parser says so."""
    looked_at = 0
    for relative in SOURCES:
        found = [n for n in nodes(relative) if isinstance(n, ast.Subscript) and getattr(n.value, "id", "") in BUILTINS]
        looked_at += len(found)
        if found:
            quiet = annotations(relative) | only_for_types(relative)
            assert not [n.lineno for n in found if n not in quiet], relative
    assert looked_at > 1000
