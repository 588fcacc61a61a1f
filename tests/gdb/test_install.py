"""Set-up against real gdbs: the load line in an init file, gdbinit.d/gdbext.gdb, a gdb without Python, gdb started from
outside."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from importlib import metadata

import pytest
from harness.subjects import spawned

from gdbext import __version__
from gdbext.setup import gdbs, initfile, outside

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, "gdbinit.d", "gdbext.gdb")


def run(argv, home=None, cwd=None, **env):
    own = {}
    if home:  # with no GDBEXT_DATA: what other tests use must outlive an uninstall here
        own = {
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_DATA_HOME": str(home / "data"),
            "GDBEXT_DATA": "",
        }
    environ = {**os.environ, "PYTHONPATH": ROOT, **own, **env}
    return subprocess.run(
        [str(a) for a in argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=cwd, env=environ, timeout=300
    )


def gdbext(*words, home=None, **env):
    return run([sys.executable, "-m", "gdbext", *words], home, ROOT, **env)


@pytest.fixture(scope="session")
def gdb_without_python(tmp_path_factory):
    """Debian's gdb-minimal, unpacked into a folder of its own."""
    folder = tmp_path_factory.mktemp("minimal")
    if not shutil.which("apt-get") or run(["apt-get", "download", "gdb-minimal"], cwd=folder).returncode:
        pytest.skip("no package gdb-minimal to be had here")
    package = next(folder.glob("*.deb"))
    assert run(["dpkg", "-x", package, folder / "root"]).returncode == 0
    gdb = folder / "root" / "usr" / "bin" / "gdb"
    if run([gdb, "--version"]).returncode:
        pytest.skip("gdb-minimal does not start here: " + run([gdb, "--version"]).stderr.strip())
    return str(gdb)


def test_install_gives_a_plain_gdb_the_commands_uninstall_undoes_it(gdb_path, tmp_path):
    before = b"set width 0\nset pagination off"
    (tmp_path / ".gdbinit").write_bytes(before)
    said = gdbext("install", "--no-wheels", home=tmp_path)
    assert said.returncode == 0 and f"has the line now that loads {os.path.join(ROOT, 'gdbext')} in gdb" in said.stdout, (
        said.stdout
    )
    inside = (tmp_path / ".gdbinit").read_bytes()
    assert inside.startswith(before) and (tmp_path / ".cuda-gdbinit").exists()
    said = run([gdb_path, "-q", "-batch", "-ex", "help llm-ranks"], tmp_path)
    assert "llm-ranks" in said.stdout and not said.stderr
    assert gdbext("install", "--no-wheels", home=tmp_path).returncode == 0
    assert (tmp_path / ".gdbinit").read_bytes() == inside
    kept = tmp_path / "data" / "gdbext"
    (kept / "gdb-python-3.99-x86_64").mkdir(parents=True)
    assert gdbext("uninstall", home=tmp_path).returncode == 0 and not kept.exists()
    assert (tmp_path / ".gdbinit").read_bytes() == before and not (tmp_path / ".cuda-gdbinit").exists()
    assert "Undefined command" in run([gdb_path, "-q", "-batch", "-ex", "help llm-ranks"], tmp_path).stderr


def test_a_chosen_file_alone_is_written(tmp_path):
    target = tmp_path / "elsewhere" / "init.gdb"
    said = gdbext("install", "--no-wheels", "--gdbinit", str(target), "--json", home=tmp_path)
    assert said.returncode == 0 and json.loads(said.stdout)["files"] == [{"program": "gdb", "path": str(target), "changed": True}]
    assert target.exists() and not (tmp_path / ".gdbinit").exists()
    assert gdbext("uninstall", "--gdbinit", str(target), home=tmp_path).returncode == 0 and not target.exists()


def test_a_folder_with_blanks_in_its_name_loads(gdb_path, tmp_path):
    """A clone or a home folder may be called anything but a line break."""
    clone = tmp_path / "my clone 'x'"
    clone.mkdir()
    os.symlink(os.path.join(ROOT, "gdbext"), clone / "gdbext")
    shutil.copytree(os.path.join(ROOT, "gdbinit.d"), clone / "gdbinit.d")
    said = run([gdb_path, "-nx", "-q", "-batch", "-ex", f"source {clone}/gdbinit.d/gdbext.gdb", "-ex", "help llm-ranks"])
    assert "llm-ranks" in said.stdout and not said.stderr


