# cython: language_level=3
async def compiled(what):
    return await what


async def generated(what):
    yield 1
    await what
    yield 2


async def twice(what):
    await compiled(what)


class Awaitable:
    def __init__(self, what):
        self.what = what

    def __await__(self):
        return (yield from self.what.__await__())
