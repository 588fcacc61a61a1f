"""What the watch says to machines: events as JSON lines, a program at a verdict, numbers as OpenMetrics."""

import contextlib
import glob
import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.request
from types import SimpleNamespace

import pytest
from harness import open_metrics

from gdbext.errors import GdbextError
from gdbext.verdict.kinds import QUIET
from gdbext.watch import events, metrics, model, outlets
from gdbext.watch.model import EngineLook, Event, Look, RankLook

NASTY = ['a"b', "back\\slash", "line\nbreak", "näme", "\udcff", "x" * 5000, "", 'e="1"} 7\n# EOF', "{}", "\\", "\x1b[31m"]


def drawn(seed):
    """A look of drawn numbers and names."""
    draw = random.Random(seed)

    def number(*more):
        return draw.choice([0, 1, 7, 2**40, None, *more])

    ranks = [
        RankLook(draw.choice([*NASTY, "TP0", "TP1"]), 100 + i, "worker", draw.choice(NASTY), draw.choice(["S", "", "T"]))
        for i in range(draw.randrange(6))
    ]
    for one in ranks:
        one.steps, one.lag, one.rss, one.cpu = number(), number(), number(), number(0.5, 1e-9, float("nan"), float("inf"))
    names = draw.sample(NASTY, draw.randrange(4))
    engines = [EngineLook(name, [], number(), number(), 5, 6, number(), kv_use=0.25, verdict="stopped") for name in names]
    return Look(seed + 1, 1e9 + seed, float(seed), ranks, engines)


def text_of(look, plain=False):
    found = metrics.Metrics(QUIET)
    found.look(look)
    found.hear(Event(model.STALLED, {}))
    return found.text(plain)


@pytest.mark.parametrize("seed", range(40))
def test_every_look_is_open_metrics(seed):
    found = open_metrics.read(text_of(drawn(seed)))
    assert set(found) <= metrics.names() and found["gdbext_watch_looks_total"] == {(): seed + 1}


