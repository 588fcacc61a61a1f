"""What users sent is shown with -show-content alone: by no address, container, expression, variable, exception or tensor without
it."""

import json
import os
import re
import struct
import sys
import zipfile

import pytest
from harness.gdb_run import run_gdb
from harness.probe import Probe
from harness.subjects import running

from gdbext.commands import table
from gdbext.session.session import Session
from gdbext.setup import outside

FORMS = ("utf-8", "utf-16-le", "utf-32-le")
# Roads that are tried without -show-content, and with it.
BOTH = (
    "pyprint -any kept.others",
    "pyprint -any kept.found",
    "pyprint -any kept.stop",
    "pyprint -any kept.stop[0]",
    "pyprint -any kept.wrapped",
    "pyprint -any kept.by_id[7]",
    "pyprint -any kept.seen",
    "pyprint -any history",
    "pyprint -any sorted(history)",
    "pyprint -any max(t for t in history if t < 990029)",
    "pyprint -any max(t for t in ids if t < 990029)",
    "pyprint sum({request:#x}.prompt_token_ids[1:2])",
    "pyprint min({request:#x}.prompt_token_ids[1], 10**9)",
    "pyprint -any rest",
    "pyprint -any last",
    'pyprint -any last["req-1"]',
    "pyprint -any element",
    "pyprint -any element[1]",
    "pyprint -any element[1:]",
    "pyprint -any [e for e in element]",
    "pyprint -any doc[:]",
    "pyprint -any doc",
    "pyprint -any chunk",
    "pyprint -any obj",
    "pyprint -any list(obj)",
    "pyprint -any val",
    "pyprint -any msg",
    "pyprint -any left",
    "pyprint -any left[0][0][0][1]",
    "pyprint -any set(ids)",
    "pyprint -any {{t for t in ids}}",
    'pyprint -any {{"a": ids[1]}}',
)
# Through tensors, under a name that says nothing and one of the engine's.
TENSORS = tuple(
    f"pyprint -any {name}{taken}"
    for name in ("n", "token_ids_cpu_tensor")
    for taken in ("[1]", "[1:]", "[1:2]", "[1].item()", "[:].tolist()", ".tolist()", "[:2].max()", "[1:].min()", "[1:][0]")
)
ROADS = (
    "pyprint {prompt:#x}",
    "pyprint {tokens:#x}",
    "pyprint {held:#x}",
    "pyprint {request:#x}.prompt",
    "pyprint {request:#x}.prompt + ''",
    "pyprint [{request:#x}.prompt]",
    "pyprint {request:#x}.prompt_token_ids[1:]",
    "pyprint {request:#x}.prompt_token_ids[1]",
    "pyprint {request:#x}.prompt_token_ids[1] + 0",
    "pyprint {tokens:#x}[1]",
    "pyprint -any ids[1]",
    "pyprint [{prompt:#x}]",
    "pyprint vars({request:#x})",
    "pyprint -full {request:#x}",
    "pybt -all -locals",
    "llm-bt -all -locals",
    "pylocals",
    "pyexc",
    "pyexc -locals",
    "llm-addr {prompt:#x}",
    "llm-addr {tokens:#x}",
    "llm-addr {held:#x}",
    "pytensor -any input_ids",
    "pytensor -any token_ids_cpu_tensor",
    "pyprint -any token_ids_cpu_tensor[1:]",
    "pyprint -any token_ids_cpu_tensor[1]",
    *TENSORS,
    "pytensor {ids:#x}",
    "pytensor -any n",
    "pyprint -any x",
    "pyprint -any [x]",
    "pyprint -any x + ''",
    "pyprint -any x[1:] + x",
    "pyprint -any data",
    "pyprint -any line",
    "pyprint -any line[0]",
    "pyprint -any kwargs",
    "pyprint -any ids",
    "pyprint -any kept",
    "pyprint -any kept.remark",
    "pyprint -any kept.remark[1:]",
    *BOTH,
)
# Roads by which the content is there when it is asked for.
SHOWN = (
    "pyprint {prompt:#x}",
    "pyprint {tokens:#x}[1]",
    "pyprint {tokens:#x}",
    "pyexc",
    "pybt -all -locals",
    "llm-addr {prompt:#x}",
    "pytensor -any input_ids",
    "pytensor -any token_ids_cpu_tensor",
    "pyprint -any token_ids_cpu_tensor[1:]",
    "pyprint -any token_ids_cpu_tensor[1]",
    *TENSORS,
    "pyprint -any x",
    "pyprint -any data",
    "pyprint -any ids",
    "pyprint -any kept.remark",
    *BOTH,
)


@pytest.fixture(scope="module")
def subject(torch_python):
    with running(torch_python, "private_content.py") as (target, truth):
        yield truth


