"""What people install: the wheel, the source distribution and gdbext.pyz, each in an environment with nothing else."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from harness.gdb_run import ROOT
from harness.subjects import spawned

BUILD = "import sys; from setuptools import build_meta as b; getattr(b, 'build_' + sys.argv[2])(sys.argv[1])"
WAITING = "import json, time\nwanted = {'list': [1, 2, 3]}\nprint('{}', flush=True)\ntime.sleep(600)\n"


def build(source, out, kind):
    """The path of what the build backend that pyproject.toml names makes of a copy of the sources: it writes beside them."""
    out.mkdir()
    subprocess.run([sys.executable, "-c", BUILD, str(out), kind], cwd=str(source), check=True, capture_output=True)
    return str(next(out.iterdir()))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """{"sdist": path, "wheel": path of one made of it, "pyz": path}"""
    for backend in ("setuptools", "wheel"):
        pytest.importorskip(backend, reason=f"this Python has no {backend} to build with")
    folder = tmp_path_factory.mktemp("packages")
    source, unpacked = folder / "source", folder / "unpacked"
    for name in ("gdbext", "gdbinit.d", "docs"):
        shutil.copytree(os.path.join(ROOT, name), str(source / name), ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(os.path.join(ROOT, name), str(source / name))
    found = {"sdist": build(source, folder / "sdist", "sdist"), "pyz": str(folder / "gdbext.pyz")}
    with tarfile.open(found["sdist"]) as archive:
        archive.extractall(str(unpacked))
    found["wheel"] = build(next(unpacked.iterdir()), folder / "wheel", "wheel")
    make = [sys.executable, os.path.join(ROOT, "scripts", "make-pyz"), found["pyz"]]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    return found


def contents(path):
    """{name: bytes} of the pack's own files in an archive."""
    with zipfile.ZipFile(path) as archive:
        return {n: archive.read(n) for n in archive.namelist() if n.startswith("gdbext/")}


def test_a_wheel_of_the_sdist_holds_all_that_the_archive_holds(built):
    whole = contents(built["pyz"])
    assert len(whole) > 300 and contents(built["wheel"]) == whole


def test_an_empty_environment_has_the_program_its_version_and_its_man_page(built, tmp_path):
    env = str(tmp_path / "env")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
    install = [sys.executable, "-m", "pip", "--python", env + "/bin/python", "install", "-q", "--no-index", built["wheel"]]
    clean = {"PATH": "/usr/bin:/bin"}
    subprocess.run(install, check=True, capture_output=True, env=clean)
    said = subprocess.run([env + "/bin/gdbext", "--version"], env=clean, cwd="/", capture_output=True, text=True, check=True)
    version = said.stdout.split()[1]
    assert f"gdbext-{version}-" in built["wheel"] and f"gdbext-{version}.tar" in built["sdist"]
    with open(env + "/share/man/man1/gdbext.1", encoding="utf-8") as f:
        text = f.read()
    assert f'"gdbext {version}"' in text and ".SS llm\\-hang\n" in text
    source = subprocess.run([env + "/bin/gdbext", "gdb"], env=clean, cwd="/", capture_output=True, text=True, check=True).stdout
    script = source.split("source ")[1].strip()
    assert script.startswith(env) and os.path.exists(script)


@pytest.fixture(scope="module")
def subject():
    with spawned([sys.executable, "-c", WAITING], ready="{") as process:
        yield process


def ask(python, pyz, *words):
    command = [python, "-S", pyz, *words, "--json"]
    done = subprocess.run(command, cwd="/", env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 3) and not done.stderr, done.stderr + done.stdout
    return json.loads(done.stdout)


def test_the_archive_reads_a_process_with_the_oldest_and_the_newest_python(built, subject, pythons, tmp_path):
    for number, python in enumerate(dict.fromkeys((pythons[0], pythons[-1]))):
        stacks = ask(python, built["pyz"], "llm-stacks", str(subject.pid))
        functions = [f["function"] for group in stacks["groups"] for f in group["frames"]]
        assert "<module>" in functions and stacks["ranks_read"] == 1, (python, functions)
        assert ask(python, built["pyz"], "pyprint", "-on", str(subject.pid), "wanted")["repr"] == "{'list': [1, 2, 3]}", python
        if number == 0:  # the rest of what reads, once
            file = str(tmp_path / "snapshot")
            assert ask(python, built["pyz"], "llm-snapshot", str(subject.pid), "-o", file)["snapshots"][0]["file"] == file
            assert ask(python, built["pyz"], "llm-hang", str(subject.pid))["verdict"] in ("idle", "unknown")


def test_the_archive_records_with_the_oldest_and_the_newest_python(built, subject, pythons, tmp_path):
    pythons = [pythons[0], pythons[-1]]
    for number, python in enumerate(pythons):
        file = str(tmp_path / f"{number}.record")
        said = ask(python, built["pyz"], "llm-record", "-for", "0.3", "-o", file, str(subject.pid))
        assert said["samples"] and said["functions"][0]["function"].startswith("<module>"), python
        (row,) = ask(python, built["pyz"], "llm-top", "-once", "-interval", "0.2", str(subject.pid))["ranks"]
        assert (row["pid"], row["function"]) == (subject.pid, "<module>"), python
    for number, python in enumerate(pythons):  # what one has written the others read
        file = str(tmp_path / f"{len(pythons) - 1 - number}.record")
        assert ask(python, built["pyz"], "llm-record", "-read", file)["processes"][0]["pid"] == subject.pid, python


def test_gdb_sources_what_the_archive_unpacks(built, gdb, subject, tmp_path):
    done = subprocess.run(
        [sys.executable, "-I", "-S", built["pyz"], "gdb", str(tmp_path / "mine")], capture_output=True, text=True
    )
    line = done.stdout.strip()
    assert done.returncode == 0 and line.startswith(f"source {tmp_path}/mine/"), done.stderr
    said = gdb([line, f"pyprint -on {subject.pid} wanted"], load=False)
    assert "{'list': [1, 2, 3]}" in said.outputs[1], said.text
