"""The shape of what /proc says of a process that may not be traced."""

from __future__ import annotations

from ..render.fields import NUMBER, REAL, TEXT, VALUE, Field, Fields, each

THREAD = Fields(
    *each(NUMBER, "tid"),
    *each(str, "name state"),
    Field("cpu", REAL, "share of a processor"),
    Field("woke", NUMBER, "how often it went to sleep"),
    Field("wchan", TEXT),
)
LOG = Fields(  # verdict/untraced.py
    Field("levels", Fields(rest=VALUE), "{level: lines} at its end"),
    Field("quiet", float, "since it was written to", "s"),
    *each(str, "error"),
    Field("frames", [str], "of the last traceback"),
)
UNTRACED = Fields(  # verdict/untraced.py, engines/endpoints.py, shm_files.py, nccl_ras.py
    *each(str, "label"),
    *each(NUMBER, "pid"),
    *each(str, "state"),
    Field("seconds", REAL),
    Field("threads", [THREAD]),
    Field(
        "http",
        (
            Fields(
                Field("port", int),
                Field("health", (str, int)),
                Field("metrics", Fields(rest=VALUE)),
                Field("tokens", REAL, "the sum of its counters of tokens"),
                Field("moved", (bool, None), "whether that changed in a second, where requests run"),
                Field("unread", NUMBER, "bytes of a request that the server had not read in two seconds"),
            ),
            None,
        ),
    ),
    Field(
        "rings",
        [Fields(Field("name", str), Field("readers", int), Field("unread", [int], "by each"), *each(bool, "moved mapped"))],
        "in shared memory",
    ),
    Field("log", (LOG, None), "of a log that is a file"),
    Field(
        "ras", (Fields(Field("port", int), *each(VALUE, "nccl communicators"), Field("said", [str]), Field("error", TEXT)), None)
    ),
)