def ask(line, truth, more=""):
    name, _, rest = line.format(**truth).partition(" ")
    status, out, err = outside.perform(table.load(name), f"{rest} -on {truth['pid']}{more}", Session())
    assert status in (0, 3), (line, err)
    return out


def test_every_command_of_a_process_and_its_snapshot_counts_it(subject, tmp_path):
    """The roads that nobody has thought of: each command, each variable, what hangs on it, and what they write."""
    shown = re.compile(rf"{subject['secret']}|(?<![\w.]){subject['token']}(?![\w.])")  # not within a longer number
    probe = Probe(shown.search, tmp_path, ["list", "str", "Request"])
    status, _, err = outside.perform(table.load("llm-snapshot"), f"{subject['pid']} -heap -o {tmp_path}/one.core", Session())
    assert status in (0, 3), err
    probe.process(subject["pid"])
    probe.memory(f"{tmp_path}/one.core")
    assert probe.shown(f"pybt -all -locals -on {tmp_path}/one.core")
    assert not probe.leaks and probe.asked > 200, (probe.asked, probe.leaks)


CANARIES = [f"canary{i:03d}x7Qz{i * 7919:07d}Kd" for i in range(200)]
OPTIONS = ("--api-key", "--hf-token", "--password", "--system-prompt", "--auth-token")


def members(path):
    """[(name, bytes)] of all in a bundle, and its page."""
    with zipfile.ZipFile(path) as archive:
        kept = [(name, archive.read(name)) for name in archive.namelist()]
    with open(path + ".md", "rb") as f:
        return [*kept, ("page", f.read())]


def test_none_of_200_canaries_is_in_any_byte_of_a_bundle(tmp_path):
    """60 in the environment, 20 on the command line, 120 in requests, bodies, headers, messages, keys; each is truly there."""
    (tmp_path / "words").write_text("\n".join(CANARIES[80:]))
    environment = {f"MY_VALUE_{number}": one for number, one in enumerate(CANARIES[:60])}
    words = [word for number, one in enumerate(CANARIES[60:80]) for word in (OPTIONS[number % len(OPTIONS)], one)]
    with running(sys.executable, "canaries.py", str(tmp_path / "words"), *words, env=environment) as (_, truth):
        pid, path = truth["pid"], f"{tmp_path}/x.gdbext"
        assert truth["held"] == 120
        with open(f"/proc/{pid}/environ", "rb") as env, open(f"/proc/{pid}/cmdline", "rb") as line:
            there = env.read() + line.read()
        assert all(one.encode() in there for one in CANARIES[:80])
        status, _, err = outside.perform(table.load("llm-bundle"), f"{pid} -wait 0.1 -o {path}", Session())
        assert status in (0, 3), err
    kept = members(path)
    found = [(name, one) for name, data in kept for one in CANARIES for form in FORMS if one.encode(form) in data]
    assert not found, (len(found), found[:8])
    assert not [(name, n) for name, data in kept for n in range(20) if struct.pack("<I", 990000 + 3 * n) in data]
    said = json.loads(ask("pybt -all -json", {"pid": path}))
    assert sum(frame["function"] == "serve" for thread in said["threads"] for frame in thread["frames"]) == 21


def test_a_bundle_holds_no_content_no_token_and_no_secret(torch_python, tmp_path):
    """By bytes: of each member of the archive, and of the page. What is left answers as the process does."""
    with running(torch_python, "private_content.py") as (_, truth):
        path = f"{tmp_path}/x.gdbext"
        status, _, err = outside.perform(table.load("llm-bundle"), f"{truth['pid']} -wait 0.1 -o {path}", Session())
        assert status in (0, 3), err
        kept = members(path)
        assert len(kept) == 8 and os.path.getsize(path) < 2_000_000
        words = [one.encode(form) for one in (truth["secret"], *truth["keys"]) for form in FORMS]
        words += [struct.pack("<I", truth["token"] + more) for more in (-6, 0, 6)]
        found = [(name, word) for name, data in kept for word in words if word in data]
        assert not found, found
        line = "pybt -all -locals"
        before, after = (json.loads(ask(line + " -json", {"pid": one})) for one in (truth["pid"], path))
        for said in (before, after):
            for thread in said["threads"]:
                thread.pop("label")
        assert before["threads"] == after["threads"]


def holds(text, truth):
    return truth["secret"] in text or str(truth["token"]) in text


@pytest.mark.parametrize("line", ROADS)
@pytest.mark.drawn(10)
def test_content_is_counted_without_the_option(subject, line):
    for more in ("", " -json"):
        text = ask(line, subject, more)
        assert not holds(text, subject), text
    assert line in (
        "pyprint -full {request:#x}",
        "pylocals",
        "pyprint -any kept",
        "pyprint -any kwargs",
    ) or "-show-content" in ask(line, subject), line


