"""Objects about types and templates as `VALUES`; prints their reprs. argv: a seed."""

import json
import random
import sys
import time
import typing

draw = random.Random(int(sys.argv[1]))


class Mine:
    class Inner:
        pass


EXPRESSIONS = """int | str | None~list[int]~dict[str, Mine]~tuple[int, ...]~tuple[()]~int | Mine.Inner | list[int]~
list[T] | None~T~C~D~P~tuple[*tuple[int, str]]~type[Mine]~Alias~Holder.Within~g.__type_params__~Mine.Inner | None~
t"plain"~t"a{n!r:>3}b{n + 1}"~t"{n:{n}}{Mine}"~sentinel("GONE")~Alias | int~frozenset[int | None]"""
STATEMENTS = """type Alias = list[int]
class Holder:
    type Within[A] = dict[str, A]
def g[A, *Bs, **Cs](x: A) -> A: return x"""
n = 3
NEW = sys.version_info >= (3, 12)
if NEW:
    T, C, D = typing.TypeVar("T"), typing.TypeVar("C", covariant=True), typing.TypeVar("D", contravariant=True)
    P = typing.ParamSpec("P")
    exec(STATEMENTS)
SIMPLE = [int, str, Mine, Mine.Inner, type(None), ...] + ([T, C] if NEW else [])


def drawn(depth=0):
    if depth == 3 or draw.random() < 0.3:
        return draw.choice(SIMPLE)
    parts = [drawn(depth + 1) for _ in range(draw.randrange(1, 4))]
    found = draw.choice([list, dict, tuple, set])[tuple(parts)]
    return found | None if sys.version_info >= (3, 10) and draw.random() < 0.3 else found


VALUES = [drawn() for _ in range(25)]
for expression in EXPRESSIONS.split("~"):
    try:
        VALUES.append(eval(expression.strip()))
    except (SyntaxError, TypeError, NameError):
        pass  # newer than this Python
try:
    scope = {}
    exec("lazy import json\nlazy import xml.dom.minidom as m\nlazy from collections import OrderedDict as d", scope)
    VALUES += [v for v in list(scope.values()) if type(v).__name__ == "lazy_import"]
except SyntaxError:
    pass
OF_3_15 = sys.version_info >= (3, 15)  # an alias within another is named with its module there, which only a call tells
VALUES = [v for v in VALUES if not (OF_3_15 and "Alias |" in repr(v))]
print(json.dumps([repr(v) for v in VALUES]), flush=True)
time.sleep(3600)
