"""An expression over private content tells its type, its count and whether it is None: two frames that differ in prompts and
tokens alone answer each drawn expression with the same bytes, errors included."""

import os
import random
import re
import sys
import threading

import pytest

from gdbext.access.proc import ProcTarget
from gdbext.cpython import content
from gdbext.cpython.expressions import condition, evaluate
from gdbext.cpython.hiding import Hidden
from gdbext.cpython.reprs import Repr
from gdbext.cpython.runtime import open_runtime
from gdbext.engines import registry
from gdbext.engines.sensitive_names import HANDLERS
from gdbext.errors import GdbextError

pytestmark = pytest.mark.own_interpreter

if sys.version_info < (3, 9):
    pytest.skip("the process that is read is this one, and CPython 3.9 is the oldest that is read", allow_module_level=True)
PRIVATE = registry.sensitive_names() | HANDLERS
# Of one length, with one space in the same place; tokens of one size.
PROMPTS = ("My name is HUSH Miller.", "Mr SECRE TXYZW has gout")
TOKENS = ([918273, 3, 918274, 918273], [746351, 746352, 8, 2])


class Request:
    kind = "generate"

    def __init__(self, prompt, ids):
        self.request_id, self.prompt, self.prompt_token_ids, self.block_ids = "req-1", prompt, ids, [3, 5, 7]
        self.messages = [{"role": "user", "content": prompt}, {prompt.split()[0]: ids}]
        self.params = {"temperature": 0.5, "stop": [prompt[:4]], "note": prompt, 7: ids}
        self.pair, self.by_text, self.remark = ("req-1", prompt), {prompt: 1, "req-1": 2}, "about " + prompt
        self.tokens, self.output, self.max_tokens, self.parent = set(ids[:3]), ids[1:], 16, None

    @property
    def is_long(self):
        return len(self.prompt) > 5

    @property
    def first(self):
        return self.prompt_token_ids[0] + 1

    @property
    def failing(self):
        return self.by_text[self.remark]


def park(request, prompt, ids, x, data, config, ready, end):
    ready.set()
    end.wait()
    return request, prompt, ids, x, data, config


@pytest.fixture(scope="module")
def frames():
    """The frames of two threads that wait in `park`, each with its own content."""
    end, threads = threading.Event(), []
    for prompt, ids in zip(PROMPTS, TOKENS):
        ready = threading.Event()
        given = (Request(prompt, ids), prompt, ids, {"req-1": ids, 3: prompt}, (prompt, ids), {"api_key": prompt[:4], "size": 4})
        threads.append(threading.Thread(target=park, args=(*given, ready, end), daemon=True))
        threads[-1].start()
        assert ready.wait(60)
    rt = open_runtime(ProcTarget(os.getpid()))
    found = [next(f for f in rt.frames(rt.thread(t.native_id)) if f.function == "park") for t in threads]
    yield rt, found
    end.set()


def told(rt, frame, text, last=None):
    """What an expression tells: its value's text, or the error; without the addresses, which are another process's as well."""
    try:
        value = evaluate(rt, text, frame, last=last, private=PRIVATE)
        said = f"{getattr(value, 'type_name', type(value).__name__)} {content.evaluated(Repr(private=PRIVATE), text, value)}"
    except GdbextError as e:
        said = f"error: {e}"
    return re.sub(r"0x[0-9a-f]+", "0x", said)


LISTS = "ids request.block_ids request.prompt_token_ids request.messages request.output data request.pair request.tokens".split()
DICTS = "x config request.params request.by_text request.messages[0] request.messages[1] request.__dict__ vars(request)".split()
TEXTS = "prompt request.prompt request.remark request.request_id request.kind request.params['stop'][0] config['api_key']".split()
THINGS = "request request.is_long request.first request.failing request.parent request.max_tokens request.nothing".split()
KEYS = "'prompt' 'req-1' 'HUSH' 'My' 'content' 'note' 'stop' 'api_key' 'size' 'temperature' 'prompt_token_ids' 7 3".split()
NUMBERS = "0 0 1 2 3 -1 5 16 99 918273 True 2.5".split()
WORDS = "'My' 'HUSH' 'a' '' 'req-1' 'prompt' 'block_ids' 'nothing'".split()
FIELDS = "prompt prompt_token_ids block_ids remark tokens parent is_long __class__ nothing real start shape".split()
OF_LISTS = "len list tuple set sorted reversed enumerate max min sum any all type bool".split()
OF_TEXT = "startswith endswith find index count split strip partition".split()
ANY = "type bool hex abs len dir vars help range sum list".split()
ORDER = "== != < <= > >= is".split() + ["in", "not in", "is not"]
SUMS = "+ - * / // % ** & | ^ << >>".split()


