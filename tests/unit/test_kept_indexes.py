"""gdb's indexes between gdbs: only one that its sum vouches for is left for gdb to read. gdb's part is played here by a file."""

import os

import pytest

from gdbext.access import kept_indexes
from gdbext.errors import GdbextError

ONE, OTHER = "ab" * 20, "cd" * 20  # build-ids


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_indexes, "_build_id", lambda path: path)
    return tmp_path / "cache" / "gdbext" / "gdb-index" / "13.1"


def written(cache, build_id=ONE, text=b"an index", dwz=""):
    """As gdb and the pack leave an index. -> its path"""
    one = kept_indexes.Indexes("13.1", [build_id])
    one.check()
    path = cache / f"{kept_indexes._build_id(build_id)}{dwz}.gdb-index"
    path.write_bytes(text)
    path.chmod(0o600)
    one.seal()
    return path


def is_believed(path, build_id=ONE):
    kept_indexes.Indexes("13.1", [build_id]).check()
    return path.exists()


@pytest.mark.parametrize("dwz", ["", "-" + OTHER])
def test_an_index_as_it_was_written_is_left(cache, dwz):
    assert is_believed(written(cache, dwz=dwz)) and cache.stat().st_mode & 0o777 == 0o700


DAMAGE = {
    "a byte": lambda path: path.write_bytes(b"an indeX"),
    "its end": lambda path: path.write_bytes(b"an ind"),
    "more": lambda path: path.write_bytes(b"an index\0"),
    "its sum": lambda path: path.with_name(path.name + ".sum").write_bytes(b"0"),
    "no sum": lambda path: path.with_name(path.name + ".sum").unlink(),
    "a link": lambda path: (path.rename(path.with_name("x")), path.symlink_to("x")),
    "others may write": lambda path: path.chmod(0o666),
    "another writer's": lambda path: path.with_name(path.name + ".sum").write_bytes(kept_indexes._sum(__file__)),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_index_is_removed_before_gdb_could_read_it(cache, how):
    path = written(cache)
    DAMAGE[how](path)
    assert not is_believed(path) and not os.path.lexists(path)
    assert is_believed(written(cache))  # and made again


def test_another_library_and_another_gdb_have_their_own(cache):
    first, second = written(cache), written(cache, OTHER)
    second.write_bytes(b"damaged")
    assert is_believed(first) and second.exists()  # nobody reads it now
    assert not is_believed(second, OTHER)
    newer = kept_indexes.Indexes("18.1/x", [ONE])
    newer.check()
    assert os.listdir(newer.folder) == [] and os.path.dirname(newer.folder) == str(cache.parent)


def test_a_changed_file_of_the_same_build_id_has_no_old_index(cache, tmp_path, monkeypatch):
    library = tmp_path / "lib.so"
    library.write_bytes(b"one")
    monkeypatch.setattr(kept_indexes, "_build_id", lambda path: ONE)
    st = library.stat()
    assert is_believed(written(cache, str(library)), str(library))
    library.write_bytes(b"two")  # as long, and as old
    os.utime(library, ns=(st.st_atime_ns, st.st_mtime_ns))
    assert not is_believed(cache / f"{ONE}.gdb-index", str(library))


def test_of_two_files_of_one_build_id_none_is_kept(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(kept_indexes, "_build_id", lambda path: ONE)
    libraries = [tmp_path / "a.so", tmp_path / "b.so"]
    for library in libraries:
        library.write_bytes(b"a library")
    both = kept_indexes.Indexes("13.1", map(str, libraries))
    both.check()
    (cache / f"{ONE}.gdb-index").write_bytes(b"an index of one of them")
    both.seal()
    assert not is_believed(cache / f"{ONE}.gdb-index", str(libraries[0]))
    again = written(cache, str(libraries[0]))
    assert is_believed(again, str(libraries[0])) and not is_believed(again, str(libraries[1]))


def test_a_folder_of_others_is_not_used(cache, tmp_path):
    written(cache)
    cache.chmod(0o777)
    for work in (kept_indexes.Indexes("13.1", [ONE]).check, kept_indexes.clear):
        with pytest.raises(GdbextError, match="writable by others"):
            work()
    assert len(os.listdir(cache)) == 2


def test_two_writers_leave_an_index_and_its_sum_or_none(cache):
    a, b = (kept_indexes.Indexes("13.1", [ONE]) for _ in range(2))
    a.check()
    b.check()
    path = cache / f"{ONE}.gdb-index"
    path.write_bytes(b"of a")
    path.chmod(0o600)
    a.seal()
    path.write_bytes(b"of b")  # gdb renames it over the other
    b.seal()
    assert not is_believed(path)
    path.write_bytes(b"of both")
    path.chmod(0o600)
    a.seal()
    b.seal()
    assert is_believed(path)


def test_the_oldest_go_and_clear_removes_all(cache, monkeypatch):
    paths = [written(cache, f"{n:02x}" * 20, b"x" * 8) for n in range(3)]
    for n, path in enumerate(paths):
        os.utime(path, (n, n))
    monkeypatch.setattr(kept_indexes, "MOST_BYTES", 20)
    kept_indexes.Indexes("13.1", []).seal()
    assert [path.exists() for path in paths] == [False, True, True]
    (cache / "notes.txt").write_text("mine")
    assert kept_indexes.clear() == (4, 2 * (8 + len(b"00000000 8\n\n")))
    assert os.listdir(cache) == ["notes.txt"]


def test_without_a_home_there_is_no_folder(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "")
    assert kept_indexes.Indexes("13.1", []).folder == "" and kept_indexes.clear() == (0, 0)
