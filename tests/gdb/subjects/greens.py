"""Greenlets that are suspended in each other, parked, never started, ended, and of a second thread; the truth is what each wrote
of its own frames as it switched away. With "exposed" greenlet was also asked for their frames, which relinks them
from 3.12 on."""

import json
import sys
import threading

import greenlet

stacks, go, ready = {}, threading.Event(), threading.Event()


class Named(greenlet.greenlet):
    pass


def told(frame):
    found = stacks[hex(id(greenlet.getcurrent()))] = []
    while frame:
        found.append([frame.f_code.co_name, frame.f_lineno])
        frame = frame.f_back


def leaf(how):
    if how == "parked":
        return main.switch(told(sys._getframe()))
    if how == "outer":
        return inner.switch("inner", told(sys._getframe()))
    print(json.dumps(truth()), flush=True)
    go.wait()


def work(how, depth):
    return work(how, depth - 1) if depth else through_c(how)


def through_c(how):
    return sorted([0], key=lambda _: leaf(how) or 0)


def second():
    def switches():
        greenlet.getcurrent().parent.switch(told(sys._getframe()))

    global theirs
    theirs = Named(switches)
    theirs.switch()
    ready.set()
    go.wait()


def truth():
    known = {"parked": parked, "outer": outer, "main": main, "theirs": theirs, "inner": inner, "fresh": fresh, "done": done}
    if "exposed" in sys.argv:
        assert all(known[name].gr_frame for name in ("parked", "outer", "main", "theirs"))
    names = {name: hex(id(one)) for name, one in known.items()}
    return {"names": names, "stacks": stacks, "main_tid": threading.get_native_id(), "other_tid": other.native_id}


other = threading.Thread(target=second, daemon=True)
other.start()
ready.wait()
main = greenlet.getcurrent()
parked, fresh, done = greenlet.greenlet(work), greenlet.greenlet(work), greenlet.greenlet(lambda: None)
outer, inner = greenlet.greenlet(work), greenlet.greenlet(lambda how, _: work(how, 1))
done.switch()
parked.switch("parked", 2)
outer.switch("outer", told(sys._getframe()) or 1)
