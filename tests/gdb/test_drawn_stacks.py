"""Drawn stacks of Python and native frames, which the subject made and knows: alternate stacks of signal handlers, fibers mapped
above and below, native functions with the interpreter's names. Each frame is where it was made, or marked.

GDBEXT_TEST_SEED: of what is drawn; a failure names it. GDBEXT_TEST_LONG: every CPython, and more stacks."""

import os
import platform
import shutil
import subprocess

import pytest
from harness.answers import answer
from harness.subjects import PYTHONS, SUBJECTS, running

SEED = int(os.environ.get("GDBEXT_TEST_SEED", "7"))
LONG = bool(os.environ.get("GDBEXT_TEST_LONG"))
ASKED = PYTHONS if LONG else [PYTHONS[0], PYTHONS[-1]]
COUNT = 200 if LONG else 24


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """{"named", "stripped"}: drawn_stacks.c, built."""
    if not shutil.which("gcc") or platform.machine() != "x86_64":
        pytest.skip("needs gcc, and is of x86-64")
    folder = tmp_path_factory.mktemp("drawn")
    named, stripped = str(folder / "libnamed.so"), str(folder / "libstripped.so")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", named, f"{SUBJECTS}/drawn_stacks.c", "-lpthread"], check=True)
    subprocess.run(["objcopy", "--strip-all", named, stripped], check=True)
    return {"named": named, "stripped": stripped}


def differs(frames, truth, file, library, named):
    """How a stack differs from what was made, '' where it does not. Frames of other files are not compared."""
    mine = [f for f in frames if f["kind"] == "python" and f["file"] == file or f["library"] == library]
    shown = [(f["kind"], f["function"].rpartition(".")[2] if f["kind"] == "python" else f["function"]) for f in mine]
    cut = next((i for i, (kind, _) in enumerate(truth) if kind == "other stack"), len(truth))
    inner, outer = [tuple(one) for one in truth[:cut]], [tuple(one) for one in truth[cut:] if one[0] == "python"]
    wanted = [(kind, name if named or kind == "python" or name == "hop" else "") for kind, name in inner] + outer
    if shown != wanted:
        return f"{shown} instead of {wanted}"
    if any(f["kind"] == "python" and not f["reliable"] for f in mine[: len(inner)]):
        return "what stands on the native stack is marked"
    if outer and any(f["reliable"] for f in mine[len(inner) :]):
        return "what stands beyond the fiber is not marked"
    return ""


@pytest.mark.parametrize("kind", ["named", "stripped"])
@pytest.mark.parametrize("python", ASKED, ids=os.path.basename)
def test_each_frame_is_where_it_was_made(python, kind, libraries, tmp_path):
    with running(python, "drawn_stacks.py", libraries[kind], str(SEED), str(COUNT)) as (target, truth):
        file = str(tmp_path / "shot")
        answer(f"llm-snapshot {target.pid} -o {file}")
        threads = {t["name"]: t["frames"] for t in answer(f"llm-bt -all -on {file}")["threads"]}
    wrong = {
        name: how
        for name, made in truth["stacks"].items()
        for how in [differs(threads[name], made, truth["file"], libraries[kind], kind == "named")]
        if how
    }
    assert wrong == {}, SEED
