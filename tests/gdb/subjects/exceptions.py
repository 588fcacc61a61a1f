"""A subject: threads that are stopped in the middle of handling exceptions of every kind. Says what `traceback` makes of each."""

import json
import os
import sys
import threading
import time
import traceback


class Own(Exception):
    """Without a `__str__` of its own."""


class Coded(Exception):
    def __str__(self):
        return "made by code"


def fail(kind, *args):
    raise kind(*args)


def deep(count):
    if count:
        deep(count - 1)
    raise RecursionError("enough")


def from_dict():
    return {"a": 1}["req-7"]


def from_file():
    return open("/nonexistent/file")


def chained():
    try:
        from_dict()
    except KeyError:
        fail(Own, "while at it", 2)


def caused():
    try:
        from_file()
    except OSError as e:
        raise ValueError("bad set-up") from e


def hushed():
    try:
        from_dict()
    except KeyError:
        raise Own() from None


def cyclic():
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    raise one


def long_chain():
    error = None
    for n in range(300):
        fresh = ValueError(n)
        fresh.__context__ = error
        error = fresh
    raise error


def decode():
    b"abc\xff".decode("utf-8")


def encode():
    "x\u20ac".encode("latin-1")


def syntax():
    compile("a = = 1", "<made up>", "exec")


def missing():
    import nothing_of_that_name  # noqa: F401


def noted():
    error = Own("with notes")
    error.__notes__ = ["first note", "second"]
    raise error


def grouped():
    members = []
    for work in (from_dict, decode, chained):
        try:
            work()
        except Exception as e:
            members.append(e)
    raise ExceptionGroup("several", members + [ExceptionGroup("inner", [Own("x")])])  # noqa: F821


def of_generator():
    def values():
        try:
            yield 1
        finally:
            fail(Own, "in a generator")

    next(values(), None)
    each = values()
    next(each)
    each.throw(KeyError("thrown"))


WORKS = {
    "dict": from_dict,
    "file": from_file,
    "chained": chained,
    "caused": caused,
    "hushed": hushed,
    "cyclic": cyclic,
    "long": long_chain,
    "decode": decode,
    "encode": encode,
    "syntax": syntax,
    "missing": missing,
    "noted": noted,
    "deep": lambda: deep(50),
    "generator": of_generator,
    "two": lambda: fail(Own, 1, "b"),
    "none": lambda: fail(Own),
    "other": lambda: fail(Own, [1, None]),
    "coded": lambda: fail(Coded, "x"),
    "exit": lambda: fail(SystemExit, 3),
    "text": lambda: fail(Own, "tab\there \x1b[31m"),
}
if sys.version_info >= (3, 11):
    WORKS["group"] = grouped


def entries(error):
    return [[f.name, f.filename, f.lineno] for f in traceback.extract_tb(error.__traceback__)]


def told(error, depth=0, seen=()):
    if error is None:
        return None
    here = {"type": type(error).__qualname__, "address": id(error), "str": str(error), "entries": entries(error)}
    if id(error) in seen or depth > 30:
        return here
    seen = seen + (id(error),)
    here.update(
        cause=told(error.__cause__, depth + 1, seen),
        context=told(error.__context__, depth + 1, seen),
        suppress=error.__suppress_context__,
        notes=list(getattr(error, "__notes__", [])),
        members=[told(m, depth + 1, seen) for m in getattr(error, "exceptions", ())],
    )
    return here


class Parked(threading.Thread):
    """Runs one of the works, and stays in the `except` (or the other places below) until the program ends."""

    def __init__(self, label):
        super().__init__(daemon=True, name="park " + label)
        self.label, self.ready, self.truth = label, threading.Event(), None

    def say(self, error):
        text = traceback.format_exception(type(error), error, error.__traceback__)
        self.truth = {"error": told(error), "text": "".join(text)}
        self.ready.set()
        threading.Event().wait()

    def run(self):
        if self.label == "finally":
            try:
                self.in_finally()
            except Own:
                pass
        elif self.label == "exit of with":
            with self:
                fail(Own, "inside with")
        elif self.label == "nested":
            try:
                from_dict()
            except KeyError:
                self.within()
        elif self.label == "idle":
            try:
                from_dict()
            except KeyError:
                pass
            self.ready.set()
            threading.Event().wait()
        else:
            try:
                WORKS[self.label]()
            except BaseException as e:
                self.say(e)

    def within(self):
        try:
            fail(ValueError, "inner")
        except ValueError as e:
            self.outer = sys.exc_info()[1].__context__
            self.say(e)

    def in_finally(self):
        try:
            fail(Own, "to finally")
        finally:
            self.say(sys.exc_info()[1])

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.say(error)


def main():
    threads = [Parked(label) for label in [*WORKS, "finally", "exit of with", "nested", "idle"]]
    for thread in threads:
        thread.start()
        thread.ready.wait()
    truth = {t.label: t.truth for t in threads if t.truth}
    print(json.dumps({"pid": os.getpid(), "truth": truth}), flush=True)
    if "raise" in sys.argv:
        while True:
            time.sleep(0.5)
            try:
                fail(Own, "on its way", 7)
            except Own:
                pass
    if "abort" in sys.argv:
        try:
            chained()
        except Own:
            os.abort()
    if "unhandled" in sys.argv:
        sys.excepthook = lambda *error: time.sleep(1000)
        caused()
    time.sleep(1000)


main()
