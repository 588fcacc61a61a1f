"""scripts/try-newest: what it says a newest release has lost. The network is not asked here."""

import os

import pytest
from harness.gdb_run import ROOT
from tools import try_newest
from tools.say import Failed


def test_a_name_that_a_release_lost_is_told_with_its_place(tmp_path):
    reader, before, now = (tmp_path / name for name in ("reader", "before", "now"))
    for folder in (reader, before, now):
        folder.mkdir()
    (reader / "kv.py").write_text(
        '"""a docstring with free_blocks"""\nX = "pool.free_blocks"\nY = ("num_free", "not_of_theirs")\n'
    )
    (before / "pool.py").write_text("class P:\n    free_blocks = num_free = pool = 1\n")
    (now / "pool.py").write_text("class P:\n    free_list = num_free = pool = 1\n")
    words = try_newest.used(str(reader))
    assert set(words) == {"pool", "free_blocks", "num_free", "not_of_theirs"}
    gone = try_newest.lost(words, *map(try_newest.names, map(str, (before, now))))
    assert list(gone) == ["free_blocks"] and gone["free_blocks"][0].endswith("kv.py:2")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_release_that_the_tests_run_is_known_to_its_reader(engine):
    assert try_newest.tested(engine).count(".") >= 1
    assert len(try_newest.used(os.path.join(ROOT, "gdbext", "engines", engine))) > 200


def test_a_release_that_cannot_be_had_is_no_success(monkeypatch):
    def fails(package):
        raise Failed(f"{package}: no network")

    monkeypatch.setattr(try_newest, "newest", fails)
    assert try_newest.main(["vllm"]) == try_newest.NOT_HAD
    with pytest.raises(Failed, match="none of vllm, sglang, torch, cpython"):
        try_newest.main(["nothing"])


def test_a_torch_without_a_row_is_told(monkeypatch):
    monkeypatch.setattr(try_newest, "newest", lambda package: "9.9.0")
    assert try_newest.main(["torch"]) == try_newest.DOES_NOT
    monkeypatch.setattr(try_newest, "newest", lambda package: "2.13.0")
    assert try_newest.main(["torch"]) == try_newest.FITS