def test_the_gdb_script_finds_the_pack_from_anywhere(gdb_path, tmp_path):
    for how in (SCRIPT, os.path.relpath(SCRIPT, tmp_path)):
        said = run([gdb_path, "-nx", "-q", "-batch", "-ex", f"source {how}", "-ex", "help llm-ranks"], cwd=tmp_path)
        assert "llm-ranks" in said.stdout and not said.stderr
    said = run([gdb_path, "-nx", "-q", "-batch", "-x", SCRIPT, "-ex", "help llm-ranks"], cwd=tmp_path)
    assert "llm-ranks" in said.stdout and not said.stderr


def test_a_copy_of_the_gdb_script_names_what_it_misses_or_finds_it(gdb_path, tmp_path):
    copy = tmp_path / "a" / "gdbext.gdb"
    copy.parent.mkdir()
    shutil.copy(SCRIPT, copy)
    said = run([gdb_path, "-nx", "-q", "-batch", "-ex", f"source {copy}", "-ex", "help llm-ranks"])
    assert "GDBEXT_HOME" in said.stdout and "Traceback" not in said.stdout + said.stderr
    said = run([gdb_path, "-nx", "-q", "-batch", "-ex", f"source {copy}", "-ex", "help llm-ranks"], GDBEXT_HOME=ROOT)
    assert "GDBEXT_HOME" not in said.stdout and "llm-ranks" in said.stdout


def test_a_gdb_without_python_says_so_in_one_line(gdb_without_python, tmp_path):
    said = run([gdb_without_python, "-nx", "-q", "-batch", "-ex", f"source {SCRIPT}", "-ex", "echo alive\\n"])
    line, alive = said.stdout.splitlines()
    assert "built without Python" in line and alive == "alive" and not said.stderr
    said = run([gdb_without_python, "-nx", "-q", "-batch", "-ex", f"source {ROOT}/gdbext/init.py"])
    assert said.stderr.count("Python scripting is not supported") == 1 and "Undefined" not in said.stderr
    assert gdbext("install", "--no-wheels", home=tmp_path).returncode == 0
    said = run([gdb_without_python, "-q", "-batch", "-ex", "echo alive\\n"], tmp_path)
    assert said.stdout.count("\n") == 2 and "built without Python" in said.stdout and not said.stderr


def test_where_the_pack_is_gone_gdb_says_so_in_one_line_and_reads_on(gdb_path, tmp_path):
    for name in ("init.py", 'a name\'s "quotes" {x} %s.py'):
        path = str(tmp_path / "gone" / name)
        (tmp_path / ".gdbinit").write_bytes(initfile.add_block(None, initfile.load_script(path)) + b"echo after\\n\n")
        said = run([gdb_path, "-q", "-batch", "-ex", "echo alive\\n"], tmp_path)
        line, *rest = said.stdout.splitlines()
        assert line.startswith(f"gdbext: {path} is gone") and rest == ["after", "alive"] and not said.stderr, said


def test_the_doctor_fails_for_a_gdb_without_python_and_helps(gdb_without_python, tmp_path):
    said = gdbext("doctor", "--gdb", gdb_without_python, "--json", home=tmp_path)
    assert said.returncode == 1
    answer = json.loads(said.stdout)
    found = [c for c in answer["checks"] if c["status"] == "failed" and "without Python" in c["detail"]]
    assert not answer["ok"] and "apt-get install gdb" in found[0]["mend"]
    said = gdbext("install", "--gdb", gdb_without_python, "--wheels-only", home=tmp_path)
    assert said.returncode == 3 and "without Python" in said.stdout