def test_prometheus_own_parser_reads_it(tmp_path):
    pythons = glob.glob(os.path.expanduser("~/.cache/gdbext/envs/*/bin/python"))
    ask = [p for p in pythons if subprocess.run([p, "-c", "import prometheus_client"], capture_output=True).returncode == 0]
    if not ask:
        pytest.skip("prometheus_client is in no environment here")
    for seed in range(5):
        (tmp_path / f"{seed}.open").write_text(text_of(drawn(seed)))
        (tmp_path / f"{seed}.plain").write_text(text_of(drawn(seed), plain=True))
    code = """
import glob, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
from prometheus_client.parser import text_string_to_metric_families as plain
for f in glob.glob(sys.argv[1] + "/*"):
    found = list((read if f.endswith("open") else plain)(open(f, encoding="utf-8", newline="").read()))
    assert any(s.name == "gdbext_watch_looks_total" for one in found for s in one.samples), f
"""
    done = subprocess.run([ask[0], "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_numbers_are_those_of_the_look():
    look = Look(3, 1e9, 5.0, cost=0.75, memory=1 << 20)
    look.engines = [EngineLook("vllm", ["TP0"], 4, 2, 99, 7, stood=12.5, limit=60.0, kv_use=0.5, verdict="collective")]
    grows = {"anonymous": 600, "files": 0}
    look.ranks = [RankLook("TP0", 7, engine="vllm", state="S", lag=0, grows=grows), RankLook("TP0", 8, engine="vllm", lag=3)]
    found = open_metrics.read(text_of(look))
    of = (("engine", "vllm"),)
    assert found["gdbext_engine_requests_running"] == {of: 4} and found["gdbext_engine_tokens_total"] == {of: 99}
    assert found["gdbext_engine_stood_seconds"] == {of: 12.5} and found["gdbext_engine_hung"] == {of: 1}
    assert (
        found["gdbext_engine_verdict"] == {(*of, ("verdict", "collective")): 1} and "gdbext_engine_preemptions_total" not in found
    )
    assert found["gdbext_rank_lag_steps"] == {(*of, ("rank", "TP0 (7)")): 0, (*of, ("rank", "TP0 (8)")): 3}
    assert found["gdbext_rank_up"] == {(*of, ("rank", "TP0 (7)")): 1, (*of, ("rank", "TP0 (8)")): 0}
    rank = ("rank", "TP0 (7)")
    grows = {(*of, ("kind", "anonymous"), rank): 10, (*of, ("kind", "files"), rank): 0}
    assert found["gdbext_rank_memory_growth_bytes_per_second"] == grows
    assert found["gdbext_watch_cpu_seconds_total"] == {(): 0.75}
    assert found["gdbext_watch_events_total"][(("kind", "stalled"),)] == 1


@pytest.mark.parametrize("verdict, hung", [("", 0), ("idle", 0), ("busy", 0), ("startup", 0), ("stopped", 1), ("unknown", 1)])
def test_hung_is_what_accuses(verdict, hung):
    look = Look(1, 1.0, 1.0, engines=[EngineLook("e", verdict=verdict)])
    assert open_metrics.read(text_of(look))["gdbext_engine_hung"] == {(("engine", "e"),): hung}


@pytest.fixture
def server():
    found = metrics.Metrics(QUIET)
    found.look(drawn(1))
    one = metrics.Server(found, "0")
    yield one
    one.close()


def got(server, path="/metrics", **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_the_port_answers_in_the_format_that_is_asked_for(server):
    kind, text = got(server, Accept="application/openmetrics-text;version=1.0.0,text/plain")
    assert kind == metrics.OPEN and open_metrics.read(text)
    kind, text = got(server, Accept="text/plain")
    assert kind == metrics.PLAIN and not text.endswith("# EOF\n")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        got(server, "/")


def test_the_port_is_this_machines_alone_and_a_slow_client_keeps_none(server):
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(metrics.CLIENTS - 1)]
    assert got(server)[1]
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", server.port), 2)
    for one in held:
        one.close()


def test_connections_that_ask_nothing_keep_nobody_out(server):
    """As many as are served, each of which comes again when it was ended."""
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(metrics.CLIENTS)]
    for _ in range(20):
        assert "gdbext_watch_looks" in got(server)[1]
        for number, one in enumerate(idle):
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                with contextlib.suppress(ConnectionError):
                    assert one.recv(1) == b""
                one.close()
                idle[number] = socket.create_connection(("127.0.0.1", server.port))
    for one in idle:
        one.close()


@pytest.mark.parametrize(
    "where", ["\u00b2", "9" * 5000, "+1", "\u0663\u0664", "x", "1.2.3.4:99999", "host.that.is.not.invalid:0", ":"]
)
def test_an_address_that_is_none_is_an_error(where):
    with pytest.raises(GdbextError):
        metrics.Server(metrics.Metrics(), where)


def test_a_taken_port_is_an_error(server):
    with pytest.raises(GdbextError, match="in use"):
        metrics.Server(metrics.Metrics(), str(server.port))


@pytest.mark.parametrize("whose", ["threading.Thread.start", "gdbext.watch.metrics.background_thread"])
def test_clients_for_which_there_is_no_thread_keep_no_place(server, whose, monkeypatch):
    def refuse(*words):
        raise (RuntimeError if whose.startswith("threading") else GdbextError)("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(whose, refuse)
        for _ in range(metrics.CLIENTS + 2):
            with pytest.raises(OSError):
                got(server)
    assert "gdbext_watch_looks" in got(server)[1]


def test_a_link_in_the_place_of_the_textfiles_draft_is_not_followed(tmp_path):
    (tmp_path / "target").write_text("mine")
    (tmp_path / f"x.prom.{os.getpid()}").symlink_to(tmp_path / "target")
    found = metrics.Metrics()
    found.look(drawn(2))
    one = metrics.Textfile(found, str(tmp_path / "x.prom"))
    one.look(Look(1, 1.0, 100.0))
    assert (tmp_path / "target").read_text() == "mine" and not (tmp_path / "x.prom").is_symlink() and not one.failed
    assert "gdbext_watch_looks_total 3" in (tmp_path / "x.prom").read_text()


def test_the_textfile_is_whole_at_any_time_and_fails_in_silence(tmp_path):
    found = metrics.Metrics()
    found.look(drawn(2))
    one = metrics.Textfile(found, str(tmp_path / "gdbext.prom"))
    one.look(Look(1, 1.0, 100.0))
    assert "gdbext_watch_looks_total 3" in (tmp_path / "gdbext.prom").read_text() and os.listdir(tmp_path) == ["gdbext.prom"]
    (tmp_path / "gdbext.prom").unlink()
    one.look(Look(2, 1.0, 101.0))
    assert os.listdir(tmp_path) == []  # too soon
    tmp_path.rmdir()
    one.look(Look(3, 1.0, 110.0))
    assert "No such file" in one.failed
    tmp_path.mkdir()
    one.look(Look(4, 1.0, 120.0))
    assert not one.failed and os.listdir(tmp_path) == ["gdbext.prom"]


# ---- events --------------------------------------------------------------------------------------------------------------
def verdict(**more):
    return Event(
        model.VERDICT, {"engine": "vllm", "verdict": "stopped", "sentence": "TP1 is stopped", "culprits": [], **more}, 1e9
    )


def test_a_line_has_the_data_of_its_kind_and_is_bounded(tmp_path):
    one = json.loads(events.line(verdict(seconds=1.5)))
    assert one["schema"] == "gdbext-event/1" and one["kind"] == "verdict" and one["at"] == "2001-09-09T01:46:40Z"
    assert one["seconds"] == 1.5 and one["host"] == os.uname().nodename
    for data in (
        {"x": "y" * 10**6},
        {"x": [["y" * 999] * 99] * 99},
        {"kind": "mine", "x": object()},
        {f"k{i}": "v" for i in range(999)},
    ):
        text = events.line(verdict(**data))
        assert len(text) <= events.BYTES and "\n" not in text and text.isascii() and json.loads(text)["kind"] == "verdict"


def test_lines_are_appended_and_the_file_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "FILE_BYTES", 1000)
    one = events.Lines(str(tmp_path / "events.jsonl"))
    for _ in range(40):
        one.hear(verdict())
    kept = [json.loads(line) for name in os.listdir(tmp_path) for line in (tmp_path / name).read_text().splitlines()]
    assert sorted(os.listdir(tmp_path)) == ["events.jsonl", "events.jsonl.1"] and 4 < len(kept) < 20
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) <= 2000 and not one.failed


