"""Engine instances: the processes of one running engine under one name, from its command line and environment.

Sources: vLLM's config/kv_transfer.py and envs.py, SGLang's srt/server_args.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from .. import log
from ..access.files import json_of
from ..errors import GdbextError

if TYPE_CHECKING:
    from .rank import Rank

SHOWN = 120  # characters of a word that a user has chosen


@dataclass
class Spread:
    """What an engine's command line says of its ranks on several machines: this one is number `node` of `nodes` (None where not
    said), and is to have the numbers `here` of the `size` ranks of `group`. `head`: the address of the first machine."""

    group: str
    size: int
    here: list[int]
    nodes: int | None = None
    node: int | None = None
    head: str = ""


@dataclass
class Instance:
    """One running engine.

    * `number`: of its processes (`Rank.family`)
    * `role`: "prefill", "decode", "encode", "both"; '' where one instance does everything
    * `engine_id`: its id for other instances
    * `ports`: {what: port}
    * `serves`: the model's name
    * `dp_rank`: its own among data-parallel servers that are started one by one
    * `node`: the machine, '' for this one
    * `spread`: where its ranks are to be, None for one machine
    * `name`: unique among the instances here"""

    number: int = 0
    engine: str = ""
    role: str = ""
    engine_id: str = ""
    ports: dict[str, int] = field(default_factory=dict)
    serves: str = ""
    dp_rank: int | None = None
    node: str = ""
    name: str = ""
    spread: Spread | None = None

    def words(self) -> list[str]:
        """Words that may name it, the best first."""
        port = self.ports.get("http")
        words = [self.engine, self.role, f":{port}" if port else "", self.engine_id]
        return [word for word in words if word and ":" not in word[1:] and "/" not in word]

    def data(self) -> dict[str, Any]:
        """As JSON."""
        return {k: v[:SHOWN] if isinstance(v, str) else v for k, v in asdict(self).items()}

    def line(self) -> str:
        """For people."""
        words = [self.role, f"engine id {self.engine_id[:SHOWN]}" if self.engine_id else ""]
        words += [f"{'' if what == 'http' else what + ' '}port {port}" for what, port in self.ports.items()]
        words += [f"data-parallel rank {self.dp_rank}" if self.dp_rank is not None else ""]
        if self.spread is not None and self.spread.nodes:
            words.append(f"node {self.spread.node} of {self.spread.nodes}")
        words += [f"serves {self.serves[:SHOWN]}" if self.serves else ""]
        return ", ".join(filter(None, words))


class Words:
    """A command line's options by name, also `--name=value`."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.arguments = arguments

    def text(self, *names: str) -> str:
        """The value of the last of the options that is given, else ''."""
        found = ""
        for i, word in enumerate(self.arguments):
            name, given, value = word.partition("=")
            if name.replace("_", "-") in names and name.startswith("--"):
                found = value if given else (self.arguments[i + 1] if i + 1 < len(self.arguments) else "")
        return found

    def port(self, *names: str) -> int | None:
        """As `text`, of a port."""
        value = self.text(*names)
        return int(value) if value.isdigit() and 0 < int(value) < 65536 else None

    def json(self, name: str) -> dict[str, Any]:
        """An option whose value is a JSON object, with the additions of `--name.key value`; {} where it is none."""
        found: dict[str, Any] = {}
        try:
            value = json_of((self.text(name) or "{}").encode(), name)
            found.update(value if isinstance(value, dict) else {})
        except (GdbextError, ValueError) as e:
            log.note("%s of an engine is no JSON: %s", name, e)  # the engine has refused it too
        for i, word in enumerate(self.arguments):
            key, given, value = word.partition("=")
            if key.startswith(name + "."):
                found[key[len(name) + 1 :]] = value if given else (self.arguments[i + 1] if i + 1 < len(self.arguments) else "")
        return found


def port_in(environ: Mapping[str, str], name: str) -> int | None:
    """A port that the environment names."""
    return Words([f"--{name}={environ.get(name, '')}"]).port(f"--{name}".replace("_", "-"))


def of_family(ranks: Sequence[Rank], spec: Any) -> Instance:
    """The instance that the processes of one engine are."""
    top = next((r for r in ranks if r.role == "api-server" and r.parent is None and r.process.program()), None)
    found = Instance(ranks[0].family or 0, ranks[0].engine)
    program = top.process.program() if top is not None else None
    if top is not None and program is not None:
        spec.describe_instance(found, Words(program[2]), top.process.environ)
        found.spread = spec.spread(program[2])
    found.ports = {what: port for what, port in found.ports.items() if port}
    return found


def set_names(instances: Iterable[Instance]) -> None:
    """Gives each instance a unique name: the first of its words that no other instance has, else its number."""
    known = list(instances)
    count = Counter(word for one in known for word in set(one.words()))
    for one in known:
        one.name = next((word for word in one.words() if count[word] == 1), f"engine{one.number}")


def tell_apart(ranks: Sequence[Rank]) -> None:
    """Puts the name of the instance before labels that live processes of another instance have too."""
    places: dict[str, set[int | None]] = {}
    for rank in ranks:
        if not rank.zombie:
            places.setdefault(rank.short.lower(), set()).add(rank.family)
    for rank in ranks:
        if places.get(rank.short.lower(), set()) - {rank.family} and rank.instance is not None:
            rank.label = f"{rank.instance.name}:{rank.short}"
