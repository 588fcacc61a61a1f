"""The tree of many stacks, on stacks made up here."""

import re
from types import SimpleNamespace

import pytest

from gdbext.answers import stack_tree
from gdbext.render import html
from gdbext.render.text import Style
from gdbext.stacks import cluster, tree
from gdbext.stacks.threads import Frame
from gdbext.timeline import flame


def stack(*outermost_first):
    return [
        Frame("python", name, "f.py", line)
        for name, line in reversed([f if isinstance(f, tuple) else (f, 1) for f in outermost_first])
    ]


@pytest.mark.parametrize(
    "names,text",
    [
        (["TP0", "TP1", "TP2", "TP3", "TP6"], "TP0-3,6"),
        (["TP6", "TP0", "TP6"], "TP0,6"),
        (["EngineCore", "TP1"], "EngineCore, TP1"),
        (["DP0.TP0", "DP0.TP1", "DP1.TP0"], "DP0.TP0-1, DP1.TP0"),
        (["R10", "R9", "R11"], "R9-11"),
        (["1234", "1235"], "1234, 1235"),
        ([], ""),
        (["TP0"] * 5, "TP0"),
        (["x99999999999999"], "x99999999999999"),
        (["n1.TP0", "n2.TP0"], "n1.TP0, n2.TP0"),
    ],
)
def test_ranks_are_shown_as_sets(names, text):
    assert tree.rank_set(names) == text


def test_equal_beginnings_are_one_branch_and_lines_are_gathered():
    root = tree.build(
        [
            (("TP0", 1), stack("main", ("loop", 5), "reduce")),
            (("TP1", 2), stack("main", ("loop", 7), "reduce")),
            (("TP2", 3), stack("main", ("loop", 5))),
        ]
    )
    runs = [(depth, [n.frame.function for n in run], run[0].processes()) for depth, run in root.chains()]
    assert runs == [(0, ["main", "loop"], ["TP0", "TP1", "TP2"]), (1, ["reduce"], ["TP0", "TP1"])]
    loop = root.branches()[0].run()[-1]
    assert tree.where(loop) == "f.py:5,7" and loop.ends == [("TP2", 3)]


def test_where_the_ranks_part():
    root = tree.build([((f"TP{i}", i), stack("main", "loop", "sleep" if i == 2 else "reduce", "wait")) for i in range(4)])
    node, best, reached, others = tree.common(root)
    assert (node.frame.function, best.frame.function, reached, others) == ("loop", "reduce", ["TP0", "TP1", "TP3"], ["TP2"])


def test_who_ends_in_the_common_frame_has_not_reached_the_next():
    root = tree.build([(("TP0", 1), stack("main", "loop")), (("TP1", 2), stack("main", "loop", "reduce"))])
    node, best, reached, others = tree.common(root)
    assert (node.frame.function, best.frame.function, reached, others) == ("loop", "reduce", ["TP1"], ["TP0"])


def test_no_parting_of_one_or_of_equals():
    assert tree.common(tree.build([(("TP0", 1), stack("main"))])) is None
    node, best, reached, others = tree.common(tree.build([((f"TP{i}", i), stack("main", "loop")) for i in range(3)]))
    assert best is None and others == []


def test_a_stack_as_deep_as_they_come_and_a_thousand_threads():
    deep = stack(*["f"] * 3000)
    root = tree.build([(("TP0", 1), deep), (("TP1", 1), deep[1:])])
    assert sum(len(run) for _, run in root.chains()) == 3000
    wide = tree.build([((f"TP{i % 8}", i), stack("main", f"f{i}")) for i in range(1000)])
    assert len(list(wide.chains())) == 1001 and tree.rank_set(wide.processes()) == "TP0-7"


def test_folded_lines_hold_no_separator_that_comes_from_a_process():
    lines = tree.folded([(("TP0;x", "main\n"), stack("main", "a;b c"))] * 2)
    assert lines == ["TP0 x;main ;main (f.py:1);a b c (f.py:1) 2"]


def test_folded_lines_hold_nothing_that_turns_text_round_or_cannot_be_seen():
    for char in ("\u202e", "\u2066", "\u200b", "\x9b", "\ud800"):
        said = "\n".join(tree.folded([((f"TP0{char}x",), stack(f"main{char}()"))]))
        own = flame.folded({(f"TP0{char}", f"f{char}"): 1.0})
        both = flame.folded_difference({(f"f{char}",): 1.0}, {})
        for text in (said, own, both):
            assert char not in text and char.encode("unicode_escape").decode() in text
        shown = char.encode("unicode_escape").decode()
        assert flame.parse_folded(own) == {(f"TP0{shown}", f"f{shown}"): 1.0}


