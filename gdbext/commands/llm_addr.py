"""llm-addr: what an address is."""

from __future__ import annotations

import re
from typing import Any

from ..answers import addresses as answers
from ..answers.addresses import KvPlaces
from ..api.choosing import POOL, cores_of, view_of
from ..engines.registry import kv_releases
from ..errors import GdbextError
from ..render.jsonline import Address
from ..session.command import CONTENT, Answer, Args, Command, Option, UsageError
from ..session.evaluation import gdb_address, hidden_names
from ..session.session import Session

_KEYS = ("rank", "layer", "part", "block", "slot", "head", "element")


class LlmAddr(Command):
    __doc__ = f"""Say what an address is: KV layer, block, slot, head and owning requests; a tensor; a Python object; a mapping.

      (gdb) llm-addr 0x7f2b4c0a1200
      0x7f2b4c0a1200: KV cache, TP0 layer 3, k, block 17, slot 5, head 2, element 8
        request-7: place 1 of its table, token 133
      (gdb) llm-addr $rdi+8                                 a register, or one of gdb's variables
      (gdb) llm-addr -kv layer=3,block=17,slot=5,head=2     the other way: where it lies, on every rank

    An address of a worker is looked up in the selected process first, then in its siblings. Of cores the first
    that -on './A.core ./B.core' names counts as selected.

    Reads {kv_releases()}."""

    name = "llm-addr"
    group = "kv"
    fields = answers.ANSWER
    operand = "ADDR"
    options = (
        Option("kv", "str", "the address of layer=L,block=B[,slot=S][,head=H][,part=k|v][,element=E][,rank=R]", metavar="PLACE"),
        POOL,
        CONTENT,
    )

    def run(self, session: Session, args: Args) -> Answer:
        if args.kv is not None:
            return self.reverse(session, args)
        address = self.address(session, args)
        cores = cores_of(session, args.on)
        on = cores[0].core if cores else args.on
        target = session.target(on)
        partial = session.partial(target)
        data = answers.ANSWER.of(address=Address(address))
        places = places_of(session, args)
        kv = places.find(address)
        partial += places.partial if kv is not None else [p for p in places.partial if p != "unstopped"]
        mapping = None
        try:
            mapping = target.mapping_at(address)
        except GdbextError as e:
            partial.append(str(e))
        if mapping is not None:
            data.update(kind="mapping", mapping=answers.mapping_data(mapping, address))
        if kv is not None:
            data.update(kind="kv", tensor=kv.pop("tensor"), kv=kv)
        elif mapping is not None:
            data.update(answers.object_fields(target, address, hidden_names(session, args, on)))
        elif address >= 1 << 63:
            data["kind"] = "kernel"
        return Answer(data, lambda style: "\n".join(answers.address_lines(address, data, style)), partial)

    @staticmethod
    def address(session: Session, args: Args) -> int:
        """The address that is asked for: a number, or in gdb a register or convenience variable and what is added to it."""
        text = args.operand_text
        if re.fullmatch(r"0x[0-9a-fA-F]{1,16}|[0-9]{1,20}", text):
            return int(text, 0)
        if not re.fullmatch(r"\$\w*(\s*[+-]\s*(0x[0-9a-fA-F]{1,16}|[0-9]{1,20}))?", text):
            raise UsageError("llm-addr: give one address, such as: llm-addr 0x7f2b4c0a1200, llm-addr $sp or llm-addr $rdi+8")
        if args.on:
            raise UsageError(f"llm-addr: {text} is of the thread that is selected in gdb: give a number with -on")
        return gdb_address(session, text)

    def reverse(self, session: Session, args: Args) -> Answer:
        """Where a layer's block lies."""
        wanted: dict[str, Any] = {}
        for word in args.kv.split(","):
            key, _, value = word.strip().partition("=")
            if key not in _KEYS or not value or (key not in ("part", "rank") and not value.isdecimal()):
                raise UsageError(f"-kv {args.kv}: {word!r} is none of {', '.join(k + '=…' for k in _KEYS)}")
            wanted[key] = value if key in ("part", "rank") else int(value)
        if "layer" not in wanted or "block" not in wanted:
            raise UsageError("-kv needs at least layer= and block=, such as: llm-addr -kv layer=3,block=17,slot=5,head=2")
        places = places_of(session, args)
        found = places.addresses(wanted)

        def text(style: Any) -> str:
            return "\n".join(
                f"{f['rank']} layer {f['layer']}{' (' + f['name'] + ')' if f['name'] else ''} {f['part']}: "
                f"{style.address(hex(f['address']))} ({f['device']})"
                for f in found
            )

        return Answer(answers.ANSWER.picked("kv addresses").of(kv=wanted, addresses=found), text, places.partial)


def places_of(session: Session, args: Args) -> KvPlaces:
    """The KV cache of the engine that the command's process belongs to, to look addresses up in."""
    places: KvPlaces = answers.KvPlaces(lambda: view_of(session, args))
    return places
