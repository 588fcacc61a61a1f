"""Reading commands answer of a bundle, field by field, as of the stopped process that it was made of."""

import json
import os
import re
import signal
import sys

import pytest
from harness.answers import answer
from harness.gdb_run import run_gdb
from harness.releases import vllm_of
from harness.subjects import running

from gdbext.errors import GdbextError

LINES = (
    *("pybt -all -locals -on {}", "llm-bt -all -locals -on {}", "pythreads -on {}", "pyexc -locals -on {}", "pylist -on {}"),
    *("pytasks -all -locals -on {}", "pylocals -on {}", "pyframe 1 -on {}", "llm-stacks {}", "llm-locks {}", "llm-hang {}"),
    *("llm-requests {}", "llm-kv -on {}", "llm-kv check -on {}", "llm-kv block 1 -on {}", "llm-kv free -on {}"),
    *("llm-kv map -on {}", "llm-memory {}", "llm-addr 0x10 -on {}", "pyprint len(dir()) -on {}"),
)
# What differs, and why.
DIFFERS = {
    r"\.pauses.*": "a bundle stops nobody: `pauses` of llm-hang are those of its making",
    r"\.next\[\d+\]": "a live process is named by its pid, one in a bundle by the bundle's path",
    r"\.ends.*": "who holds the other end of a terminal or a pipe is asked of the kernel, for what runs",
    r"\.(requests\[\d+\]\.age|untraced.*)": "seconds that pass between the two questions",
}
ONLY_LIVE = ("unstopped", "reads the process while it runs")
MISSING = "the workers' memory is not in this core"  # one bundle of one process was made
LEFT_OUT = {
    "pyheap -on {}": "objects far from every frame, of which users' content is a part",
    "pytensors -on {}": "likewise: it looks at all of them",
    "llm-kernels -on {}": "symbols of libraries and what drivers loaded are the machine's, not the process's own",
}
SUBJECTS = {
    "some of everything": ("everything.py",),
    "vLLM's scheduler": ("vllm_release.py", "installed"),
    "vLLM's front end and core": ("requests_vllm.py", "40"),
    "tasks": ("tasks.py",),
}


def differences(live, kept, at=""):
    if isinstance(live, dict) and isinstance(kept, dict):
        for key in sorted(set(live) | set(kept)):
            yield from differences(live.get(key, "(none)"), kept.get(key, "(none)"), f"{at}.{key}")
    elif isinstance(live, list) and isinstance(kept, list) and len(live) == len(kept):
        for number, pair in enumerate(zip(live, kept)):
            yield from differences(*pair, f"{at}[{number}]")
    elif live != kept and not (isinstance(live, float) and isinstance(kept, float) and abs(live - kept) < 0.01 * abs(live)):
        yield at, live, kept


def said(line, what):
    """An answer without its reasons for not being whole, and those."""
    try:
        found = answer(line.format(what))
    except GdbextError as e:
        return {"error": re.sub(r"(process|snapshot) [\d/]\S*", "it", str(e)).replace(what, "it")}, []
    return found, [one for one in found.pop("partial") if not one.startswith(ONLY_LIVE)]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_answer_is_the_same_but_for_what_is_listed(subject, torch_python, tmp_path):
    name, *words = SUBJECTS[subject]
    if words == ["installed"]:
        words = vllm_of("installed", torch_python)
    with running(torch_python if "requests" not in name else sys.executable, name, *words) as (target, truth):
        pid, path = truth.get("pid", target.pid), f"{tmp_path}/x.gdbext"
        os.kill(pid, signal.SIGSTOP)
        assert answer(f"llm-bundle {pid} -wait 0.2 -o {path}")["processes"][0]["file"]
        wrong, answered = [], 0
        for line in LINES:
            (live, why), (kept, lacks) = said(line, str(pid)), said(line, path)
            answered += "error" not in live
            found = [one for one in differences(live, kept) if not any(re.fullmatch(form, one[0]) for form in DIFFERS)]
            found += [(line, one) for one in lacks if one not in why and not one.startswith(MISSING)]
            wrong += [(line, *one) for one in found]
        for line in LEFT_OUT:
            (live, _), (kept, _) = said(line, str(pid)), said(line, path)
            wrong += [(line, kept)] if kept != live and "llm-snapshot -heap has more" not in kept.get("error", "") else []
        os.kill(pid, signal.SIGCONT)
    assert not wrong, "\n".join(map(str, wrong))
    assert answered >= 12


def test_gdb_writes_a_bundle_of_what_it_has_attached(gdb_path, torch_python, tmp_path):
    with running(torch_python, "everything.py") as (target, truth):
        path = f"{tmp_path}/x.gdbext"
        lines = [f"attach {truth['pid']}", f"llm-bundle -wait 0 -o {path} -json", "pybt -all -json", "llm-locks -json"]
        bundle, stacks, locks = (json.loads(one) for one in run_gdb(gdb_path, lines).outputs[1:])
    assert bundle["processes"][0]["file"] and not bundle["failed"] and os.path.getsize(path) < 20_000_000
    for line, live in (("pybt -all -on {}", stacks), ("llm-locks {}", locks)):
        kept, _ = said(line, path)
        live.pop("partial")
        assert not [
            one for one in differences(live, kept) if not re.fullmatch(r"\.pauses.*|.*\.(label|inferior|selected)", one[0])
        ]
