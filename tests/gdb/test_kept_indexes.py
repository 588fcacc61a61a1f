"""llm-attach has gdb keep its indexes of debug information (control/index_cache.py)."""

import os

from harness.gdb_run import run_gdb
from harness.heartbeats import heartbeats


def test_a_second_attach_reads_indexes_and_a_damaged_one_is_made_again(gdb_path, tmp_path):
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "GDBEXT_LOG": "debug"}
    with heartbeats(tmp_path, 1) as (one,):

        def attach(before=()):
            asked = ["info address PyObject_Repr", "info symbol malloc", "show index-cache enabled", "show index-cache directory"]
            run = run_gdb(gdb_path, [*before, f"llm-attach {one.pid}", *asked, "llm-detach"], env=env)
            return run, run.outputs[-5:-1]

        _, said = attach()
        folders = list((tmp_path / "cache" / "gdbext" / "gdb-index").iterdir())
        kept = [path for folder in folders for path in folder.glob("*.gdb-index")]
        if not kept:  # no debug information here, or a gdb that keeps none
            assert "index" not in said[0]
            return
        assert all(path.with_name(path.name + ".sum").exists() for path in kept)
        _, said_again = attach()
        assert said_again == said and "off" in said[2] and "gdb-index" not in said[3]  # the user's own settings are back
        before = {path: (path.stat().st_ino, path.read_bytes()) for path in kept}
        assert before.keys() == {path for folder in folders for path in folder.glob("*.gdb-index")}
        damaged = kept[0]
        with open(damaged, "r+b") as f:
            f.seek(len(before[damaged][1]) // 2)
            f.write(bytes(b ^ 255 for b in before[damaged][1][f.tell() : f.tell() + 64]))
        mended, said_then = attach()
        assert said_then == said and f"the index {damaged}: made again: it is damaged" in mended.text
        assert damaged.stat().st_ino != before[damaged][0] or damaged.read_bytes() == before[damaged][1]
        assert {path: path.read_bytes() for path in kept} == {path: data for path, (_, data) in before.items()}
        own = tmp_path / "own"
        mine, _ = attach([f"set index-cache directory {own}", "set index-cache enabled on"])
        assert "gdb's own index cache is on" in mine.text
        assert os.path.isdir(own) and any(own.iterdir())
