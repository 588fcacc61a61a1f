"""A torch that the table does not know: its row is made from the headers beside its libtorch, equals the table's, and is kept."""

import json
import os
import shutil
import time

import pytest
from harness.subjects import spawned

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import LayoutError
from gdbext.torch import headers, layout


@pytest.fixture(scope="module")
def target(torch_python):
    with spawned(
        [torch_python, "-c", "import torch, time; print('ready', flush=True); time.sleep(600)"], ready="ready"
    ) as process:
        found = ProcTarget(process.pid)
        yield found
        found.close()


@pytest.fixture
def unknown(target, monkeypatch, tmp_path):
    """-> (version, the table's row): this torch's minor is not in the table, and nothing is kept yet."""
    version = layout.torch_version(target, open_runtime(target))
    row = layout._rows()[layout.minor_of(version)]
    monkeypatch.setattr(layout, "_loaded", {k: v for k, v in layout._rows().items() if v is not row})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    target.invalidate()
    return version, row


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++ here")
def test_the_row_made_from_its_own_headers_is_the_tables_and_is_kept(target, unknown, tmp_path, monkeypatch):
    version, row = unknown
    made = layout.for_process(target, open_runtime(target))
    assert made.minor == layout.minor_of(version)
    wanted = {k: v for k, v in row.items() if k not in ("release", "from")}
    assert json.loads(json.dumps(made.row)) == json.loads(json.dumps(wanted))
    (kept,) = (tmp_path / "gdbext" / "torch-rows").iterdir()
    assert kept.stem in {m.build_id for m in target.modules() if m.name == "libtorch_cpu.so"}
    before = kept.stat().st_mtime_ns
    time.sleep(0.01)
    monkeypatch.setattr(headers, "make_row", None)  # the second time nothing is compiled
    target.invalidate()
    assert layout.for_process(target, open_runtime(target)).row == made.row and kept.stat().st_mtime_ns == before


def test_without_a_compiler_it_is_refused_by_name_with_what_is_missing(target, unknown, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LayoutError, match=r"torch \S+ has no layout here .*needs g\+\+ and gdb; make it with") as e:
        layout.for_process(target, open_runtime(target))
    assert "\n" not in str(e.value)


def made_headers(folder, text):
    """An include folder whose TensorImpl.h is `text`."""
    core = folder / "include" / "c10" / "core"
    os.makedirs(core)
    (core / "TensorImpl.h").write_text(text)
    return folder / "include"


def beside(monkeypatch, include):
    """The process's libtorch seems to have `include` beside it."""
    real = headers._beside

    def found(target, is_it, wanted, file):
        own = real(target, is_it, wanted, file)
        return (str(include), own[1]) if wanted == "include" else own

    monkeypatch.setattr(headers, "_beside", found)


STRANGERS = {
    "a header that anybody may write": lambda include: os.chmod(include / "c10/core/TensorImpl.h", 0o666),
    "a folder that anybody may write": lambda include: os.chmod(include / "c10", 0o777),
    "a folder above": lambda include: os.chmod(include.parent, 0o777),
    "a link": lambda include: (include / "x.h").symlink_to("/etc/hostname"),
    "another user's header": lambda include: os.chown(include / "c10/core/TensorImpl.h", 65534, 65534),
}


@pytest.mark.parametrize("what", STRANGERS)
def test_headers_that_somebody_else_may_have_written_are_not_compiled(what, target, unknown, monkeypatch, tmp_path):
    if what.startswith("another") and os.geteuid():
        pytest.skip("only root gives files away")
    include, ran = made_headers(tmp_path, '#include "/etc/passwd"\n'), []

    def run(words):
        ran.append(words)
        raise LayoutError("it ran")

    STRANGERS[what](include)
    beside(monkeypatch, include)
    monkeypatch.setattr(headers, "run", run)
    with pytest.raises(LayoutError, match="its own headers are not compiled, because .*: where you trust them, start with") as e:
        layout.for_process(target, open_runtime(target))
    assert ran == [] and "\n" not in str(e.value) and f"{headers.TRUSTED}={include}" in str(e.value)
    if shutil.which("g++"):
        monkeypatch.setenv(headers.TRUSTED, f"/nowhere:{tmp_path}")
        target.invalidate()
        with pytest.raises(LayoutError, match="it ran"):
            layout.for_process(target, open_runtime(target))


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++ here")
def test_a_header_that_never_ends_does(target, unknown, monkeypatch, tmp_path):
    include = made_headers(tmp_path, f'#include "{tmp_path}/fifo"\n')
    os.mkfifo(tmp_path / "fifo", 0o600)
    beside(monkeypatch, include)
    monkeypatch.setattr(headers, "SECONDS", 2)
    with pytest.raises(LayoutError, match=r"g\+\+ did not end in 2 s"):
        layout.for_process(target, open_runtime(target))
    with pytest.raises(OSError):  # nobody reads the FIFO any more
        os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++ here")
def test_headers_that_do_not_compile_are_told_in_one_line(target, unknown, monkeypatch, tmp_path):
    beside(monkeypatch, made_headers(tmp_path, "#error broken\n"))
    with pytest.raises(LayoutError, match="failed on the probe of torch's headers") as e:
        layout.for_process(target, open_runtime(target))
    assert "\n" not in str(e.value)