def test_a_page_escapes_what_comes_from_a_process():
    page = html.page("<t>", html.table(["a&b"], [["<script>alert(1)</script>\x1b[2J"]]))
    assert (
        "<script>" not in page
        and "\x1b" not in page
        and "&lt;script&gt;" in page
        and "a&amp;b" in page
        and "http" not in page.replace("http-equiv", "")
    )


def test_a_table_of_a_page_has_no_empty_columns_and_numbers_flush_right():
    rows = [["TP0", "", "1.7 GiB", 0, "3 s"], ["TP1", "", "", 12, "late"]]
    said = html.table(["process", "not read", "RSS", "threads", "age"], rows)
    assert re.findall("<th[^>]*>(.*?)</th>", said) == ["process", "RSS", "threads", "age"]
    assert re.findall("<td class=n>(.*?)</td>", said) == ["1.7 GiB", "0", "", "12"] and said.count("<tr>") == 3


def process(label, pid, engine, family, *names):
    one = cluster.SavedProcess("here", label, pid, "worker")
    if engine:
        one.rank = SimpleNamespace(engine=engine, family=family, role="worker")
    one.threads = [cluster.SavedThread(pid, "main", stack(*names), [], False)]
    return one


def test_each_engine_has_a_tree_of_its_own():
    views = [
        process("TP0", 11, "vllm", 1, "main", "loop", "reduce", "wait"),
        process("TP1", 12, "vllm", 1, "main", "loop", "sleep", "wait"),
        process("TP0", 21, "sglang", 2, "main", "loop", "reduce", "wait"),
        process("TP1", 22, "sglang", 2, "main", "loop", "reduce", "wait"),
        process("4711", 31, "", None, "main", "loop", "sleep", "wait"),
    ]
    said = stack_tree.stacks_data(views)
    assert {(g["engine"], tuple(m["pid"] for m in g["members"])) for g in said["groups"]} == {
        ("vllm", (11,)),
        ("vllm", (12,)),
        ("sglang", (21, 22)),
        ("", (31,)),
    }
    assert [(p["engine"], p["not_reached"]) for p in said["common"]] == [("vllm", ["TP1"])]
    said.update(failed=[], pauses=[])
    lines = stack_tree.text_lines(views, said, {}, Style(False))
    heads = [i for i, line in enumerate(lines) if line in ("vllm:", "sglang:", "no engine:")]
    assert [lines[i] for i in heads] == ["vllm:", "sglang:", "no engine:"]
    assert "TP0-1" in lines[heads[0] + 1] and "TP0-1" in lines[heads[1] + 1] and "4711" in lines[heads[2] + 1]
    assert html.page("x", stack_tree.html_tree(views, said)).count("<h3>") == 3
    assert {heads for heads, _ in stack_tree.folded_stacks(views)} >= {("vllm", "TP0", "main"), ("no engine", "4711", "main")}


def test_a_process_whose_python_could_not_be_read_parts_from_nobody():
    """Its native frames, from _start on, are nowhere that the others' Python frames could be."""
    views = [process(f"TP{i}", 11 + i, "vllm", 1, "main", "loop", "reduce" if i else "sleep") for i in range(3)]
    for one in views[:1]:
        one.threads[0].frames[:] = [Frame("native", "_start", "a.so")]
    assert stack_tree.stacks_data(views)["common"] == []
    for one in views[1:]:
        one.threads[0].frames[:] = [Frame("native", n, "a.so") for n in ("wait", "main" + one.name, "_start")]
    (part,) = stack_tree.stacks_data(views)["common"]
    assert part["function"] == "_start" and part["reached"]["ranks"] and part["not_reached"]


def test_two_engines_of_one_kind_are_told_apart_and_one_has_no_heading():
    views = [process("TP0", 11, "vllm", 1, "main"), process("TP0", 21, "vllm", 2, "main")]
    assert [name for name, _ in stack_tree.by_engine(views)] == ["vllm (11)", "vllm (21)"]
    said = {**stack_tree.stacks_data(views[:1]), "failed": [], "pauses": []}
    assert stack_tree.text_lines(views[:1], said, {}, Style(False))[0].startswith("main (f.py:1)")
