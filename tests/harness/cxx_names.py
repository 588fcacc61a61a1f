"""C++ names of a few bytes that stand for more text than there is memory."""


def base36(number):
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return (base36(number // 36) if number >= 36 else "") + digits[number % 36]


def doubling(levels, times=2):
    """A function's name whose parameters hold each the one before several times."""
    return "_Z1f" + "St4pairIiiE" + "".join("S_I" + f"S{base36(k)}_" * times + "E" for k in range(levels))
