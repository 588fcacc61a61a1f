"""Makes the files of a release, and rehearses one: what users do, against an index on this machine.

  scripts/release files [DIR]             sdist, wheel and gdbext.pyz of the last commit into DIR (dist), metadata checked.
                                          GDBEXT_HOME_URL: the repository's address, for the links that an index shows
  scripts/release rehearse [PYTHON]...    the same of the last commit as the release after the last tag, and of the last tag, into
                                          an index that this script serves on 127.0.0.1. Then for each PYTHON (default: each minor
                                          here from 3.8 on) in an empty environment: install of the last release, upgrade, a dump
                                          of a process, gdbext install and uninstall, pip uninstall. Nothing may be left. And the
                                          sdist runs tests of its own.

Nothing is uploaded. Exit status 1 where something failed."""

from __future__ import annotations

import contextlib
import functools
import glob
import http.server
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator

from .environments import environment
from .prepare_tests import fetched_pythons
from .say import Failed, say
from .system import find_pythons

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ADDRESS = "https://example.org/gdbext"  # of a rehearsal
SUBJECT = (
    "import time\ndef waits_for_the_release():\n    print('ready', flush=True)\n    time.sleep(600)\nwaits_for_the_release()\n"
)
SDIST_TESTS = "test_docs or test_releases or test_session"  # parts of the unit tests that a rehearsal runs in the sdist


def run(*words: str, cwd: str = ROOT, **env: str) -> str:
    """What a command prints. Failed: it ended with an error; its last lines."""
    done = subprocess.run(words, cwd=cwd, env={**os.environ, **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-12:]
        raise Failed(f"{' '.join(words)[:200]}: exit status {done.returncode}\n  " + "\n  ".join(last))
    return done.stdout


def version_in(folder: str) -> str:
    with open(os.path.join(folder, "gdbext", "__init__.py"), encoding="utf-8") as f:
        found = re.search(r'__version__ = "(.+?)"', f.read())
    if not found:
        raise Failed("gdbext/__init__.py has no __version__")
    return found[1]


def exported(revision: str, folder: str) -> str:
    """The tree of a commit, in `folder`: no file of the working tree gets in."""
    os.makedirs(folder)
    with subprocess.Popen(["git", "archive", revision], cwd=ROOT, stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "x", "-C", folder], stdin=archive.stdout, check=True)
    if archive.returncode:
        raise Failed(f"git archive {revision} failed")
    return folder


def built(tree: str, out: str, address: str = "", pyz: bool = False) -> str:
    """sdist and wheel of a tree into `out`, with what pyproject.toml pins; -> its version. Failed: the metadata is faulty."""
    python = environment("release")
    run(python, "-m", "build", "--outdir", out, tree, GDBEXT_HOME_URL=address)
    version = version_in(tree)
    run(python, "-m", "twine", "check", "--strict", *glob.glob(os.path.join(out, f"gdbext-{version}*")))
    if pyz:
        run(sys.executable, os.path.join(tree, "scripts", "make-pyz"), os.path.join(out, "gdbext.pyz"))
    return version


def as_next(tree: str, last: str) -> str:
    """Makes a tree, in place, the release after `last`, where it has that number still; -> its version."""
    version = version_in(tree)
    if version == last:
        major, minor, _ = last.split(".")
        path = os.path.join(tree, "gdbext", "__init__.py")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        version = f"{major}.{int(minor) + 1}.0"
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace(f'__version__ = "{last}"', f'__version__ = "{version}"'))
        run(sys.executable, os.path.join(tree, "scripts", "make-commands-reference"))
    return version


@contextlib.contextmanager
def index(folder: str) -> Iterator[str]:
    """Serves the files of `folder` as a package index (the simple repository API) on this machine: its address."""
    simple = os.path.join(folder, "simple", "gdbext")
    os.makedirs(simple)
    names = [name for name in sorted(os.listdir(folder)) if name.startswith("gdbext-")]
    with open(os.path.join(simple, "index.html"), "w", encoding="utf-8") as f:
        f.write("<!DOCTYPE html>\n" + "".join(f'<a href="../../{name}">{name}</a>\n' for name in names))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple/"
        finally:
            server.shutdown()
            thread.join()


def files_of(folder: str) -> set[str]:
    """What an environment holds, without bytecode."""
    found = {os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names}
    return {path for path in found if "__pycache__" not in path}


