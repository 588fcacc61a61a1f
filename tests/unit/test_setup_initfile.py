"""The block in gdb's init files: put in and taken out without touching anything else."""

import os
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.errors import GdbextError
from gdbext.setup import initfile
from gdbext.setup.initfile import BEGIN, END, add_block, remove_block

SCRIPT = initfile.load_script("/some where/gdbext/init.py")
DRAWN = settings(max_examples=40, deadline=None)  # others at each run
CONTENT = st.one_of(
    st.binary(max_size=300),
    st.lists(
        st.sampled_from([b"set pagination off", b"", b"\r", b"# >>> other >>>", b"python", b"end", b"\xff\xfe", b"# gdbext"]),
        max_size=8,
    ).map(b"\n".join),
).filter(lambda content: b"# >>> gdbext" not in content and b"# <<< gdbext" not in content)


@DRAWN
@given(CONTENT)
def test_taking_out_gives_back_the_very_bytes(content):
    added = add_block(content, SCRIPT)
    assert added.startswith(content) and added != content
    assert remove_block(added) == content


@DRAWN
@given(CONTENT)
def test_putting_in_twice_is_putting_in_once(content):
    added = add_block(content, SCRIPT)
    assert add_block(added, SCRIPT) == added


@DRAWN
@given(CONTENT)
def test_a_moved_gdbext_renews_the_line_where_it_stands(content):
    added = add_block(content, SCRIPT) + b"set width 0\n"
    renewed = add_block(added, initfile.load_script("/else/init.py"))
    assert renewed == added.replace(b"/some where/gdbext/init.py", b"/else/init.py")


@DRAWN
@given(CONTENT, st.sampled_from([b"set height 0\n", b"x", b"\n", b"# >>> mine >>>\r\n"]))
def test_what_the_user_adds_behind_the_block_stays_a_line_of_its_own(content, more):
    left = remove_block(add_block(content, SCRIPT) + more)
    assert left == content + (b"\n" if content and not content.endswith(b"\n") else b"") + more


def test_a_file_made_for_the_block_goes_with_it_and_an_empty_one_stays():
    assert remove_block(add_block(None, SCRIPT)) is None
    assert remove_block(add_block(b"", SCRIPT)) == b""
    assert remove_block(add_block(None, SCRIPT) + b"set width 0\n") == b"set width 0\n"
    assert remove_block(None) is None and remove_block(b"no block\n") == b"no block\n"


@pytest.mark.parametrize(
    "damaged", [BEGIN + b"\nsource x\n", b"source x\n" + END + b"\n", BEGIN + b"\n" + BEGIN + b"\nsource x\n" + END + b"\n"]
)
def test_a_damaged_block_is_refused_by_file_name(damaged):
    for function in (lambda: add_block(damaged, SCRIPT, "~/.gdbinit"), lambda: remove_block(damaged, "~/.gdbinit")):
        with pytest.raises(GdbextError, match="~/.gdbinit.*by hand"):
            function()


def test_a_block_copied_by_hand_is_taken_out_with_the_first():
    twice = add_block(b"set width 0\n", SCRIPT)
    twice += twice[len(b"set width 0\n") :]
    with pytest.raises(GdbextError, match="2 times"):
        add_block(twice, SCRIPT)
    assert remove_block(twice) == b"set width 0\n"


def test_a_path_that_gdb_cannot_source_is_refused():
    with pytest.raises(GdbextError, match="line break"):
        initfile.load_script("/a\nb/init.py")


@settings(max_examples=20, deadline=None)
@given(content=CONTENT, mode=st.sampled_from([0o600, 0o644, 0o640, 0o400]))
def test_mode_links_and_bytes_survive_on_disk(tmp_path_factory, content, mode):
    folder = tmp_path_factory.mktemp("init")
    real, link = folder / "real", folder / "link"
    real.write_bytes(content)
    real.chmod(mode)
    link.symlink_to("real")
    assert initfile.change(str(link), lambda c: add_block(c, SCRIPT))
    assert not initfile.change(str(link), lambda c: add_block(c, SCRIPT))
    assert link.is_symlink() and stat.S_IMODE(real.stat().st_mode) == mode and SCRIPT.encode() in real.read_bytes()
    assert initfile.change(str(link), remove_block)
    assert real.read_bytes() == content and stat.S_IMODE(real.stat().st_mode) == mode
    assert sorted(os.listdir(folder)) == ["link", "real"]


def test_a_folder_that_cannot_be_written_is_one_line_and_no_change(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(GdbextError, match="nothing was changed") as e:
        initfile.write(str(tmp_path / "file" / "gdbinit"), b"x")
    assert "\n" not in str(e.value)


def test_the_file_that_gdb_reads_is_chosen(tmp_path):
    environ = {"HOME": str(tmp_path)}
    assert initfile.init_files(environ)[0] == [("gdb", f"{tmp_path}/.gdbinit"), ("cuda-gdb", f"{tmp_path}/.cuda-gdbinit")]
    config = tmp_path / ".config" / "gdb"
    config.mkdir(parents=True)
    (config / "gdbinit").write_text("")
    chosen, every = initfile.init_files(environ)
    assert chosen[0] == ("gdb", str(config / "gdbinit")) and f"{tmp_path}/.gdbinit" in every
    other = initfile.init_files({"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "elsewhere")})[0]
    assert other[0] == ("gdb", f"{tmp_path}/.gdbinit")
