"""A torch that the table does not know: its row is made from the headers beside its libtorch, equals the table's, and is kept."""

import json
import os
import shutil
import subprocess
import time

import pytest

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import LayoutError
from gdbext.torch import headers, layout


@pytest.fixture(scope="module")
def target(torch_python):
    process = subprocess.Popen(
        [torch_python, "-c", "import torch, time; print('ready', flush=True); time.sleep(600)"], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"ready\n"
        found = ProcTarget(process.pid)
        yield found
        found.close()
    finally:
        process.kill()
        process.communicate()


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


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++ here")
def test_headers_that_do_not_compile_are_told_in_one_line(target, unknown, monkeypatch, tmp_path):
    include = tmp_path / "include"
    os.makedirs(include / "c10" / "core")
    (include / "c10" / "core" / "TensorImpl.h").write_text("#error broken \n")
    monkeypatch.setattr(headers, "_folder", lambda *a: str(include))
    with pytest.raises(LayoutError, match="failed on the probe of torch's headers") as e:
        layout.for_process(target, open_runtime(target))
    assert "\n" not in str(e.value)