class Rehearsal:
    """One Python: what a user does with an environment of it."""

    def __init__(self, python: str, minor: int, address: str, last: str, new: str) -> None:
        self.python, self.minor, self.address, self.last, self.new = python, minor, address, last, new
        self.old = minor < 10  # newer releases of pip do not install into it: its own does

    def pip(self, *words: str) -> str:
        which = ["-m", "pip"] if self.old else ["-m", "pip", "--python", self.own]
        python = self.own if self.old else environment("release")
        return run(python, *which, *words, PIP_DISABLE_PIP_VERSION_CHECK="1")

    def said(self, *words: str) -> str:
        return run(os.path.join(os.path.dirname(self.own), "gdbext"), *words, cwd=self.folder, HOME=self.folder)

    def install(self, *words: str) -> None:
        self.pip("install", "--isolated", "--no-cache-dir", "--index-url", self.address, *words)

    def expect(self, what: str, seen: str, wanted: str) -> None:
        if wanted not in seen:
            raise Failed(f"{what}: {wanted!r} is not in {seen.strip()[-300:]!r}")

    def dump(self) -> None:
        """The function in which a process of this Python waits."""
        with subprocess.Popen([self.own, "-c", SUBJECT], stdout=subprocess.PIPE, text=True) as process:
            try:
                process.stdout.readline()  # type: ignore[union-attr]
                self.expect("gdbext dump", self.said("dump", "--pid", str(process.pid)), "waits_for_the_release")
            finally:
                process.kill()

    def __call__(self) -> None:
        with tempfile.TemporaryDirectory(prefix="gdbext-release-") as self.folder:
            venv = os.path.join(self.folder, "venv")
            run(self.python, "-m", "venv", *([] if self.old else ["--without-pip"]), venv)
            self.own = os.path.join(venv, "bin", "python")
            before = files_of(venv)
            self.install(f"gdbext=={self.last}")
            self.expect("gdbext --version", self.said("--version"), self.last)
            self.install("--upgrade", "gdbext")
            self.expect("after the upgrade", self.said("--version"), self.new)
            if self.minor >= 9:  # the oldest that is read
                self.dump()
            init = os.path.join(self.folder, "gdbinit")
            self.said("install", "--no-wheels", "--gdbinit", init)
            self.said("uninstall", "--no-wheels", "--gdbinit", init)
            self.pip("uninstall", "-y", "gdbext")
            left = files_of(venv) - before
            if left:
                raise Failed(f"pip uninstall left {sorted(left)[:5]}")


def sdist_tests(files: str, version: str, folder: str) -> None:
    """The sdist's own scripts/test."""
    run("tar", "xzf", os.path.join(files, f"gdbext-{version}.tar.gz"), "-C", folder)
    tree = os.path.join(folder, f"gdbext-{version}")
    said = run(os.path.join(tree, "scripts", "test"), "unit", "-k", SDIST_TESTS, cwd=tree)
    say(f"sdist: {said.strip().splitlines()[-1]}")


def rehearse(pythons: list[str]) -> int:
    tags = run("git", "tag", "--list", "v*", "--sort=-v:refname", "--no-contains", "HEAD").split()
    if not tags:
        raise Failed("no release has a tag here: git fetch --tags")
    found = {python: python for python in pythons} if pythons else find_pythons((3, 8), more=fetched_pythons())
    failed = 0
    with tempfile.TemporaryDirectory(prefix="gdbext-release-") as folder:
        files = os.path.join(folder, "files")
        last = built(exported(tags[0], os.path.join(folder, "last")), files)
        tree = exported("HEAD", os.path.join(folder, "next"))
        new = as_next(tree, last)
        built(tree, files, ADDRESS, pyz=True)
        for name in sorted(os.listdir(files)):
            say(f"{name}: {os.path.getsize(os.path.join(files, name)):,} bytes")
        steps = [("sdist", lambda: sdist_tests(files, new, folder))] if not pythons else []
        with index(files) as address:
            for python in found.values():
                said = run(python, "-c", "import sys; print(*sys.version_info[:2])").split()
                one = Rehearsal(python, int(said[1]), address, last, new)
                steps.append((f"Python {'.'.join(said)}: {last} -> {new} -> none", one))
            for name, step in steps:
                try:
                    step()
                    say(f"ok      {name}")
                except Failed as e:
                    failed += 1
                    say(f"FAILED  {name}: {e}")
    say(f"{len(steps) - failed} of {len(steps)} went well")
    return 1 if failed else 0


def files(out: str) -> int:
    with tempfile.TemporaryDirectory(prefix="gdbext-release-") as folder:
        made = os.path.join(folder, "files")
        version = built(exported("HEAD", os.path.join(folder, "tree")), made, os.environ.get("GDBEXT_HOME_URL", ""), pyz=True)
        os.makedirs(out, exist_ok=True)
        for name in sorted(os.listdir(made)):
            shutil.copy(os.path.join(made, name), out)
            say(os.path.join(out, name))
    say(f"gdbext {version}")
    return 0


def main(words: list[str]) -> int:
    if words[:1] == ["rehearse"]:
        return rehearse(words[1:])
    if words[:1] == ["files"] and len(words) <= 2:
        return files(words[1] if len(words) == 2 else os.path.join(ROOT, "dist"))
    print((__doc__ or "").strip())
    return 0 if words and words[0] in ("-h", "--help") else 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as e:
        sys.exit(f"release: {e}")