def test_a_folder_that_is_gone_ends_nothing(tmp_path):
    (tmp_path / "d").mkdir()
    one = events.Lines(str(tmp_path / "d" / "events.jsonl"))
    (tmp_path / "d").rmdir()
    one.hear(verdict())
    assert "No such file" in one.failed
    with pytest.raises(GdbextError):
        events.Lines(str(tmp_path / "no" / "x"))


def test_a_link_or_fifo_in_the_files_place_is_not_written(tmp_path):
    (tmp_path / "target").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo"):
        one = events.Lines(str(tmp_path / name))
        one.hear(verdict())
        assert one.failed
    assert (tmp_path / "target").read_text() == ""


def whole(data, heard):
    """The events of a file by number. Each line is one, and what is missing was counted in the next."""
    found, missed = [], 0
    for text in filter(None, data.decode().split("\n")):
        one = json.loads(text)
        missed += one.get("dropped", 0)
        found.append(one["n"])
        assert found[-1] == len(found) - 1 + missed
    assert len(found) + missed == heard
    return found


@pytest.mark.parametrize("seed", range(25))
def test_a_slow_reader_of_a_fifo_gets_whole_lines(seed, tmp_path):
    """A reader that takes drawn bytes at drawn moments, of lines that fill its pipe."""
    draw, path = random.Random(seed), str(tmp_path / "fifo")
    os.mkfifo(path)
    one, heard, got, reader = events.Lines(path), draw.randrange(20, 60), b"", -1
    late = draw.choice([0, 0, 3, 19])  # until then nobody reads
    for n in range(heard):
        if n == late:
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        sizes = [300] * draw.choice([0, 1, 7, 60])
        one.hear(verdict(n=n, stack=["y" * size for size in sizes]))
        assert bool(one.failed) == bool(one._due)
        if reader >= 0 and draw.random() < 0.5:
            with contextlib.suppress(BlockingIOError):
                got += os.read(reader, draw.choice([100, 5000, 1 << 17]))
    part = b"x"
    while one._due or part:
        one.flush()
        part = os.read(reader, 1 << 16)
        got += part
    one.hear(verdict(n=heard))
    got += os.read(reader, 1 << 17)
    os.close(reader)
    whole(got, heard + 1)


