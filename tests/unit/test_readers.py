"""Whose word a file is opened on: what a process's user may not read is not shown to root either."""

import os

import pytest

from gdbext.access import readers
from gdbext.errors import NotFoundError

STRANGER = readers.User(54321, frozenset((54321,)))


@pytest.mark.parametrize(
    "mode, folder, shown", [(0o644, 0o755, True), (0o600, 0o755, False), (0o640, 0o755, False), (0o644, 0o700, False)]
)
def test_a_file_is_shown_where_the_user_may_read_it(tmp_path, mode, folder, shown):
    if os.geteuid():
        pytest.skip("only root may read what others may not")
    for outer in [tmp_path, *tmp_path.parents]:
        if str(outer).startswith("/tmp/"):
            outer.chmod(0o755)
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "a.py").write_text("text\n")
    (inner / "a.py").chmod(mode)
    inner.chmod(folder)
    (tmp_path / "link.py").symlink_to(inner / "a.py")
    for path in (inner / "a.py", tmp_path / "link.py"):
        if shown:
            readers.open_for(STRANGER, str(path)).close()
        else:
            with pytest.raises(NotFoundError, match="may not read it"):
                readers.open_for(STRANGER, str(path))
            with pytest.raises(NotFoundError, match="may not read it"):
                readers.open_for(None, str(path))
        readers.open_for(readers.ourselves(), str(path)).close()


def test_a_group_counts(tmp_path):
    found = os.stat(tmp_path)
    assert readers.User(found.st_uid, frozenset()).may(found, 4)
    assert readers.of_process(os.getpid()).uid == os.geteuid()
