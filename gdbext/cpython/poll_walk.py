"""A walk through a loop's bytecode: whether, as its objects stand now, it goes round and only asks, counts and pauses.

The walk begins at the loop's head. A condition that the objects at hand decide is followed as they decide it; any other is
followed both ways. The loop only asks if each way leads back to its head, past calls that only ask, pause, look at a clock or
compute. What the decisions rest on, and what would lead out of the loop if it were otherwise, is what the loop waits for.
"""

from __future__ import annotations

from typing import Any

from .. import log
from ..errors import GdbextError
from . import bytecode, poll_calls, poll_values
from .bytecode import Step
from .frames import Code
from .machine import Machine, State, bound, code_of
from .objects import Object
from .poll_values import UNKNOWN, Ask, Bound, Value
from .stack_depths import writers

MAX_STEPS = 1500  # instructions of one walk, all of its calls and ways together
MAX_DEPTH = 5  # functions in one another
UNSEEN = Value()
_OTHER = frozenset(
    """RERAISE YIELD_VALUE ENTER_EXECUTOR INTERPRETER_EXIT RETURN_GENERATOR BEFORE_WITH SETUP_WITH BEFORE_ASYNC_WITH
    SETUP_ASYNC_WITH LOAD_SPECIAL IMPORT_NAME STORE_SUBSCR DELETE_SUBSCR CALL_FUNCTION_EX STORE_SLICE""".split()
)  # leave the function, or do more than ask
_OUTWARD = ("STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF")


class _OtherError(GdbextError):
    """The code does something else, or may leave the loop."""