@pytest.mark.parametrize("line", SHOWN)
@pytest.mark.drawn(8)
def test_content_is_shown_with_the_option(subject, line):
    assert holds(ask(line, subject, " -show-content"), subject)


HANDED_ON = "vals arr item pair seq out res match it tmp2 prompt prompts".split()
KEYS = ["api_key", "config", "config['authkey']", "config['HF_TOKEN'][:]", "[config['authkey']]", "config['passwords'][0]"]


def test_what_users_send_as_dicts_is_counted_by_every_way_into_it(subject):
    """A word, in a value or as a key: of the whole object, of each field, of what is taken out of one."""
    fields = [*subject["sent"], "structured_outputs", "user", "suffix", "whitespace_pattern", "guided_regex"]
    assert len(fields) > 20 and not holds(ask("pyprint -any -full params", subject), subject)
    for name in fields:
        ways = [name, f"{name} or 0", f"__dict__['{name}']"]
        if name in subject["sent"] or name == "structured_outputs":
            ways += [f"{name}.items()" if isinstance_dict(subject, name) else f"{name}[0]"]
        for way in ways:
            line = f"pyprint -any params.{way}"
            assert not holds(ask(line, subject), subject), line
            assert holds(ask(line, subject, " -show-content"), subject), line
    ways = ["sorted(config.items())", "list(config.items())", "[(k, config[k]) for k in config]", "headers", "config.items()"]
    for way in ways:
        line = f"pyprint -any {way}"
        assert hidden(ask(line, subject), subject) and not hidden(ask(line, subject, " -show-content"), subject), line
    for way in ("json['properties']", "json['properties'].keys()", "tools[0]['function']['name']", "extra_args['key']"):
        line = f"pyprint -any params.{way}"
        assert not holds(ask(line, subject), subject) and holds(ask(line, subject, " -show-content"), subject), line


def isinstance_dict(subject, name):
    return ask(f"pyprint -any type(params.{name})", subject).startswith("<class 'dict'>")


def hidden(text, truth):
    return not holds(text, truth) and not any(key in text for key in truth["keys"])


def test_no_type_hands_on_what_is_private(subject):
    """Views of dicts, slices, ranges, complex numbers, matches and the like, and keys by their names: counted in each listing, by
    name and in a list, and shown with the option."""
    for line in ("pybt -all -locals", "llm-bt -all -locals", "pyprint {auth:#x}", "pyprint [{auth:#x}]", "llm-addr {auth:#x}"):
        assert hidden(ask(line, subject), subject), line
    for name in HANDED_ON + KEYS:
        text = ask(f"pyprint -any {name}", subject)
        assert hidden(text, subject) and "-show-content" in text, (name, text)
        assert not hidden(ask(f"pyprint -any {name}", subject, " -show-content"), subject), name


@pytest.mark.parametrize("line", ["pytasks -all", "pythreads", "pybt -all", "pyexc"])
def test_names_of_tasks_and_threads_are_shown_with_the_option_alone(subject, line):
    assert not holds(ask(line, subject), subject) and "private" in ask(line, subject), line
    if line in ("pytasks -all", "pyexc"):
        assert holds(ask(line, subject, " -show-content"), subject)


def test_what_is_no_content_is_shown(subject):
    assert "req-1" in ask("pyprint {request:#x}.request_id", subject)
    shown = ask("pyprint -any kept", subject)
    for text in ("[3, 5, 7]", "'/models/llama-3/config.json'", "'torch.float16'", repr(bytes(range(200, 220)))[:-1], "'RUNNING'"):
        assert text in shown
    assert "'req-1'" in ask("pyprint -any kwargs", subject)
    assert ask("pyprint -any sum(len(t) for t in [kept.block_ids, kept.path])", subject).startswith("30")
    assert ask("pyprint -any max(kept.block_ids)", subject).startswith("7")
    assert ask("pyprint -any kept.block_ids[1]", subject).startswith("5")
    assert json.loads(ask("pyprint len({request:#x}.prompt_token_ids)", subject, " -json"))["repr"] == "3"
    found = json.loads(ask("pyexc", subject, " -json"))["exceptions"]
    assert {"ValueError", "KeyError"} <= {e["type"] for each in found for e in (each, each["cause"] or each)}


def test_gdb_and_its_functions_do_not_show_it(subject, gdb_path):
    commands = [
        "thread find " + str(subject["handler"]),
        "pylocals",
        "pyprint body",
        "pyprint raw_request",
        "pyprint $py",
        "pyprint engine_prompt",
    ]
    commands += ['print $tensor("input_ids")', f"print $tensor({subject['ids']})", f"print $tensor_item({subject['ids']}, 1)"]
    done = run_gdb(gdb_path, commands, ["-p", str(subject["pid"])])
    assert not holds(done.text, subject), done.text
