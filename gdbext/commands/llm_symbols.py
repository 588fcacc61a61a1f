"""llm-symbols: reads the symbols of chosen libraries of an attached process."""

from __future__ import annotations

from typing import Any

from ..control.quirks import stuck_open
from ..errors import GdbextError, NotFoundError
from ..render.fields import Field, Fields
from ..render.text import Style, escape
from ..session.command import Answer, Args, Command, Option
from ..session.session import NEEDS_GDB, Session


class LlmSymbols(Command):
    """Read the symbols of a shared library of an attached process into gdb, so that break, bt and print know it.

    After llm-attach gdb has read only what the stacks needed: `break f` waits (is pending) where f is in another library, and
    says in which; it is set once that library is read. LIB is a part of the library's path. Without LIB: the libraries that
    are loaded, and whether gdb has read them. A large one (libtorch_cpu) takes seconds, and the process is stopped meanwhile.

        (gdb) break cpu_attention_with_kv_cache
        Breakpoint 1 (cpu_attention_with_kv_cache) pending.
        (cpu_attention_with_kv_cache is in /…/vllm/_C.abi3.so, which gdb has not read: llm-symbols _C.abi3.so does it)
        (gdb) llm-symbols _C.abi3.so
        /…/vllm/_C.abi3.so  read
    """

    name = "llm-symbols"
    group = "kernels"
    fields = Fields(Field("libraries", [Fields(Field("file", str), Field("read", bool, "gdb has its symbols"))]))
    operand = "[LIB]"
    takes_target = False
    gdb_only = True
    options = (Option("on", "str", "of this attached process instead of the selected one", metavar="WHAT"),)

    def run(self, session: Session, args: Args) -> Answer:
        if not session.in_gdb:
            raise GdbextError(NEEDS_GDB)
        from ..access.live_gdb import selected  # it needs gdb: a lazy module would be loaded by whoever looks through sys.modules

        if args.on is None:
            return self.of_selected(session, args.operand_text)
        with selected(session.attached_inferior(args.on)):
            return self.of_selected(session, args.operand_text)

    @staticmethod
    def of_selected(session: Session, wanted: str) -> Answer:
        """The answer for the selected process."""
        from ..access import libraries

        session.target()  # one line where no process is selected
        chosen = [path for path in libraries.loaded() if wanted in path]
        if not chosen:
            raise NotFoundError(f"no library of the process has {wanted!r} in its path: llm-symbols alone lists them")
        if wanted:
            with stuck_open.OpensEnd():
                for path in chosen:
                    libraries.read_symbols(path)
        now = libraries.loaded()
        rows: list[dict[str, Any]] = [{"file": escape(path), "read": now.get(path, False)} for path in chosen]
        missing = [r["file"] for r in rows if wanted and not r["read"]]

        def text(style: Style) -> str:
            return "\n".join(f"{style.file(r['file'])}  {'read' if r['read'] else 'not read'}" for r in rows)

        return Answer(LlmSymbols.fields.of(libraries=rows), text, [f"not read: {', '.join(missing)}"] if missing else [])