class Walk(Machine):
    """A walk through one function. `variables`: its own, by name; `spaces`: its globals and builtins."""

    null = Value(poll_values.NOTHING)

    def __init__(self, code: Code, variables: dict[str, Any], spaces: Any, budget: list[int] | None = None) -> None:
        super().__init__(code)
        self.fast, self.spaces = variables, spaces
        self.budget = budget if budget is not None else [MAX_STEPS]
        self.pauses = self.ends = self.unsure = False  # it pauses; it ends by itself; what it asks for cannot be read
        self.probes = False  # it only asks whether another way leads out of the loop
        self.head, self.last, self.depth = -1, -1, 0
        self.turned: set[int] = set()
        self.visited: set[int] = set()
        self.asks: list[Ask] = []
        self.returns: list[Value] = []
        self.written: set[str] = set()  # attributes and globals that the loop itself changes

    # ---- whole walks ---------------------------------------------------------------------------------------------
    def round(self, start: int, end: int, lasti: int) -> list[Ask]:
        """What the loop waits for; [] where it may do something else, or does not stand where its walk goes."""
        self.head, self.last, self.turned = start, end, {start}
        fast = self._unsure(self.fast, start, end)
        self._run([State(start, [UNSEEN] * 24, fast)])
        if self.returns:
            raise _OtherError(f"{self.code.qualname} leaves the loop")
        if self.ends and not self.pauses:
            raise _OtherError(f"{self.code.qualname} may be at work, and end")
        if not any(at <= lasti < self.steps[at].behind for at in self.visited):
            raise _OtherError(f"{self.code.qualname} is not where its loop only asks")
        asks = [ask for ask in self.asks if ask.kind not in ("Clock", "Pause")]
        return list({ask.key: ask for ask in asks}.values())

    def call(self) -> Value:
        """The value of a function that only asks, with what it rests on."""
        self._run([State(0, [], dict(self.fast))])
        asks = tuple(self.asks) + tuple(ask for value in self.returns for ask in value.asks)
        kept = {repr(value.held) if not isinstance(value.held, Object) else value.held.address for value in self.returns}
        if len(kept) > 1 and any(value.held is poll_values.RAISES for value in self.returns):
            raise _OtherError(f"{self.code.qualname} may end by an exception, or not")
        return Value(self.returns[0].held if len(kept) == 1 else UNKNOWN, asks)

    def _unsure(self, fast: dict[str, Any], start: int, end: int) -> dict[str, Any]:
        """The variables, without the values of those that a loop stores. What else it stores is noted in `written`."""
        found = dict(fast)
        for at, step in self.steps.items():
            if not start <= at <= end or "STORE" not in step.name and "DELETE" not in step.name:
                continue
            if step.name in _OUTWARD:
                cell = self.bytes.variable(step.argument) if step.name == "STORE_DEREF" else ""
                self.written.add(cell or self.bytes.name(step.argument))
                found.pop(cell, None)
            elif step.name == "STORE_FAST":
                found.pop(self.bytes.variable(step.argument), None)
            elif step.name.startswith("STORE_FAST_"):
                found.pop(self.bytes.variable(step.argument >> 4), None)
                if step.name == "STORE_FAST_STORE_FAST":
                    found.pop(self.bytes.variable(step.argument & 15), None)
        return found

    def _run(self, todo: list[State]) -> None:
        while todo:
            state: State | None = todo.pop()
            while state is not None:
                self.budget[0] -= 1
                step = self.steps.get(state.at)
                if self.budget[0] < 0 or step is None:
                    raise _OtherError(f"{self.code.qualname} is too long to be followed")
                self.visited.add(state.at)
                ways = self._step(state, step)
                ways = [way for way in ways if self._goes_on(way, step)]
                state = ways[0] if ways else None
                todo += ways[1:]

    def _goes_on(self, way: State, step: Step) -> bool:
        """Whether a way is followed. A loop's head ends it: that of the loop itself, or one that it has come to before."""
        if way.at > step.offset or way.at == step.behind:
            return True
        if way.at in self.turned:
            return False
        self.turned.add(way.at)
        way.fast = self._unsure(way.fast, way.at, step.offset)
        return True

    # ---- one instruction -----------------------------------------------------------------------------------------
    def _step(self, state: State, step: Step) -> list[State]:
        name, stack = step.name, state.stack
        if "JUMP" in name or name in ("SEND", "FOR_ITER", "YIELD_FROM"):
            return self._jump(state, step)
        if name in ("RETURN_VALUE", "RETURN_CONST"):
            self.returns.append(stack[-1] if name == "RETURN_VALUE" else Value(self.bytes.constant(step.argument)))
            return []
        if name in _OTHER or self.probes and name in _OUTWARD:
            raise _OtherError(f"{self.code.qualname} does more than ask ({name}, line {self.code.line(step.offset)})")
        if name == "RAISE_VARARGS":
            return self._handler(state, step)
        if name.startswith("CALL") and "INTRINSIC" not in name:
            raised = self._call(state, step)
            if raised:
                return self._handler(state, step)
        elif name == "SETUP_FINALLY":
            state.blocks.append((step.target or 0, len(stack)))
        elif name == "POP_BLOCK":
            state.blocks.pop() if state.blocks else None
        elif not self.do(state, step):
            self._any(stack, step)
        state.at = step.behind
        return [state]

    @staticmethod
    def _any(stack: list[Value], step: Step) -> None:
        """An instruction of which only the effect on the stack's depth is known."""
        effect = step.effect()
        if effect > 0:
            stack += [UNSEEN] * effect
        elif effect < 0:
            del stack[effect:]
        if effect <= 0 and stack and not step.name.startswith(("STORE_", "POP_", "DELETE_", "LIST_", "SET_", "MAP_")):
            stack[-1] = UNSEEN

    def _handler(self, state: State, step: Step) -> list[State]:
        """The way of a call that raises: to its handler."""
        for start, end, target, depth, lasti in self.bytes.handlers():
            if start <= step.offset < end:
                kept = 24 - self._base() + depth if self.head >= 0 else depth
                return [State(target, state.stack[:kept] + [UNSEEN] * (lasti + 1), state.fast, state.blocks)]
        if state.blocks:
            target, depth = state.blocks.pop()
            return [State(target, state.stack[:depth] + [UNSEEN] * 6, state.fast, state.blocks)]
        if not self.depth:
            raise _OtherError(f"{self.code.qualname} ends by an exception")
        self.returns.append(Value(poll_values.RAISES))
        return []

    def _base(self) -> int:
        """How many values lie on the stack at the loop's head."""
        return len(writers(self.code)[1].get(self.head, ()))

    # ---- jumps ---------------------------------------------------------------------------------------------------
    def _jump(self, state: State, step: Step) -> list[State]:
        name, stack = step.name, state.stack
        target = step.target
        below = self._receiver()
        if name in ("SEND", "YIELD_FROM") and isinstance(stack[below].held, poll_values.Awaitable):
            return self._limited(state, step, stack[below].held)
        if name == "YIELD_FROM":  # 3.9, 3.10: an await of what only pauses or asks
            stack.pop()
            state.at = step.behind
            return [state]
        assert target is not None
        if name == "SEND":  # an await of what only pauses or asks: its value is what the call gave
            stack.pop()
            if self.minor.send_keeps:
                stack.append(stack[below + 1])
            self.visited |= {at for at in self.steps if step.offset <= at < target}  # it stands there meanwhile
            state.at = target
            return [state]
        if name == "FOR_ITER":
            self.ends = self.ends or target > self.last >= 0 or step.offset == self.head
            done = state.copy(target)
            effect = step.effect(jump=True)
            done.stack = done.stack[:effect] if effect < 0 else done.stack + [UNSEEN] * effect
            stack.append(UNSEEN)
            state.at = step.behind
            return [state] if step.offset == self.head else [state, done]
        if name == "JUMP_IF_NOT_EXC_MATCH":  # it is the exception that is meant
            del stack[-2:]
            state.at = step.behind
            return [state]
        if "_IF_" not in name:
            state.at = target
            return [state]
        return self._decided(state, step, target)

    def _limited(self, state: State, step: Step, awaited: poll_values.Awaitable) -> list[State]:
        """An await that its time limit ends."""
        if not awaited.limited:
            raise _OtherError(f"{self.code.qualname} waits without a time limit")
        target = step.target or step.behind
        self.visited |= {at for at in self.steps if step.offset <= at < target}
        if self.head >= 0:
            self.asks += awaited.asks
        return self._handler(state, step)

    def _decided(self, state: State, step: Step, target: int) -> list[State]:
        name, stack = step.name, state.stack
        value, jumps = self.jumps(stack[-1], name)
        gone, stays = state.copy(target), state.copy(step.behind)
        stays.stack.pop()
        if not name.endswith("_OR_POP"):
            gone.stack.pop()
        if jumps is None:
            return self._undecided(gone, stays, value, step)
        taken, left = (gone, stays) if jumps else (stays, gone)
        if value.asks and not self.probes and (self.head < 0 or self._leads_out(left, step)):
            self.asks += value.asks
        return [taken]

    def _undecided(self, gone: State, stays: State, value: Value, step: Step) -> list[State]:
        """The ways of a decision that cannot be told. A loop that may end by it ends by itself: by the time, or after so many
        rounds. What other processes change is taken to stand as long as the loop goes on to ask for it."""
        if self.probes and any(ask.kind in poll_values.UNREAD for ask in value.asks):
            return []  # the loop asks that anyway
        if self.probes or self.head < 0:
            return [gone, stays]
        ways = [way for way in (gone, stays) if not self._leads_out(way.copy(way.at), step)]
        if not ways:
            raise _OtherError(f"{self.code.qualname} does more than ask, whatever the answer")
        if len(ways) < 2:
            self.unsure = True
            asks = tuple(ask for ask in value.asks if ask.kind in poll_values.UNREAD)
            self.asks += asks
            self.ends = self.ends or not asks
        return ways

    def _leads_out(self, way: State, step: Step) -> bool:
        """Whether the other way of a decision leads to something else than the loop's next round."""
        other = Walk(self.code, way.fast, self.spaces, [200])
        other.head, other.last, other.turned, other.written = self.head, self.last, {self.head}, self.written
        other.probes, other.depth = True, self.depth
        if not other._goes_on(way, step):
            return False
        try:
            other._run([way])
        except (GdbextError, IndexError) as e:
            log.passed_over(e, "it is the answer")
            return True
        return bool(other.returns)

    # ---- values --------------------------------------------------------------------------------------------------
    def given(self, value: Any) -> Value:
        return UNSEEN if isinstance(value, dict) else Value(value)

    def held(self, value: Any) -> Any:
        return value.held

    def local(self, state: State, name: str) -> Value:
        held = state.fast.get(name, UNKNOWN)
        return held if isinstance(held, Value) else Value(held)

    def named(self, name: str) -> Value:
        if name in self.written:
            return UNSEEN
        for n, space in enumerate(self.spaces):
            found = space.lookup(name) if hasattr(space, "lookup") else poll_values.entry(space, name)
            if found is not None:
                return Value(found, () if n else (Ask("Flag", space, name, name),))
        return UNSEEN

    def attribute(self, owner: Value, name: str) -> Value:
        if name in self.written:
            return UNSEEN
        found = poll_calls.attribute(owner, name)
        if isinstance(found.held, Bound) and found.held.computes:
            found = self._function(found.held.function, [Value(found.held.owner)], {})
            if found.held is poll_values.RAISES:
                raise _OtherError(f"{name} of {self.code.qualname} ends by an exception")
        return found

    def super_attribute(self, called: Any, kind: Any, owner: Any, name: str) -> Value:
        return UNSEEN

    def truth(self, value: Value) -> Value:
        return poll_values.truth(value)

    def decided(self, truth: Value) -> bool | None:
        return truth.held if isinstance(truth.held, bool) else None

    def is_none(self, value: Value) -> bool | None:
        return poll_values.is_none(value)

    def unary(self, name: str, value: Value) -> Value:
        known = self.truth(value) if name == "Not" else UNSEEN
        return Value(not known.held if isinstance(known.held, bool) else UNKNOWN, known.asks)

    def binary(self, name: str, left: Value, right: Value, in_place: bool) -> Value:
        return Value(UNKNOWN, poll_values.unread(left.asks + right.asks))

    def compare(self, name: str, left: Value, right: Value) -> Value:
        return poll_values.compared(name, left, right)

    def item(self, whole: Value, key: Value) -> Value:
        return poll_values.item(whole, poll_values.plain(key.held))

    def made(self, kind: str, members: list[Value]) -> Value:
        return Value([one.held for one in members], tuple(ask for one in members for ask in one.asks))

    def parts(self, whole: Value, count: int) -> list[Value]:
        known = isinstance(whole.held, tuple) and len(whole.held) == count
        return [Value(part, whole.asks) for part in (whole.held if known else (UNKNOWN,) * count)]

    # ---- instructions that only a walk does ----------------------------------------------------------------------
    def _store_deref(self, state: State, step: Step) -> None:
        state.fast[self.bytes.variable(step.argument)] = state.stack.pop()

    def _load_name(self, state: State, step: Step) -> None:
        state.stack.append(self.named(self.bytes.name(step.argument)))

    def _end_send(self, state: State, step: Step) -> None:
        del state.stack[self._receiver() : -1]

    def _receiver(self) -> int:
        """Where the receiver of a SEND lies, from the stack's end."""
        return -3 if self.minor.null_below_send else -2

    def _check_exc_match(self, state: State, step: Step) -> None:
        state.stack[-1] = Value(True)

    def _push_exc_info(self, state: State, step: Step) -> None:
        state.stack.append(UNSEEN)

    # ---- calls ---------------------------------------------------------------------------------------------------
    def _call(self, state: State, step: Step) -> bool:
        """Does a call. -> whether it raises, as its object stands."""
        called, plain, named = self.taken(state, step)
        found = poll_calls.called(called, plain, named)
        if found is None:
            found = self._python(called, plain, named)
        self.pauses = self.pauses or any(ask.kind in ("Clock", "Pause") for ask in found.asks)
        self.unsure = self.unsure or found.held is poll_values.RAISES and any(a.kind in poll_values.UNREAD for a in found.asks)
        if found.held is poll_values.RAISES:
            self.asks += found.asks
            return True
        state.stack.append(found)
        return False

    def _python(self, called: Value, arguments: list[Value], named: dict[str, Value]) -> Value:
        """A call of a function written in Python."""
        held = called.held
        if isinstance(held, Bound) and held.function.isa("function"):
            return self._function(held.function, [Value(held.owner), *arguments], named)
        if isinstance(held, Object) and held.isa("function"):
            return self._function(held, arguments, named)
        raise _OtherError(f"{self.code.qualname} calls what is not known to ask only")

    def _function(self, function: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
        rt, code = self.rt, code_of(function)
        if self.depth >= MAX_DEPTH or code.flags & bytecode.GENERATOR:
            raise _OtherError(f"{code.qualname} goes too deep, or gives values one by one")
        spaces = (rt.object(rt.target.u64(function.address + rt.layout["func.func_globals"])), self.spaces[1])
        inner = Walk(code, bound(function, code, arguments, named), spaces, self.budget)
        inner.depth = self.depth + 1
        inner.written, inner.probes = self.written, self.probes
        found = inner.coroutine() if code.flags & bytecode.COROUTINE else inner.call()
        self.pauses = self.pauses or inner.pauses
        return found

    def coroutine(self) -> Value:
        """As `call`, for a coroutine whose instructions begin with those that make it."""
        start = next((at for at, step in self.steps.items() if step.name == "RETURN_GENERATOR"), None)
        first = 0 if start is None else self.steps[start].behind
        self._run([State(first, [UNSEEN], dict(self.fast))])
        return Value(self.returns[0].held if len(self.returns) == 1 else UNKNOWN, tuple(self.asks))
