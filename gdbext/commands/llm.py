"""llm: what the pack has."""

from __future__ import annotations

from ..errors import GdbextError
from ..render.fields import Field, Fields, each
from ..render.text import Style, table
from ..session.command import Answer, Args, Command
from ..session.session import Session
from . import table as registry


class Llm(Command):
    """List the ten commands of the first hour; `llm all` lists every one, `llm guide` helps by symptom.

    (gdb) llm
    (gdb) llm all
    (gdb) llm guide hang
    (gdb) help pybt"""

    name = "llm"
    fields = Fields(
        Field("commands", [Fields(*each(str, "name group summary"))], "all of them"),
        Field("first", [str], "the ten that `llm` shows"),
        Field("guide", Fields(rest=str), "with `guide`, alone: each topic's text"),
    )
    operand = "[all | guide [TOPIC]]"
    tool, tool_operand = "guide", "guide [TOPIC]"
    tool_summary = "Say which tools help in which trouble: a list of troubles, or of one TOPIC what to ask and what it shows."
    takes_target = False
    standalone = True

    def complete(self, session: Session, text: str) -> list[str]:
        from .guide import topics

        return list(topics()) if text.startswith("guide ") else ["all", "guide"]

    def run(self, session: Session, args: Args) -> Answer:
        if args.operand_text not in ("", "all"):
            return guide(args.operand_text)
        every = args.operand_text == "all"
        rows = [{name: getattr(e, name) for name in ("name", "group", "summary")} for e in registry.entries()]

        def text(style: Style) -> str:
            parts = []
            for title, entries in registry.grouped() if every else [(registry.FIRST_TITLE, registry.first())]:
                lines = [[style.name(e.name), e.summary] for e in entries]
                parts.append(style.title(title) + "\n" + table(lines, ["  command", "does"], style).split("\n", 1)[1])
            others, topics = style.typed("llm all"), style.typed("llm guide")
            more = "" if every else f"{len(rows) - len(registry.FIRST)} more commands: {others}. By symptom: {topics}. "
            more += "(R): it resumes processes; (U): it writes to them, with -unsafe alone. " * every
            return "\n".join(parts) + f"\n{more}Details: {style.typed('help COMMAND')}; every command takes -json."

        return Answer(self.fields.of(commands=rows, first=list(registry.FIRST)), text)


def guide(words: str) -> Answer:
    """The guide, or one topic of it."""
    from .guide import topics

    known = topics()
    first, _, topic = words.partition(" ")
    topic = topic.strip()
    if first != "guide" or (topic and topic not in known):
        raise GdbextError(f"llm: takes nothing, all, or guide and one of {', '.join(known)}")
    if topic:
        return Answer(Llm.fields.of(guide={topic: known[topic]}), known[topic])
    rows = [[name, text.split("\n")[0]] for name, text in known.items()]
    return Answer(
        Llm.fields.of(guide=known), lambda style: table([[style.name(n), t] for n, t in rows], ["llm guide", "trouble"], style)
    )
