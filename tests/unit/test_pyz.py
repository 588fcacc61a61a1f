"""gdbext.pyz: the same sources make the same bytes, it runs by itself, and unpacks for gdb only where nobody else writes."""

import os
import subprocess
import sys
import zipfile

import pytest
from harness.gdb_run import ROOT

from gdbext.errors import GdbextError
from gdbext.setup import unpack

MAKE = os.path.join(ROOT, "scripts", "make-pyz")


@pytest.fixture(scope="module")
def pyz(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("pyz") / "gdbext.pyz")
    subprocess.run([sys.executable, MAKE, path], check=True, stdout=subprocess.DEVNULL)
    return path


def asked(pyz, *words, env=None):
    """It alone: no site packages, no variables, no folder of ours."""
    command = [sys.executable, "-I", "-S", pyz, *words]
    return subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, timeout=120)


def test_the_same_sources_make_the_same_bytes(pyz, tmp_path):
    again = str(tmp_path / "again.pyz")
    subprocess.run(["sh", "-c", 'umask 077; exec "$@"', "sh", sys.executable, MAKE, again], check=True, stdout=subprocess.DEVNULL)
    with open(pyz, "rb") as one, open(again, "rb") as other:
        made = one.read()
        assert made == other.read()
    assert len(made) < 5_500_000
    subprocess.run([sys.executable, MAKE, again, "none"], check=True, stdout=subprocess.DEVNULL)
    assert os.path.getsize(again) < 2_100_000


@pytest.mark.skipif(sys.version_info < (3, 10), reason="its importer takes no bytecode there")
def test_modules_come_from_the_bytecode_of_this_interpreter_alone(pyz, tmp_path):
    tag = sys.implementation.cache_tag

    def changed(name, **others):
        path = str(tmp_path / name)
        with zipfile.ZipFile(pyz) as old, zipfile.ZipFile(path, "w") as new:
            for entry in old.infolist():
                content = old.read(entry)
                if entry.filename == "gdbext/errors.py":
                    content = b"raise SystemExit('compiled anew')"
                if others.get("spoilt") and entry.filename == f"bytecode/{tag}/gdbext/errors.pyc":
                    content = b"\0" * 4 + content[4:]
                new.writestr(entry, content)
        return path

    assert asked(changed("fine"), "--version").stdout.startswith("gdbext ")
    assert "compiled anew" in asked(changed("spoilt", spoilt=True), "--version").stderr
    said = asked(pyz, "pybt", "-on", "no-such-label")
    assert said.returncode == 1 and "Traceback" not in said.stderr


def test_it_unpacks_into_its_own_folder_and_again_after_a_change(pyz, tmp_path):
    env = {"TMPDIR": str(tmp_path)}
    first = asked(pyz, "gdb", env=env)
    assert (first.returncode, first.stderr) == (0, "")
    script = first.stdout.split("source ")[1].strip()
    folder = str(tmp_path / f"gdbext-{os.geteuid()}")
    assert script.startswith(folder + "/") and os.stat(folder).st_mode & 0o7777 == 0o700
    with zipfile.ZipFile(pyz) as archive:
        names = [name for name in archive.namelist() if name.startswith("gdbext/")]
        assert len(names) > 300 and "gdbext/gdbinit/gdbext.gdb" in names
        unpacked = os.path.dirname(os.path.dirname(script))
        for name in names:
            with open(os.path.join(unpacked, name), "rb") as f:
                assert f.read() == archive.read(name), name
    with open(script, "a") as f:
        f.write("changed\n")
    os.unlink(os.path.join(os.path.dirname(script), "errors.py"))
    assert asked(pyz, "gdb", env=env).stdout == first.stdout
    with open(script) as f:
        assert "changed" not in f.read()
    assert os.path.exists(os.path.join(os.path.dirname(script), "errors.py"))


def test_a_place_that_others_can_reach_is_refused_and_nothing_is_written(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    (tmp_path / "file").write_text("")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    for place in ("link", "open", "file", "shared/mine"):
        with pytest.raises(GdbextError, match="name a folder: python3 gdbext.pyz gdb DIR"):
            unpack.private_folder(str(tmp_path / place))
    assert not os.listdir(tmp_path / "real") and not os.listdir(tmp_path / "shared")
    (tmp_path / "shared").chmod(0o1777)  # as /tmp is
    assert os.path.isdir(unpack.private_folder(str(tmp_path / "shared" / "mine")))


def test_an_older_python_is_told_in_one_line(pyz):
    with zipfile.ZipFile(pyz) as archive:
        start = archive.read("__main__.py").decode()
    code = "import sys; sys.version_info = (3, 7, 1); sys.version = '3.7.1 (old)'\n" + start
    told = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (1, "gdbext needs Python 3.8 or newer, this is 3.7.1\n")
