"""What other processes and machines say, as formats of tools.fuzz: facts of a machine, command lines and environments with
secrets, titles of processes, expressions."""

import json

from harness.facts import inside, process, python

from gdbext.access import secret_text
from gdbext.answers.hang_nodes import judged
from gdbext.cpython import expressions
from gdbext.engines.rank import label_parts
from gdbext.engines.registry import ENGINES
from gdbext.errors import GdbextError
from gdbext.stacks.waits import Edge
from gdbext.verdict.exchange import facts_data

SECRETS = (
    "vllm serve m --api-key sk-abcdefghijklmnop0123 -u user:pw --pwd hunter2 -H 'Authorization: Bearer eyJhbGciOi.J9.x'\n"
    'HTTPS_PROXY=http://u:p@proxy:3128 AWS_SECRET_ACCESS_KEY=abc/def+ghi== DB=\'{"password": "x y"}\'\n'
    '--default-chat-template-kwargs {"system":"be kind"} https://hooks.slack.com/services/T0/B0/XXXX x-token-a-a-a-a\n'
)
TITLES = (
    "VLLM::Worker_DP1_PP0_TP3_EP7\nVLLM::EngineCore_DP3\nprod-7::Worker_TP11\nsglang::scheduler_DP1_PP0_ATTN_CP2_MOE_DP1_TP5_EP3"
)
EXPRESSIONS = "\n".join(
    (
        'self.scheduler.running[0].request_id == "r1" and not any(x.rid in ("a", b) for x in batch.reqs[2:5])',
        'vllm.distributed.parallel_state:_TP.rank + len(d["k"][-1]) * 3.5 if $py is None else 0x7f0000001000',
        "[x for x in range(10) if x % 3 == 1] + list({k: v for k, v in d.items()})",
    )
)


def facts(folder):
    """Two processes, one of which waits for the other."""
    ranks = [process("TP0", inside(), role=""), process("TP1", python("run", "step"), role="")]
    for number, one in enumerate(ranks):
        one.pid = 100 + number
    ranks[0].threads[0].edge = Edge(ranks[0].threads[0].node, "lock at 0x10", "Lock", ranks[1].threads[0].node)
    return json.dumps(facts_data(ranks, [], "host", "1")).encode()


def read_facts(path):
    """Beside those of a machine that are whole."""
    with open(path, "rb") as f:
        data = f.read()
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        raise GdbextError("no JSON: the carrier of its answer refuses it") from None
    failed = []
    judged([("ssh:n1", {"facts": told}), ("ssh:n2", {"facts": json.loads(facts(""))})], failed)
    if failed:
        raise GdbextError(failed[0]["reason"])


def _text(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def read_secrets(path):
    """The spans lie in the text, in order, and apart."""
    text = _text(path)
    for content in (False, True):
        at = 0
        for start, end in secret_text.spans(text, content):
            assert at <= start <= end <= len(text), "spans that overlap, or lie outside"
            at = end
    for word in text.split():
        secret_text.password_in(word), secret_text.looks_secret(word.encode("utf-8", "replace")), secret_text.as_variable(word)


def read_titles(path):
    for title in _text(path).split("\n"):
        found = [match for spec in ENGINES for match in [spec.match_title(title)] if match is not None]
        assert len(found) <= 1, "two engines claim one title"
        label_parts(title)


def read_expressions(path):
    for line in _text(path).split("\n"):
        expressions.parsed(line), expressions.last_name(line), expressions.free_names(line)


FORMATS = {
    "facts": (facts, read_facts, "x.json"),
    "secrets": (lambda folder: SECRETS.encode(), read_secrets, "x.txt"),
    "titles": (lambda folder: TITLES.encode(), read_titles, "x.txt"),
    "expressions": (lambda folder: EXPRESSIONS.encode(), read_expressions, "x.txt"),
}
