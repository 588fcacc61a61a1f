"""Calls in one another that come and go quickly, for subjects whose stacks are read while they run."""


def leaf(n):
    return n + 1


def inner(n):
    yield n
    yield leaf(n)


def outer(n):
    """A generator below another, and a generator expression."""
    yield from inner(n)
    yield from (leaf(i) for i in range(3))


def key(n):
    """For `sorted`, whose C code calls back."""
    return leaf(-n)
