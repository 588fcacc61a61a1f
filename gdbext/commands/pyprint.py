"""pyprint: any Python object of the process."""

from __future__ import annotations

from typing import Any

from ..answers.frames import frame_place
from ..answers.shapes import LOCAL, SELECTED
from ..answers.variables import CHANGED, fields_of, settled_rows
from ..cpython import content, objects, reprs
from ..errors import GdbextError
from ..render.fields import TEXT, Field, Fields
from ..render.jsonline import Address
from ..render.text import Style, escape
from ..session.command import CONTENT, Answer, Args, Command, Option
from ..session.evaluation import ANY, FRAME, value_of
from ..session.session import Session


class PyPrint(Command):
    """Print a Python object of the process, read from memory: nothing is called.

      (gdb) pyprint self.scheduler.running[0].request_id
      'req-7-a3f1'
      (gdb) pyprint any(r.num_computed_tokens > 500 for r in self.scheduler.running)
      False
      (gdb) pyprint vllm.distributed.parallel_state:_TP.rank
      1

    EXPR: names of the selected Python frame, attributes, items, slices, comparisons, arithmetic, any/all/len/type/min/max/sum,
    `module:global`, `0x7f…` (an object's address), `$py` (the last result). An object without a repr of its own shows its
    fields below it. What only running code could answer (calls, most properties) is refused by name."""

    name = "pyprint"
    tool = "object"
    group = "python"
    fields = Fields(
        Field("type", str),
        Field("address", TEXT),
        Field("repr", str, "what Python's own `repr` says, where the pack knows the type"),
        Field("truncated", bool),
        Field("fields", [LOCAL], "its attributes"),
        Field("frame", (SELECTED, None), "whose name it is"),
    )
    operand = "EXPR"
    completion = "expression"
    options = (Option("full", help="the whole value, however long"), ANY, FRAME, CONTENT)

    def run(self, session: Session, args: Args) -> Answer:
        if not args.operand_text:
            raise GdbextError("give an expression, such as: pyprint self")
        target, looks, last = session.target(args.on), [], session.last

        def read() -> Any:
            if not target.is_stopped:
                target.invalidate()
            session.last = last  # $py of each reading is what it was before the first
            looks.append(_Look(session, args))
            return looks[-1].rows

        value, *fields = settled_rows(target, read)
        found, shown, text = looks[-1].found, looks[-1].shown, value["text"]
        own = {"type": value["type"], "address": value["address"], "repr": text, "truncated": shown.truncated, "fields": fields}
        data = self.fields.of(**own, frame=frame_place(found.frame) if found.frame is not None else None)
        partial = session.partial(target)
        if text == CHANGED:
            partial.append("it changed each time that it was read, and is not shown")
        elsewhere = found.frame is not None and found.frame.level != session.level(args.on)

        def people(style: Style) -> str:
            lines = [escape(text, keep="\n" if shown.multiline else "")]
            for f in data["fields"]:
                lines.append(f"  {style.value('.' + f['name'])} = {f['text']}")
            if elsewhere:
                lines.append(style.dim(f"({escape(found.where)})"))
            if shown.truncated:
                lines.append(style.dim("(cut; -full shows it whole)"))
            return "\n".join(lines)

        return Answer(data, people, partial)


class _Look:
    """One reading of the value: `found`, `shown` (its `Repr`), `rows`: it, then its fields, as `variables` has them."""

    def __init__(self, session: Session, args: Args) -> None:
        rt, self.found = value_of(session, args)
        session.last = value = self.found.value
        private = session.private(rt, args)
        self.shown = reprs.Repr(reprs.FULL if args.full else reprs.NORMAL, private)
        text = content.evaluated(self.shown, args.operand_text, value)
        is_object = isinstance(value, objects.Object)
        kind = escape(getattr(value, "type_name", type(value).__name__))
        self.rows = [{"name": "", "type": kind, "address": Address(value.address) if is_object else None, "text": text}]
        if is_object and (self.shown.opaque or text.startswith("<") or _has_more(value)) and not value.isa("type", "module"):
            self.rows += fields_of(value, private, reprs.FULL if args.full else reprs.SHORT)


def _has_more(value: objects.Object) -> bool:
    """Whether an object has attributes beside what its text shows: of a class of Python code that inherits the `__repr__` of a
    list, a str, an exception."""
    own = value.type.is_python and value.type.python_definer("__repr__") is None
    return own and any(not name.startswith("__") for name, _ in value.fields())