def test_another_reader_of_a_fifo_begins_with_a_whole_line(tmp_path):
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    one, first = events.Lines(path), os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    for n in range(5):
        one.hear(verdict(n=n, stack=["y" * 300] * 60))
    waits = b"".join(one._due)
    assert one._begun
    os.close(first)
    one.flush()
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as second:
        one.flush()
        assert second.read() == waits


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("out", ["file", "-"])
def test_a_full_disk_tears_a_line_but_swallows_no_event(seed, out, tmp_path):
    """The limit of a file's size, drawn again and again, stands for a disk that is full and gets room."""
    draw, path = random.Random(seed), tmp_path / "events"
    path.write_bytes(draw.choice([b"", b"", b'{"a": "killed while it wro']))
    steps = [(draw.choice([0, 0, 100, 5000, 1 << 20]), draw.choice([0, 1, 60]), draw.random() < 0.5) for _ in range(25)]
    code = f"""
import os, resource, sys
from gdbext.watch import events, model
one, last = events.Lines({str(path) if out == "file" else "-"!r}), {(1 << 20, 0, True)}
for n, (room, many, look) in enumerate([*{steps}, last]):
    room += os.stat({str(path)!r}).st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    if look:
        one.flush()
    one.hear(model.Event(model.VERDICT, {{"n": n, "stack": ["y" * 300] * many}}))
    assert bool(one.failed) == bool(one._due), one.failed
"""
    with open(path, "ab") as to:
        done = subprocess.run([sys.executable, "-c", code], stdout=to if out == "-" else None, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    good = []
    for text in path.read_bytes().split(b"\n"):
        with contextlib.suppress(ValueError):
            json.loads(text)
            good.append(text)
    whole(b"\n".join(good), len(steps) + 1)


def test_a_file_that_cannot_begin_anew_costs_no_file_of_another(tmp_path, monkeypatch):
    """The number of a closed file is the next one's: whoever closes it twice closes that."""
    path, taken, real = tmp_path / "events", [], os.open
    monkeypatch.setattr(events, "FILE_BYTES", 1000)
    path.write_bytes(bytes(1000))

    def refuse(name, flags, *mode):
        if flags & os.O_EXCL:
            taken.append(real(os.devnull, os.O_RDONLY))
            raise OSError(28, "No space left on device")
        return real(name, flags, *mode)

    one = events.Lines(str(path))
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        one.hear(verdict())
    assert "No space" in one.failed and [os.fstat(number) for number in taken]
    os.close(taken[0])
    one.flush()
    assert json.loads(path.read_text())["kind"] == "verdict" and not one.failed


def test_events_go_to_what_stands_for_standard_output(capsys):
    events.Lines("-").hear(verdict(n=0))
    assert whole(capsys.readouterr().out.encode(), 1) == [0]


def test_a_file_that_is_not_written_is_told_once(tmp_path, capsys):
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "fifo")
    args = SimpleNamespace(exec=None, events=str(tmp_path / "fifo"), metrics=None, textfile=str(tmp_path / "d" / "x.prom"))
    to = outlets.Outlets(args, QUIET)
    (tmp_path / "d").rmdir()

    def goes_on(number):
        for hear in to.on_event:
            hear(verdict(n=number))
        for look in to.on_look:
            look(Look(number, 1.0, 100.0 * number))
        return capsys.readouterr().err

    said = goes_on(0)
    assert said.count("-events") == said.count("-textfile") == 1 and not goes_on(1)
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "d").mkdir()
    assert not goes_on(2) and whole(os.read(reader, 1 << 16), 3) == [0, 1, 2]
    os.close(reader)
    assert "-events" in goes_on(3)
    to.close()


# ---- the program ---------------------------------------------------------------------------------------------------------
def program(code, *words, seconds=20.0, then=lambda text: None):
    command = f"{sys.executable} -c {json.dumps(code)} {' '.join(words)}"
    return events.Program(command, then, seconds)


def run(one, *all_events):
    for event in all_events or (verdict(),):
        one.hear(event)
    one.wait(60)
    return one


