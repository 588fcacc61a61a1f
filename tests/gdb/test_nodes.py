"""Commands on other machines, with stand-ins of kubectl, ssh and srun that run what they are given here."""

import hashlib
import json
import os
import subprocess
import sys

import pytest
from harness.gdb_run import ROOT, run_gdb
from harness.schemas import held
from harness.subjects import spawned
from tools.environments import existing

from gdbext.errors import GdbextError
from gdbext.session import nodes

SUBJECT = "import time\nwanted = 'it is'\ndef waiting_here():\n    print('{}', flush=True)\n    time.sleep(600)\nwaiting_here()\n"
# FAKE programs: each keeps the words that it was started with.
FAKES = {
    "kubectl": '[ "$1" = get ] && { [ "$6" = app.kubernetes.io/name=none ] || printf "pod/vllm-1\\npod/vllm-0\\n"; exit; }\n'
    'while [ "$1" != "--" ]; do shift; done\nshift\nexec "$@"\n',
    "ssh": 'while [ "$1" != "--" ]; do shift; done\n[ "$2" = dead ] && { echo "connect to host dead: No route" >&2; exit 255; }\n'
    '[ "$2" = mute ] && { echo "Welcome to mute"; exit 0; }\nexec sh -c "$3"\n',
    "srun": 'while [ "$1" != "--label" ]; do shift; done\nshift\n"$@" | sed -u "s/^/1: /"\n',
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder for the PATH."""
    folder = tmp_path_factory.mktemp("bin")
    for name, text in FAKES.items():
        (folder / name).write_text(
            f'#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word" >> {folder}/{name}.words; done\n' + text
        )
        (folder / name).chmod(0o755)
    os.symlink(sys.executable, str(folder / "python3"))
    return folder


@pytest.fixture(scope="module")
def subject():
    with spawned([sys.executable, "-c", SUBJECT], ready="{") as process:
        yield process


def gdbext(place, *words, python=sys.executable, **env):
    env = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}", **env}
    command = [python, "-m", "gdbext", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)


def of_states(said):
    """(the nodes that were read, those that were not)."""
    return [[n for n in said["nodes"] if n["state"] == state] for state in ("read", "failed")]


def test_the_answers_of_all_nodes_are_one_tree_and_who_fails_is_named(place, subject):
    pid = subject.pid
    named = [f"{pid}@pod/prod/vllm-0/engine", f"{pid}@ssh:me@gpu17", f"{pid}@slurm:4711", "ssh:dead", "ssh:mute"]
    done = gdbext(place, "llm-stacks", *named, "--json")
    said = held(json.loads(done.stdout))
    assert done.returncode == 3 and said["ranks_read"] == 3, done.stderr
    assert {f["label"]: f["reason"] for f in said["failed"]} == {
        "ssh:dead": "connect to host dead: No route",
        "ssh:mute": "what it answered is no answer of gdbext",
    }
    (group,) = [g for g in said["groups"] if any(f["function"] == "waiting_here" for f in g["frames"])]
    assert [m["pid"] for m in group["members"]] == [pid] * 3
    assert {m["node"] for m in group["members"]} == {"pod/prod/vllm-0/engine", "me@gpu17", "4711 task 1"}
    words = (place / "kubectl.words").read_text().split("\n")
    assert words[:9] == ["exec", "-i", "-n", "prod", "vllm-0", "-c", "engine", "--", "python3"]


def test_a_recording_of_several_nodes_is_one_on_one_time_base(place, subject, tmp_path):
    page, kept = tmp_path / "all.html", tmp_path / "all.record"
    with spawned([sys.executable, "-c", SUBJECT.replace("waiting_here", "elsewhere")], ready="{") as other:
        named = [f"{subject.pid}@ssh:one", f"{other.pid}@pod/prod/two", f"{subject.pid}@slurm:7", "ssh:dead"]
        done = gdbext(place, "llm-record", "-for", "1.5", "-rate", "20", "-o", page, "-o", kept, *named, "--json")
        said = held(json.loads(done.stdout))
        assert done.returncode == 3 and [f["label"] for f in said["failed"]] == ["ssh:dead"], done.stderr
        assert {(p["node"], p["pid"]) for p in said["processes"]} == {
            ("one", subject.pid),
            ("pod/prod/two", other.pid),
            ("7 task 1", subject.pid),
        }
        assert len({p["label"] for p in said["processes"]}) == 3 and said["files"] == [str(page), str(kept)]
        read, failed = of_states(said)
        assert [n["node"] for n in read] == ["one", "pod/prod/two", "7 task 1"] and [n["node"] for n in failed] == ["ssh:dead"]
        for one in read:  # the word was on its way for less than the node's whole answer took
            assert 0 <= one["offset"] < 120 and one["exact"] is not None and 0 <= one["exact"] < 60, one
        assert said["seconds"] >= 1.4 and {"elsewhere", "waiting_here"} <= {
            f["function"].partition(" ")[0] for f in said["functions"]
        }, said["functions"]
        again = gdbext(place, "llm-record", "-read", kept, "--json")
        assert len(held(json.loads(again.stdout))["processes"]) == 3
        text = gdbext(place, "llm-record", "-for", "0.3", f"{other.pid}@ssh:one", f"{other.pid}@ssh:two").stdout
    assert "one time base, from when all were told to begin: one from " in text and "two from " in text


def test_llm_top_over_nodes_is_one_frame(place, subject):
    done = gdbext(
        place, "llm-top", f"{subject.pid}@ssh:one", f"{subject.pid}@pod/prod/two", "ssh:dead", "-interval", "0.2", "--json"
    )
    said = held(json.loads(done.stdout))
    assert done.returncode == 3 and [f["label"] for f in said["failed"]] == ["ssh:dead"], done.stderr
    assert [(r["node"], r["pid"], r["function"]) for r in said["ranks"]] == [
        ("one", subject.pid, "waiting_here"),
        ("pod/prod/two", subject.pid, "waiting_here"),
    ]
    text = gdbext(place, "llm-top", f"{subject.pid}@ssh:one", f"{subject.pid}@ssh:two", "-once", "-interval", "0.2").stdout
    assert [line.split()[:3:2] for line in text.split("\n")[1:3]] == [["one", str(subject.pid)], ["two", str(subject.pid)]], text


def test_llm_hang_gives_one_verdict_over_nodes_and_names_who_gave_no_facts(place, subject):
    with spawned([sys.executable, "-c", SUBJECT], ready="{") as other:
        words = [f"{subject.pid}@ssh:one", f"{other.pid}@pod/prod/two", f"{other.pid}@slurm:7", "ssh:dead", "ssh:mute"]
        done = gdbext(place, "llm-hang", *words, "-wait", "0.3", "--json")
    said = held(json.loads(done.stdout))
    assert done.returncode == 3 and said["schema"] == "llm-hang/1" and said["ranks_read"] == 3, done.stderr
    assert {v["verdict"] for v in said["verdicts"]} <= {"unknown", "idle", "busy"} and not said["culprits"]
    read, failed = of_states(said)
    assert [(n["node"], n["processes"]) for n in read] == [("ssh:one", 1), ("pod/prod/two", 1), ("slurm:7 task 1", 1)]
    assert [(n["node"], n["reason"]) for n in failed] == [(f["label"], f["reason"]) for f in said["failed"]]
    assert [f["label"] for f in said["failed"]] == ["ssh:dead", "ssh:mute"]
    group = [name for v in said["verdicts"] for name in v["group"]]
    assert str(subject.pid) in group and len(set(group)) == 3  # two nodes have a process of one name


def test_an_expression_goes_through_no_shell(place, subject):
    expression = "wanted + ' $HOME `id` \"; echo no'"
    for node in ("ssh:gpu17", "pod/a/b"):
        done = gdbext(place, "pyprint", "-on", f"{subject.pid}@{node}", expression)
        assert done.stdout.startswith(f"{node}\n  'it is $HOME `id` \"; echo no'\n"), done.stdout + done.stderr


def test_in_gdb_nodes_are_named_as_outside_and_their_answers_are_merged(place, subject, gdb_path):
    env, pid = {"PATH": f"{place}:{os.environ['PATH']}"}, subject.pid
    said = run_gdb(
        gdb_path,
        [
            f"llm-stacks {pid}@ssh:gpu17 {pid}@pod/prod/vllm-0 ssh:dead -json",
            f"pyprint -on {pid}@ssh:gpu17 wanted + ' \"x y\"'",
            f"pyprint -on {pid} wanted + ' ssh:gpu17'",
            "llm-attach ssh:gpu17",
            "pyheap -save /tmp/x -on ssh:gpu17",
        ],
        env=env,
    ).outputs
    merged = json.loads(said[0])
    assert merged["ranks_read"] == 2 and [f["label"] for f in merged["failed"]] == ["ssh:dead"]
    assert "ssh:gpu17\n  'it is \"x y\"'" in said[1] and "'it is ssh:gpu17'" in said[2]
    assert "llm-attach acts on gdb's own inferiors" in said[3] and "-save is for this machine" in said[4]


def test_without_any_answer_it_is_an_error(place):
    done = gdbext(place, "llm-hang", "ssh:dead")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "llm-hang: ssh:dead: connect to host dead: No route\n")


def test_options_that_write_files_are_refused(place):
    done = gdbext(place, "pyheap", "-save", "/tmp/x", "-on", "ssh:gpu17")
    assert done.returncode == 1 and "-save is for this machine" in done.stderr


def test_pods_with_a_label_are_asked_each_and_one_page_is_written(place, subject, tmp_path):
    page = tmp_path / "all.html"
    named = [f"{subject.pid}@pods/prod/app=vllm,tier/engine", "pods/prod/app.kubernetes.io/name=none"]
    done = gdbext(place, "llm-stacks", *named, "-html", page, "--json")
    said = held(json.loads(done.stdout))
    read, failed = of_states(said)
    assert [n["node"] for n in read] == ["pod/prod/vllm-0/engine", "pod/prod/vllm-1/engine"], done.stderr
    assert [n["node"] for n in failed] == [named[1]]
    reason = "pods/prod/app.kubernetes.io/name=none: no pod that runs has these labels"
    assert [(f["label"], f["reason"]) for f in said["failed"]] == [("pods/prod/app.kubernetes.io/name=none", reason)]
    assert "waiting_here" in page.read_text()
    words = (place / "kubectl.words").read_text().split("\n")
    at = words.index("app=vllm,tier")
    assert words[at - 5 : at + 1] == ["get", "pods", "-n", "prod", "-l", "app=vllm,tier"]


def test_a_node_that_has_the_pack_does_not_get_it_again(place, subject, tmp_path):
    """What is kept counts only with the pack's own sum, and is one file."""
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    line = ["llm-stacks", f"{subject.pid}@ssh:one", "--json"]
    folder = tmp_path / "gdbext" / "packs"
    assert json.loads(gdbext(place, *line, **env).stdout)["ranks_read"] == 1
    (kept,) = folder.iterdir()
    first, data = kept.stat().st_mtime_ns, kept.read_bytes()
    assert hashlib.sha256(data).hexdigest() == kept.name and kept.stat().st_mode & 0o777 == 0o600
    assert json.loads(gdbext(place, *line, **env).stdout)["ranks_read"] == 1 and kept.stat().st_mtime_ns == first
    kept.write_bytes(b"import os; os.abort()" + data[21:])
    other = folder / ("0" * 64)
    other.write_bytes(b"an older one")
    assert json.loads(gdbext(place, *line, **env).stdout)["ranks_read"] == 1
    assert kept.read_bytes() == data and [file.name for file in folder.iterdir()] == [kept.name]
    kept.unlink()
    os.mkfifo(kept)
    assert json.loads(gdbext(place, *line, **env).stdout)["ranks_read"] == 1


def test_a_set_of_machines_takes_clustershell(place, subject):
    python = existing("ray")
    if not python:
        pytest.skip("no environment with ClusterShell: run scripts/test gdb, which makes one")
    named = f"{subject.pid}@ssh:me@gpu[1,03-04]"
    done = gdbext(place, "llm-stacks", named, "ssh:@nobody", "--json", python=python)
    said = held(json.loads(done.stdout))
    assert [n["node"] for n in of_states(said)[0]] == ["ssh:me@gpu1", "ssh:me@gpu03", "ssh:me@gpu04"], done.stderr
    assert [f["label"] for f in said["failed"]] == ["ssh:@nobody"]
    done = gdbext(place, "llm-stacks", "ssh:gpu[1-100000]", python=python)
    assert done.stderr == "llm-stacks: ssh:gpu[1-100000] names 100000 machines: 1024 at most\n"
    done = gdbext(place, "llm-stacks", named, python="/usr/bin/python3")
    assert "takes ClusterShell: pip install 'gdbext[cluster]'" in done.stderr or "ClusterShell" in done.stdout


@pytest.mark.parametrize(
    "words, planned",
    [
        (["all"], []),
        (["-on", "TP0", "vllm.parallel_state:_TP.rank"], []),
        (["ssh:a"], [("ssh:a", [])]),
        (["ssh:a", "TP1@ssh:u@b", "-all"], [("ssh:a", ["-all"]), ("ssh:u@b", ["TP1", "-all"])]),
        (["1@ssh:a", "7@ssh:b", "-all", "2@ssh:a"], [("ssh:a", ["1", "-all", "2"]), ("ssh:b", ["7", "-all"])]),
        (["-on", "TP0@pod/n/p", "x"], [("pod/n/p", ["-on", "TP0", "x"])]),
        (["-on", "slurm:12", "check"], [("slurm:12", ["check"])]),
        (["TP0@ray:", "ray::Actor"], [("ray:", ["TP0", "ray::Actor"])]),
        (["pods/n/a.b/c=d,!e/x"], [("pods/n/a.b/c=d,!e/x", [])]),
        (["ssh:u@gpu[01-64,70]-x"], [("ssh:u@gpu[01-64,70]-x", [])]),
        (["ssh:@all"], [("ssh:@all", [])]),
    ],
)
def test_each_node_gets_its_own_words(words, planned):
    assert nodes.plan(words) == planned


def test_a_node_that_is_named_whole_and_in_part_is_refused():
    with pytest.raises(GdbextError, match="2@ssh:a is a part of what is named as a whole"):
        nodes.plan(["ssh:a", "2@ssh:a"])


@pytest.mark.parametrize(
    "word",
    [
        "ssh:-oProxyCommand=id",
        "pod/-n/x",
        "ssh:a,ssh:b",
        "slurm:x",
        "pod/a",
        "TP0@ssh:a;b",
        "ssh:$(id)",
        "ray:x",
        "pods/n",
        "pods/n/-l",
        "ssh:a[`id`]",
    ],
)
def test_names_that_are_none_are_refused(word):
    with pytest.raises(GdbextError, match="names no node"):
        nodes.plan([word])


def test_a_node_that_takes_too_long_is_given_up(place, monkeypatch):
    monkeypatch.setattr(nodes, "command_line", lambda node, words: ["sleep", "60"])
    with pytest.raises(GdbextError, match="no answer in 0.1 s"):
        nodes.ask("ssh:a", [], nodes.Pack(), 0.1)


# ---- nodes that lie --------------------------------------------------------------------------------------------------
LIAR = r"""#!/bin/sh
while [ "$1" != "--" ]; do shift; done
answer() {
  printf '{"schema":"llm-stacks/1","failed":[],"pauses":[],"ranks_total":1,"groups":['
  printf '{"frames":[{"kind":"python","function":"%s","file":"/x/e.py","line":3}],' "$1"
  printf '"members":[{"host":"good","label":"%s","pid":42,"tid":42,"name":"MainThread"}]}]}\n' "$2"
}
case "$2" in
good) answer works TP0 ;;
liar) answer deadlocked TP0 ;;
named) answer deadlocked ssh:good:TP0 ;;
deep) python3 -c "print('[' * 200000)" ;;
nested) python3 -c "print('{\"schema\":\"llm-stacks/1\",\"x\":' + '[' * 500 + ']' * 500 + '}')" ;;
endless) exec yes '{"schema":"llm-stacks/1"' ;;
complains) exec yes >&2 ;;
other) echo '{"schema":"llm-hang/1","verdict":"idle"}' ;;
swollen) python3 -c "print('{\"schema\":\"llm-stacks/1\",\"x\":[' + '{\"a\":1},' * 4000000 + '0]}')" ;;
text) printf 'ssh:good\n\nidle: \033[1mall is well\033[m\rssh:good\n\342\200\256ssh:good\n' ;;
esac
"""


@pytest.fixture(scope="module")
def liars(tmp_path_factory):
    folder = tmp_path_factory.mktemp("liars")
    (folder / "ssh").write_text(LIAR)
    (folder / "ssh").chmod(0o755)
    os.symlink(sys.executable, str(folder / "python3"))
    return folder


@pytest.mark.parametrize(
    "node, reason",
    [
        ("deep", "no answer of gdbext (nested too deeply)"),
        ("nested", "no answer of gdbext (nested too deeply)"),
        ("endless", "too long an answer"),
        ("other", "no answer of gdbext"),
        ("swollen", "more than 1024 MiB of memory"),
    ],
)
def test_a_node_that_answers_without_end_or_form_is_named(liars, node, reason):
    said = held(json.loads(gdbext(liars, "llm-stacks", "ssh:good", f"ssh:{node}", "--json").stdout))
    assert [m["host"] for g in said["groups"] for m in g["members"]] == ["ssh:good"]
    assert [f["label"] for f in said["failed"]] == [f"ssh:{node}"] and reason in said["failed"][0]["reason"]


@pytest.mark.parametrize("node, label", [("liar", "ssh:liar:TP0"), ("named", "ssh:named:ssh:good:TP0")])
def test_an_answer_counts_under_the_name_that_was_asked(liars, node, label):
    said = held(json.loads(gdbext(liars, "llm-stacks", "ssh:good", f"ssh:{node}", "--json").stdout))
    who = {g["frames"][0]["function"]: (m["host"], m["label"]) for g in said["groups"] for m in g["members"]}
    good = "ssh:good:TP0" if node == "liar" else "TP0"
    assert who == {"works": ("ssh:good", good), "deadlocked": (f"ssh:{node}", label)} and said["hosts"] == 2


def test_a_text_cannot_pass_for_another_nodes(liars):
    said = gdbext(liars, "llm-memory", "ssh:text", "ssh:good").stdout.split("\n")
    assert [line for line in said if line.startswith("ssh:")] == ["ssh:text", "ssh:good"]
    assert "  idle: \\x1b[1mall is well\\x1b[m\\rssh:good" in said or "  idle: \\x1b[1mall is well\\x1b[m" in said


def test_complaints_without_end_are_not_kept(monkeypatch):
    monkeypatch.setattr(nodes, "command_line", lambda node, words: ["sh", "-c", "yes >&2"])
    with pytest.raises(GdbextError, match="no answer in 0.5 s"):
        nodes.ask("ssh:x", [], nodes.Pack(), limit=0.5)