def test_the_doctor_tells_the_truth_of_this_machine(gdb_path, tmp_path):
    said = gdbext("doctor", "--gdb", gdb_path, "--json", home=tmp_path)
    checks = {c["name"]: c for c in json.loads(said.stdout)["checks"]}
    truth = run(
        [gdb_path, "-nx", "-q", "-batch", "-ex", "python import sys; print(*sys.version_info[:2], sep='.')"]
    ).stdout.strip()
    assert f"with Python {truth}" in checks["gdb"]["detail"]
    assert checks["gdbext"]["detail"].startswith(__version__ + ",") and os.uname().release in checks["system"]["detail"]
    for package in ("numpy", "pygments", "matplotlib"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            assert f"{package} {metadata.version(package)}" in checks["packages"]["detail"]
    assert checks["gdb loads gdbext"]["status"] == "ok", checks["gdb loads gdbext"]
    with spawned([sys.executable, "-c", "import time; time.sleep(300)"]) as subject:
        attached = run([gdb_path, "-nx", "-q", "-batch", "-p", subject.pid, "-ex", "info inferiors"])
        assert (checks["attach"]["status"] == "ok") == (f"process {subject.pid}" in attached.stdout)
    assert said.returncode == (1 if any(c["status"] == "failed" for c in checks.values()) else 0)


def test_a_gdb_that_is_not_there_or_does_not_run_is_one_line(tmp_path):
    broken = tmp_path / "gdb"
    broken.write_text("#!/nowhere/at/all\n")
    broken.chmod(0o755)
    for name in ("no-such-gdb", str(broken)):
        said = gdbext("install", "--gdb", name, "--wheels-only", home=tmp_path)
        assert said.returncode in (1, 3) and name in said.stdout + said.stderr
        assert "Traceback" not in said.stderr and len((said.stdout + said.stderr).splitlines()) == 1


def test_the_wheels_are_for_gdbs_own_python_and_gdb_finds_them(gdb_path, tmp_path):
    home = tmp_path
    said = gdbext("install", "--gdb", gdb_path, "--json", home=home)
    assert said.returncode in (0, 3), said.stdout + said.stderr
    wheels = json.loads(said.stdout)["wheels"][0]
    assert "numpy" not in wheels["missing"] and wheels["folder"].startswith(str(home))
    asked = run([gdb_path, "-q", "-batch", "-ex", "python import sys, numpy; print(numpy.__file__, sys.path[-1])"], home)
    where, last = asked.stdout.split()
    assert where.startswith(wheels["folder"]) and last == wheels["folder"]
    assert gdbext("uninstall", home=home).returncode == 0 and not os.path.exists(wheels["folder"])


def test_commands_run_outside_gdb_with_status_and_json():
    said = gdbext("llm-ranks", "--json")
    assert said.returncode in (0, 3) and json.loads(said.stdout)["schema"] == "llm-ranks/1"
    for words in (["pybt", "-on", "999999999", "--json"], ["nonsense", "--json"], ["pybt", "-nonsense", "-json"]):
        said = gdbext(*words)
        answer = json.loads(said.stdout)
        assert said.returncode == 1 and answer["schema"] == words[0] + "/1" and answer["error"] and not said.stderr
    said = gdbext("pybt", "-on", "999999999")
    assert said.returncode == 1 and not said.stdout and len(said.stderr.splitlines()) == 1


def test_a_command_that_needs_gdb_is_run_in_one_and_its_error_comes_back(gdb_path):
    path = os.path.dirname(gdb_path) + ":" + os.environ["PATH"]
    said = gdbext("pybt", "--json", PATH=path)
    assert said.returncode == 1 and "no process is selected" in json.loads(said.stdout)["error"]
    said = gdbext("pybt", PATH=path)
    assert said.returncode == 1 and said.stderr.startswith("pybt: no process is selected") and not said.stdout


def test_a_python_process_is_read_from_outside_by_its_pid():
    with spawned(
        [sys.executable, "-c", "import time\ndef lonely():\n    print('up', flush=True)\n    time.sleep(300)\nlonely()"],
        ready="up",
    ) as subject:
        said = gdbext("pybt", "-on", str(subject.pid), "--json")
        answer = json.loads(said.stdout)
        assert said.returncode == 0 and answer["partial"] == ["unstopped"], answer  # it ran, and nothing is missing
        assert [f["function"] for f in answer["threads"][0]["frames"]] == ["lonely", "<module>"]


def test_an_installed_package_loads_in_gdb_and_has_its_data(gdb_path, tmp_path):
    """pip install, without the network: the layouts and the gdb script come along."""
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".git", "build", "*.egg-info", "__pycache__", "tests"))
    target = tmp_path / "target"
    made = run([sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", target, source])
    assert made.returncode == 0, made.stderr
    for folder, _, names in os.walk(os.path.join(ROOT, "gdbext", "layouts")):
        for name in (n for n in names if n.endswith(".json")):
            assert (target / os.path.relpath(os.path.join(folder, name), ROOT)).exists(), name
    said = run(
        [
            gdb_path,
            "-nx",
            "-q",
            "-batch",
            "-ex",
            f"source {target}/gdbext/gdbinit/gdbext.gdb",
            "-ex",
            "help llm-ranks",
            "-ex",
            "python import gdbext; print(gdbext.__file__)",
        ],
        PYTHONPATH="",
    )
    assert "llm-ranks" in said.stdout and str(target) in said.stdout and not said.stderr
    assert run([target / "bin" / "gdbext", "--version"], PYTHONPATH=str(target)).stdout.startswith("gdbext ")


def test_the_home_of_an_unpacked_interpreter_is_not_that_of_gdbs_python(gdb_path, monkeypatch, tmp_path):
    """One that was unpacked somewhere is told by PYTHONHOME where its library lies; gdb's Python is another one."""
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))
    assert gdbs.ask(gdb_path).python is not None
    status, out, _ = outside.in_gdb("llm-kernels", "-json", gdb_path)
    assert status in (0, 1, 3) and out.startswith("{"), out
    assert os.environ["PYTHONHOME"] == str(tmp_path), "for our own interpreters it is as before"