def test_it_gets_the_event_in_a_session_of_its_own_and_no_shell(tmp_path):
    code = "import sys, os, json; print(json.load(sys.stdin)['verdict'], sys.argv[1:], os.getsid(0) == os.getpid())"
    one = run(program(code, "'$HOME;'", "*"))
    assert one.said == (0, "stopped ['$HOME;', '*'] True\n") and (one.ran, one.failed) == (1, 0)


def test_only_verdicts_run_it():
    one = run(program("pass"), Event(model.STALLED, {}), verdict(), Event(model.BOX, {}))
    assert one.ran == 1


def ends(pid):
    """Whether a process ends within ten seconds; a zombie has ended."""
    for _ in range(100):
        try:
            with open(f"/proc/{pid}/stat") as f:
                if f.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.1)
    return False


def test_one_that_does_not_end_is_ended_with_what_it_started(tmp_path):
    said = []
    path = tmp_path / "pid"
    code = f"import os, time; pid = os.fork(); pid and open('{path}', 'w').write(str(pid)); time.sleep(600)"
    one = run(program(code, seconds=1.0, then=said.append))
    assert one.said[0] is None and one.failed == 1 and "ended after 1 s" in said[0]
    assert ends(path.read_text()), "its child lives"


def test_who_keeps_its_output_open_keeps_nobody_waiting(tmp_path):
    """`cmd &`: what it leaves running has its standard output, and ends with it."""
    path = tmp_path / "pid"
    code = f"import os, time; print('said', flush=True); pid = os.fork() or time.sleep(90); open('{path}', 'w').write(str(pid))"
    one = run(program(code, seconds=500.0), verdict(), verdict())
    assert one.said == (0, "said\n") and (one.ran, one.failed) == (2, 0)
    assert ends(path.read_text()), "what it left lives"


def test_no_error_of_telling_ends_it():
    def then(text):
        raise ValueError("I/O operation on closed file")

    one = run(program("import sys; sys.exit(1)", then=then), verdict(), verdict())
    assert (one.ran, one.failed) == (2, 2)


def test_what_it_says_is_bounded_and_no_status_is_lost():
    said = []
    one = run(program("import sys; sys.stdout.write('x' * 10**7); sys.exit(3)", then=said.append))
    assert one.said[0] == 3 and len(one.said[1]) == events.OUTPUT and "status 3" in said[0]


def test_one_that_reads_nothing_is_no_error():
    assert run(program("import os; os.close(0)"), verdict(x="y" * 10**6)).said[0] == 0


def test_the_watch_never_waits_for_it_and_each_verdict_it_misses_is_told():
    said = []
    one = program("import time; time.sleep(1)", then=said.append)
    for _ in range(events.WAITING + 5):
        one.hear(verdict())
    assert 3 <= one.dropped <= 5 and one.ran <= 1
    assert len(said) == one.dropped and all("dropped" in text for text in said)
    one.wait(0.0)
    assert "not done with 1" in said[-1]


@pytest.mark.parametrize("command", ["./notify.sh", "notify.sh", "bin/../notify.sh", "sh notify.sh"])
def test_what_is_taken_at_the_start_runs_at_the_verdict(command, tmp_path, monkeypatch):
    """A program or a file is named as the user's folder has it, also where PATH does."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "notify.sh").write_text("#!/bin/sh\nread event && echo ran in $(pwd)\n")
    (tmp_path / "notify.sh").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    one = run(events.Program(command))
    assert one.said == (0, f"ran in {tmp_path}\n") and not one.failed


@pytest.mark.parametrize("seed", range(5))
def test_no_byte_of_a_program_that_fails_reaches_the_terminal_raw(seed, capsys):
    draw = random.Random(seed)
    words = "".join(
        draw.choice(["\x1b]0;owned\x07", "\x1b[2J", "\n\n", "\u202e", "\x9b", "näme", "x" * 50, "\r"]) for _ in range(30)
    )
    run(program(f"import sys; sys.stdout.buffer.write({words.encode()!r}); sys.exit(1)".replace('"', "'"), then=outlets._say))
    said = capsys.readouterr().err
    assert said.startswith("llm-watch: -exec ") and "status 1" in said and said[:-1].isprintable() and len(said) < 2100


@pytest.mark.parametrize("command", ["", "no-such-program-anywhere x", "'open", "   "])
def test_a_command_that_is_none_is_an_error(command):
    with pytest.raises(GdbextError, match="-exec"):
        events.Program(command)
