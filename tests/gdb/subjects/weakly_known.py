"""Objects that registries of the module know weakly, each held deeper down. Prints {case: {"address", "holders": the types of
what holds it by gc.get_referrers, "weakly": how many weak references it has}}."""

import gc
import json
import time
import weakref


class Big:
    def __init__(self):
        self.data = [0] * 1000


class Slotted:
    __slots__ = ("data", "__weakref__")

    def __init__(self):
        self.data = [0] * 1000


class Holds(weakref.ref):
    """A reference with an attribute, which holds what it names."""


class Deep:
    def __init__(self, what):
        self.one = {"two": [[what]]}


by_list, by_set, by_values, by_proxy = [], weakref.WeakSet(), weakref.WeakValueDictionary(), []
by_keys, by_callback, by_attribute = weakref.WeakKeyDictionary(), [], []
held = Deep([Big() for _ in range(6)] + [Slotted()])
inner = held.one["two"][0][0]
by_list += [weakref.ref(inner[0]), weakref.ref(inner[6])]
by_set.add(inner[1])
by_values["v"] = inner[2]
by_proxy.append(weakref.proxy(inner[3]))
by_keys[inner[4]] = "value"
anchor = Big()
extra = Holds(anchor)
by_attribute.append(extra)
extra.kept = Slotted()
by_callback.append(weakref.ref(anchor, Deep))
cases = dict(zip(("list", "set", "values", "proxy", "keys", "alone", "slots"), inner))
cases["attribute"] = extra.kept
del extra, inner
gc.collect()
truth = {}
for name in list(cases):
    one = cases[name]
    holders = [type(h).__name__ for h in gc.get_referrers(one) if h is not cases and h is not globals()]
    truth[name] = {"address": id(one), "holders": sorted(holders), "weakly": weakref.getweakrefcount(one)}
del one, cases
print(json.dumps(truth), flush=True)
time.sleep(3600)