class Drawn:
    """Expressions by a grammar, from a seed: most of them make sense. Each method draws one of a kind, `depth` deep at most;
    `bound`: the names that comprehensions around it have bound."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def one(self, depth, bound=()):
        pick = self.random
        if pick.random() < 0.1:
            return self.odd(depth - 1, bound)
        return pick.choice((self.number, self.text, self.list, self.truth, self.thing, self.error))(depth - 1, bound)

    def odd(self, depth, bound):
        """What need not make sense."""
        pick = self.random
        return f"{pick.choice(ANY)}({self.one(depth, bound) if depth > 0 else pick.choice(LISTS + TEXTS)})"

    def number(self, depth, bound):
        pick = self.random
        if depth <= 0:
            return pick.choice([*NUMBERS, "ids[0]", "request.max_tokens", "request.prompt_token_ids[1]", "x['req-1'][0]"])
        return pick.choice(
            (
                lambda: f"len({self.list(depth - 1, bound)})",
                lambda: f"len({self.text(depth - 1, bound)})",
                lambda: f"{self.list(depth - 1, bound)}[{self.number(depth - 2, bound)}]",
                lambda: f"({self.number(depth - 1, bound)} {pick.choice(SUMS)} {self.number(depth - 1, bound)})",
                lambda: f"{pick.choice(['max', 'min', 'sum'])}({self.list(depth - 1, bound)})",
                lambda: f"({self.text(depth - 1, bound)}).{pick.choice(['find', 'count', 'index'])}({pick.choice(WORDS)})",
                lambda: f"({self.list(depth - 1, bound)}).{pick.choice(['count', 'index'])}({self.number(depth - 1, bound)})",
                lambda: f"({self.number(depth - 1, bound)} if {self.truth(depth - 1, bound)} else {pick.choice(NUMBERS)})",
                lambda: f"sum({self.number(depth - 1, (*bound, 'n'))} for n in {self.list(depth - 1, bound)})",
            )
        )()

    def text(self, depth, bound):
        pick = self.random
        if depth <= 0:
            return pick.choice([*TEXTS, *WORDS, *bound])
        return pick.choice(
            (
                lambda: f"{self.text(0, bound)}[{pick.choice(['', '0', '1', '-3'])}:{self.number(depth - 1, bound)}]",
                lambda: f"{self.text(depth - 1, bound)}[{self.number(depth - 1, bound)}]",
                lambda: f"({self.text(depth - 1, bound)}).{pick.choice(['lower', 'upper', 'strip', 'title', 'nothing'])}()",
                lambda: f"({self.text(depth - 1, bound)} + {self.text(depth - 1, bound)})",
                lambda: f"({pick.choice(DICTS)})[{pick.choice(KEYS)}]",
                lambda: f"({pick.choice(DICTS)})[{self.text(depth - 1, bound)}]",
                lambda: f"({pick.choice(DICTS)}).get({pick.choice([self.text(depth - 1, bound), pick.choice(KEYS)])}, 'a')",
                lambda: f"({self.text(depth - 1, bound)} or {self.text(depth - 1, bound)})",
            )
        )()

    def list(self, depth, bound):
        pick = self.random
        if depth <= 0:
            views = (f"({d}).{v}()" for d in DICTS for v in ("keys", "values", "items"))
            return pick.choice([*LISTS, *DICTS, *views, "range(5)"])
        return pick.choice(
            (
                lambda: self.list(0, bound),
                lambda: f"{self.list(0, bound)}[{pick.choice(['', '0', '1'])}:{self.number(depth - 1, bound)}]",
                lambda: f"{pick.choice(['list', 'tuple', 'set', 'sorted'])}({self.list(depth - 1, bound)})",
                lambda: f"[{self.one(depth - 1, (*bound, 'v'))} for v in {self.list(depth - 1, bound)}]",
                lambda: f"[v for v in {self.list(depth - 1, bound)} if {self.truth(depth - 1, (*bound, 'v'))}]",
                lambda: f"[w for v, w in ({pick.choice(DICTS)}).items() if {self.truth(depth - 1, (*bound, 'v'))}]",
                lambda: f"{{{self.one(depth - 1, (*bound, 'v'))} for v in {self.list(depth - 1, bound)}}}",
                lambda: f"{{v: {self.one(depth - 1, (*bound, 'v'))} for v in {self.list(depth - 1, bound)}}}",
                lambda: f"({self.text(depth - 1, bound)}).split()",
                lambda: f"[{self.one(depth - 1, bound)}, {self.one(depth - 1, bound)}]",
                lambda: f"{{'block_ids': {self.one(depth - 1, bound)}, 'kind': {self.one(depth - 1, bound)}}}",
                lambda: f"list(zip({self.list(depth - 1, bound)}, {self.list(depth - 1, bound)}))",
                lambda: f"range({self.number(depth - 1, bound)})",
            )
        )()

    def truth(self, depth, bound):
        pick = self.random
        if depth <= 0:
            return pick.choice([*THINGS, *LISTS, *TEXTS, *bound, *bound, *bound, "prompt is None"])
        sides = pick.choice((self.number, self.text, self.list))
        return pick.choice(
            (
                lambda: f"({sides(depth - 1, bound)} {pick.choice(ORDER)} {sides(depth - 1, bound)})",
                lambda: f"({pick.choice(bound or ['prompt'])} {pick.choice(ORDER)} {self.one(depth - 1, bound)})",
                lambda: f"({sides(depth - 1, bound)} {pick.choice(['==', 'is', '!='])} None)",
                lambda: f"({self.one(depth - 1, bound)} in {self.list(depth - 1, bound)})",
                lambda: f"({pick.choice(WORDS)} in {self.text(depth - 1, bound)})",
                lambda: f"({self.text(depth - 1, bound)}).{pick.choice(OF_TEXT)}({pick.choice(WORDS)})",
                lambda: f"(not {self.truth(depth - 1, bound)})",
                lambda: f"({self.truth(depth - 1, bound)} {pick.choice(['and', 'or'])} {self.truth(depth - 1, bound)})",
                lambda: f"{pick.choice(['any', 'all'])}({self.truth(depth - 1, (*bound, 'v'))} for v in {self.list(0, bound)})",
                lambda: f"hasattr({self.thing(depth - 1, bound)}, {self.text(depth - 1, bound)})",
                lambda: f"isinstance({self.one(depth - 1, bound)}, type({self.one(depth - 1, bound)}))",
            )
        )()

    def thing(self, depth, bound):
        pick = self.random
        if depth <= 0:
            return pick.choice([*THINGS, "request", "request", *bound])
        return pick.choice(
            (
                lambda: f"{pick.choice([*THINGS, *bound, 'request'])}.{pick.choice(FIELDS)}",
                lambda: f"getattr({self.thing(depth - 1, bound)}, {self.text(depth - 1, bound)})",
                lambda: f"({self.list(depth - 1, bound)})[{self.number(depth - 1, bound)}]",
                lambda: f"type({self.one(depth - 1, bound)})",
                lambda: f"{pick.choice(OF_LISTS)}({self.list(depth - 1, bound)})",
            )
        )()

    def error(self, depth, bound):
        """What is wrong of itself, with a value in it that an error may tell."""
        pick, value = self.random, self.one(depth - 1, bound) if depth > 0 else self.random.choice([*TEXTS, "ids[0]", "data"])
        return pick.choice(
            (
                f"getattr(request, {value})",
                f"({value}).nothing",
                f"(1, 2)[{value}]",
                f"ids[{value}]",
                f"{{'a': 1}}[{value}]",
                f"range({value}, {value}, 0)",
                f"({value}) + None",
                f"len({value})",
                f"'abc'.find({value})",
                f"({value})()",
                f"({value}) << 9**9",
                f"{value} if",
                f"x[{value}].prompt",
            )
        )


def differing(frames, seed, count, depth=3):
    """-> (the expressions whose two answers differ or hold content, how many answers were values that are no content)."""
    rt, (left, right) = frames
    drawn, bad, open_ = Drawn(seed), [], 0
    for _ in range(count):
        text = drawn.one(depth)
        answers = told(rt, left, text), told(rt, right, text)
        if answers[0] != answers[1] or re.search("SECR|TXYZW|gout|74635", answers[1]):  # no expression has these
            bad.append((text, *answers))
        open_ += "private" not in answers[0] and not answers[0].startswith("error")
    return bad, open_


def test_two_prompts_answer_every_drawn_expression_alike(frames):
    bad, told_openly = differing(frames, 48, 400)
    assert not bad, bad[0]
    assert told_openly > 40  # and what is no content is answered


HANDED = """
getattr(request, request.prompt)
request.prompt_token_ids[request.prompt_token_ids[0]]
range(request.prompt_token_ids[1])
len(range(ids[0]))
hasattr(request, prompt)
prompt.__class__.nothing
request.prompt == 'My name is HUSH Miller.'
'HUSH' in prompt
prompt[11:15] == 'HUSH'
prompt.split()
len(prompt.split())
[1 for t in ids if t == 918273]
[0, 1][ids[0] == 918273]
ids[0] is 918273
{t for t in ids}
{1: 2}[ids[0]]
request.by_text['My name is HUSH Miller.']
request.by_text[prompt]
request.failing
request.first
sorted(ids)
ids.index(918273)
request.__dict__['prompt'] > 'N'
vars(request)['prompt'].lower()
[v for v in vars(request).values()][1] + ''
list(vars(request).items())[1][1] == 'a'
request.pair == ('req-1', 'My name is HUSH Miller.')
{request.pair: 1}
list({request.pair: 1})[0][1].upper()
1 if ids[0] > 800000 else 2
request.params[7][0] + 0
x['req-1'][0] * 2
x[3] + ''
config['api_key'] == 'My n'
f'{prompt}'
prompt % 3
int(ids[0])
ids[0].real
'abc'[ids[1]]
(1).nothing[prompt]
request.messages[0]['content']
request.messages[1].get('My')
'My' in request.messages[1]
request.output[0] - 1
id(ids[1])
ids[1] is request.block_ids[0]
(x).items()
{'block_ids': x}
{'block_ids': x}['block_ids']
[{'block_ids': x}]
""".strip().splitlines()


@pytest.mark.parametrize("text", HANDED)
def test_no_way_of_asking_tells_the_two_apart(frames, text):
    rt, (left, right) = frames
    answers = told(rt, left, text), told(rt, right, text)
    assert answers[0] == answers[1]
    assert "HUSH" not in answers[0].replace(text, "") and "918273" not in answers[0].replace(text, "")


@pytest.mark.parametrize(
    "text,answer",
    [
        ("len(request.prompt)", "23"),
        ("len(ids), type(ids)", "(4, <class 'list'>)"),
        ("prompt is None", "False"),
        ("prompt != None", "True"),
        ("request.parent is None", "True"),
        ("isinstance(ids[0], int)", "True"),
        ("len(ids[1:]) + 1", "4"),
        ("request.request_id + '.'", "'req-1.'"),
        ("request.by_text['req-1']", "2"),
        ("request.block_ids[1] * 2", "10"),
        ("max(request.block_ids)", "7"),
        ("request.is_long", "True"),
        ("request.params['temperature'] > 0", "True"),
        ("request.max_tokens - 1", "15"),
        ("bool(prompt) and request.kind", "'generate'"),
        ("config['size']", "4"),
        ("prompt", "<23 characters, private: -show-content shows them>"),
        ("ids", "<4 items, private: -show-content shows them>"),
        ("ids[0]", "<a number, private: -show-content shows it>"),
        ("ids[0] + 1", "<private: -show-content shows it>"),
    ],
)
def test_type_count_none_and_all_that_is_no_content_are_answered(frames, text, answer):
    rt, (frame, _) = frames
    assert told(rt, frame, text).split(" ", 1)[1] == answer


def test_an_index_outside_tells_the_index_that_was_written(frames):
    rt, (frame, _) = frames
    assert "index 9 is outside the list of 4" in told(rt, frame, "ids[9]")


def test_with_the_option_the_same_expressions_are_answered(frames):
    rt, (frame, _) = frames
    assert evaluate(rt, "ids[0] + 1", frame) == 918274
    hidden = evaluate(rt, "ids", frame, private=PRIVATE)
    assert isinstance(hidden, Hidden)
    assert evaluate(rt, "$py[0] + 1", frame, last=hidden) == 918274
    assert isinstance(evaluate(rt, "$py[0] + 1", frame, last=hidden, private=PRIVATE), Hidden)


def test_a_condition_may_ask_and_its_error_tells_nothing(frames):
    rt, (frame, _) = frames
    assert condition(rt, "ids[0] == 918273", frame, private=PRIVATE)
    with pytest.raises(GdbextError) as caught:
        condition(rt, "getattr(request, prompt)", frame, private=PRIVATE)
    assert "HUSH" not in str(caught.value)
    with pytest.raises(GdbextError, match="no attribute nothing"):
        condition(rt, "request.nothing", frame, private=PRIVATE)
