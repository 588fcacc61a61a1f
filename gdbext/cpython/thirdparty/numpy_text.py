"""The text that `repr` of a small numpy array gives, at numpy's default print options; numpy itself is not needed.

The rules are those of numpy/_core/arrayprint.py (`FloatingFormat`, `_formatArray`, `array_repr`), 1.14 and later: eight digits, the
shortest that tell a number, one column width per array, lines of 75 characters.
"""

DIGITS, WIDTH, IMPLIED = 8, 75, ("bool", "int64", "float64")
_EXACT = {"e": 3, "f": 6, "d": 15}  # decimal digits that a float of this width always keeps (numpy.finfo().precision)


def text(name, shape, dtype, code, held, version, shortest):
    """`array([1. , 2.5])`. `name`: of the class, "array" for ndarray; `held`: values as nested lists; `version`: of numpy, as a tuple of ints;
    `shortest(value, code)` -> the shortest decimal that gives the float of this width back."""
    flat = list(_flat(held, len(shape)))
    if not flat:
        inner = "[]"
    elif code == "?":
        inner = _nested(held, len(shape), lambda v: ("" if not shape else " ") + "True" if v else "False", name)
    elif code in _EXACT:
        inner = _nested(held, len(shape), _floats(flat, code, version, shortest), name)
    else:
        width = max(len(str(v)) for v in flat)
        inner = _nested(held, len(shape), lambda v: str(v).rjust(width), name)
    extras = [f"shape={shape}"] if not flat and shape != (0,) else []
    if dtype not in IMPLIED or not flat:
        extras.append("dtype=" + {"longlong": "int64", "ulonglong": "uint64"}.get(dtype, dtype))
    if not extras:
        return f"{name}({inner})"
    head, tail = f"{name}({inner},", ", ".join(extras) + ")"
    fits = len(head) - (head.rfind("\n") + 1) + len(tail) + 1 <= WIDTH
    return head + (" " if fits else "\n" + " " * (len(name) + 1)) + tail


def number(value, code, version, short):
    """A float scalar; `short`: the shortest decimal that gives it back. Rules: numpy/_core/src/multiarray/scalartypes.c.src, `format_*`."""
    most = 10.0 ** _EXACT[code] if version >= (2, 3) and code != "d" else 1e16
    if code == "d" or value - value != 0:
        return repr(value)
    if value and not 1e-4 <= abs(value) < most:
        whole, fraction, power = _scientific(short, value)
        return f"{whole}{'.' if fraction else ''}{fraction}e{power}"
    whole, fraction, _ = _positional(short, value, 20)
    return f"{whole}.{fraction or '0'}"


def _flat(held, depth):
    if not depth:
        yield held
        return
    for part in held:
        yield from _flat(part, depth - 1)


def _nested(held, depth, word, name):
    """Brackets and line breaks; `word`: a value's text."""

    def rows(values, depth, indent, width):
        if not depth:
            return word(values)
        if depth > 1:
            inner = (rows(part, depth - 1, indent + " ", width - 1) for part in values)
            return "[" + ("," + "\n" * (depth - 1) + indent).join(inner) + "]"
        done, line = "", indent
        for i, value in enumerate(values):
            shown = word(value)
            if len(line) > len(indent) and len(line) + len(shown) > width - 1:
                done, line = done + line.rstrip() + "\n", indent
            line += shown + (", " if i < len(values) - 1 else "")
        return "[" + (done + line)[len(indent) :] + "]"

    return rows(held, depth, " " * (len(name) + 2), WIDTH - 1)


def _floats(flat, code, version, shortest):
    """-> a function from a value to its text, in the form and width that suit all of them."""
    finite = [v for v in flat if v - v == 0]
    sizes = [abs(v) for v in finite if v]
    most = 10.0 ** min(DIGITS, _EXACT[code]) if version >= (2, 3) else 1e8
    scientific = bool(sizes) and (max(sizes) >= most or min(sizes) < 0.0001 or max(sizes) / min(sizes) > 1000)
    parts = [(_scientific if scientific else _positional)(shortest(v, code), v) for v in finite] or [("", "", "")]
    left, right = max(len(p[0]) for p in parts), max(len(p[1]) for p in parts)
    exponent = max(len(p[2]) for p in parts)
    after = right + (exponent + 1 if scientific else 0)
    if len(finite) < len(flat):
        left = max(left, 3 - after - 1 + any(v < 0 for v in flat if v == v and v - v != 0))
    known = dict(zip(map(_key, finite), parts))

    def word(value):
        if value - value != 0:
            return ("nan" if value != value else "inf" if value > 0 else "-inf").rjust(left + after + 1)
        whole, fraction, power = known[_key(value)]
        if scientific:
            if len(fraction) < right:  # the column's further digits are the number's own, not zeros
                whole, _, fraction = f"{value:.{right}e}".partition("e")[0].partition(".")
            return f"{whole.rjust(left)}.{fraction}e{power[0]}{power[1:].rjust(exponent - 1, '0')}"
        return f"{whole.rjust(left)}.{fraction.ljust(right)}"

    return word


def _key(value):
    return value, str(value)[0] == "-"  # 0.0 and -0.0 are equal


def _positional(short, value, digits=DIGITS):
    """ "12", "5", "": what stands before and after the point."""
    from decimal import Decimal

    whole, _, fraction = format(Decimal(short), "f").partition(".")
    if len(fraction) > digits:
        whole, _, fraction = f"{value:.{digits}f}".partition(".")
    return whole, fraction.rstrip("0"), ""


def _scientific(short, value):
    """ "1", "25", "+10": the same, and the exponent."""
    from decimal import Decimal

    digits = Decimal(short).as_tuple().digits
    shown = max(0, len("".join(map(str, digits)).rstrip("0")) - 1)
    mantissa, _, power = f"{value:.{min(shown, DIGITS)}e}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    return whole, fraction.rstrip("0"), power
