"""llm-requests: what runs, what waits, and for what."""

from ..answers.kv import tokens_of
from ..engines.registry import kv_releases
from ..render.text import escape, seconds, table
from ..session.command import Answer, Command
from ..session.engine_selection import CONTENT, POOL, view_of


class LlmRequests(Command):
    __doc__ = f"""List the requests of the engine: running, waiting, and what each one waits for.

      (gdb) llm-requests
      request    queue    status   tokens  prompt  computed  output  blocks  age    blocked by
      request-7  running  RUNNING     133     32       132     101       2  1.24 s
      request-9  waiting  WAITING      64     64         0       0       0  0.31 s  blocks: needs 4 of group 0, 1 free; request-7 holds 2

    Only the head of the queue waits for something of its own; the others wait for it. Token ids only with -show-content.

    Reads {kv_releases()}."""

    name = "llm-requests"
    group = "kv"
    standalone = True  # without -on the engine that runs alone here is taken
    options = (POOL, CONTENT)

    def run(self, session, args):
        view = view_of(session, args)
        cache = view.cache()
        found = []
        for r in cache.requests:
            data = {
                "request_id": escape(r.request_id),
                "status": escape(r.status),
                "queue": r.queue,
                "tokens": tokens_of(r),
                "prompt_tokens": r.prompt_tokens,
                "computed_tokens": r.computed_tokens,
                "output_tokens": r.output_tokens,
                "blocks": sum(len(b) for b in r.blocks.values()),
                "blocked_by": r.blocked_by or None,
                "preemptions": r.preemptions,
                "age": r.age,
                "known": r.known,
            }
            if r.content is not None:
                data["content"] = r.content
            found.append(data)
        counts = {}
        for r in cache.requests:
            counts[r.queue or "unlisted"] = counts.get(r.queue or "unlisted", 0) + 1

        def text(style):
            rows = [
                [
                    r["request_id"],
                    r["queue"],
                    r["status"],
                    *(
                        ("" if r[k] is None else str(r[k]))
                        for k in ("tokens", "prompt_tokens", "computed_tokens", "output_tokens", "blocks")
                    ),
                    str(r["preemptions"] or ""),
                    "" if r["age"] is None else seconds(r["age"]),
                    escape(r["blocked_by"] or ""),
                ]
                for r in found
            ]
            head = [
                "request",
                "queue",
                "status",
                "tokens",
                "prompt",
                "computed",
                "output",
                "blocks",
                "preempted",
                "age",
                "blocked by",
            ]
            lines = [", ".join(f"{n} {q}" for q, n in counts.items()) or "no requests"]
            if rows:
                lines.append(table(rows, head, style, right=head[3:10]))
            for r in found:
                for key, tokens in (r.get("content") or {}).items():
                    lines.append(f"{r['request_id']} {key}: {tokens}")
            return "\n".join(lines)

        return Answer({"requests": found, "counts": counts, "limits": cache.limits, "engine": cache.engine}, text, view.partial)
