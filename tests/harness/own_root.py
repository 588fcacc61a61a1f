"""Becomes a program in a mount namespace with a root of its own: `own_root.py FOLDER [PATH | PATH=THERE]... -- WORD...`.

FOLDER becomes the root, with proc of this pid namespace, a /dev with its null device, a new /dev/shm, and the paths that are
named, each where it is or elsewhere. What is not named does not exist there. Needs root; the program's words are paths there."""

import ctypes
import os
import shutil
import subprocess
import sys

NEWNS, BIND, PRIVATE, DETACH = 0x20000, 4096 | 16384, 1 << 18 | 16384, 2  # linux/mount.h
PIVOT_ROOT = {"x86_64": 155}.get(os.uname().machine, 41)
libc = ctypes.CDLL(None, use_errno=True)


def done(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def mount(source, target, kind, flags):
    done(libc.mount(os.fsencode(source), os.fsencode(target), os.fsencode(kind), flags, None))


def enter(folder, paths):
    """This process gets its own mount namespace with `folder` as its root. `paths`: {path: path there}."""
    done(libc.unshare(NEWNS))
    mount("none", "/", "none", PRIVATE)
    mount(folder, folder, "none", BIND)
    for name in ("proc", "dev"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    mount("proc", folder + "/proc", "proc", 0)
    mount("none", folder + "/dev", "tmpfs", 0)
    os.mkdir(folder + "/dev/shm", 0o1777)
    mount("none", folder + "/dev/shm", "tmpfs", 0)
    paths = {**paths, **{f"/dev/{name}": f"/dev/{name}" for name in ("null", "zero", "urandom")}}
    for path, there in paths.items():
        target = folder + there
        os.makedirs(target if os.path.isdir(path) else os.path.dirname(target), exist_ok=True)
        if not os.path.isdir(path):
            with open(target, "ab"):
                pass
        mount(os.path.realpath(path), target, "none", BIND)
    os.chdir(folder)
    done(libc.syscall(PIVOT_ROOT, b".", b"."))
    done(libc.umount2(b".", DETACH))
    os.chdir("/")


def copied_python(python, folder):
    """Copies an interpreter into an empty folder: it, the libraries that it loads, its standard library. -> its path there."""
    code = "import os, sys, sysconfig; print(os.path.realpath(sys.executable), sysconfig.get_path('stdlib'), sep='\\n')"
    found = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.split()
    program, library = found
    shutil.copytree(library, folder + library, ignore=shutil.ignore_patterns("__pycache__", "site-packages", "test"))
    os.makedirs(folder + os.path.dirname(program), exist_ok=True)
    shutil.copy(program, folder + program)
    extensions = [os.path.join(top, name) for top, _, names in os.walk(library) for name in names if name.endswith(".so")]
    said = subprocess.run(["ldd", program, *extensions], capture_output=True, text=True).stdout
    for word in set(said.split()):
        if word.startswith("/") and not word.endswith(":") and os.path.exists(word):
            os.makedirs(os.path.dirname(folder + word), exist_ok=True)
            shutil.copy(word, folder + word)
    return program


def main(words):
    cut = words.index("--")
    folder, *paths = words[:cut]
    enter(os.path.realpath(folder), {path: there or path for path, _, there in (one.partition("=") for one in paths)})
    os.execv(words[cut + 1], words[cut + 1 :])


if __name__ == "__main__":
    main(sys.argv[1:])
