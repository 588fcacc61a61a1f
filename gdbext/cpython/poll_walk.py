"""A walk through a loop's bytecode: whether, as its objects stand now, it goes round and only asks, counts and pauses.

The walk begins at the loop's head. A condition that the objects at hand decide is followed as they decide it; any other is
followed both ways. The loop only asks if each way leads back to its head, past calls that only ask, pause, look at a clock or
compute. What the decisions rest on, and what would lead out of the loop if it were otherwise, is what the loop waits for.

Instructions and their arguments: Python/bytecodes.c and Lib/dis.py of each minor; their effects: layouts/opcodes.json.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import log
from ..errors import GdbextError
from . import codes, poll_calls, poll_values
from .objects import Object
from .poll_stack import NULL, UNSEEN, StackWork
from .poll_values import UNKNOWN, Ask, Bound, Value
from .stack_depths import Step, exception_entries, steps, writers

if TYPE_CHECKING:
    from .frames import Code
    from .runtime import Runtime

MAX_STEPS = 1500  # instructions of one walk, all of its calls and ways together
MAX_DEPTH = 5  # functions in one another
_VARIADIC, _YIELDS, _COROUTINE = 0x04 | 0x08, 0x20 | 0x200, 0x80  # flags of a code object (Include/cpython/code.h)
_NEUTRAL = frozenset(
    "NOP RESUME CACHE NOT_TAKEN PRECALL EXTENDED_ARG COPY_FREE_VARS MAKE_CELL GEN_START GET_AWAITABLE END_FOR POP_ITER".split()
)
_OTHER = frozenset(
    """RERAISE YIELD_VALUE ENTER_EXECUTOR INTERPRETER_EXIT RETURN_GENERATOR BEFORE_WITH SETUP_WITH BEFORE_ASYNC_WITH
    SETUP_ASYNC_WITH LOAD_SPECIAL IMPORT_NAME STORE_SUBSCR DELETE_SUBSCR CALL_FUNCTION_EX STORE_SLICE""".split()
)  # leave the function, or do more than ask
_OUTWARD = ("STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF")


class _OtherError(GdbextError):
    """The code does something else, or may leave the loop."""


@dataclass
class _State:
    at: int
    stack: list[Value]
    fast: dict[str, Any]
    blocks: list[tuple[int, int]] = field(default_factory=list)  # 3.9, 3.10: handlers and the depth of the stack

    def copy(self, at: int) -> _State:
        return _State(at, list(self.stack), dict(self.fast), list(self.blocks))


class Walk(StackWork):
    """A walk through one function. `variables`: its own, by name; `spaces`: its globals and builtins."""

    def __init__(self, rt: Runtime, code: Code, variables: dict[str, Any], spaces: Any, budget: list[int] | None = None) -> None:
        self.rt, self.code, self.fast, self.spaces = rt, code, variables, spaces
        self.version = rt.version
        self.known = codes.opcodes(rt.version)
        self.steps: dict[int, Step] = rt.target.cached(("steps", code.address, code.first), lambda: steps(code))
        self.budget = budget if budget is not None else [MAX_STEPS]
        self.pauses = self.ends = self.unsure = False  # it pauses; it ends by itself; what it asks for cannot be read
        self.probes = False  # it only asks whether another way leads out of the loop
        self.head, self.last, self.depth = -1, -1, 0
        self.turned: set[int] = set()
        self.visited: set[int] = set()
        self.asks: list[Ask] = []
        self.returns: list[Value] = []
        self.written: set[str] = set()  # attributes and globals that the loop itself changes
        self._constants: dict[int, Any] = {}

    # ---- whole walks ---------------------------------------------------------------------------------------------
    def round(self, start: int, end: int, lasti: int) -> list[Ask]:
        """What the loop waits for; [] where it may do something else, or does not stand where its walk goes."""
        self.head, self.last, self.turned = start, end, {start}
        fast = self._unsure(self.fast, start, end)
        self._run([_State(start, [UNSEEN] * 24, fast)])
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
        self._run([_State(0, [], dict(self.fast))])
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
            if step.name in ("STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF"):
                cell = self._variable(self._cell(step.argument)) if step.name == "STORE_DEREF" else ""
                self.written.add(cell or self._name(step.argument))
                found.pop(cell, None)
            elif step.name == "STORE_FAST_STORE_FAST":
                found.pop(self._variable(step.argument >> 4), None)
                found.pop(self._variable(step.argument & 15), None)
            elif step.name == "STORE_FAST_LOAD_FAST":
                found.pop(self._variable(step.argument >> 4), None)
            elif step.name == "STORE_FAST":
                found.pop(self._variable(step.argument), None)
        return found

    def _run(self, todo: list[_State]) -> None:
        while todo:
            state: _State | None = todo.pop()
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

    def _goes_on(self, way: _State, step: Step) -> bool:
        """Whether a way is followed. A loop's head ends it: that of the loop itself, or one that it has come to before."""
        if way.at > step.offset or way.at == step.behind:
            return True
        if way.at in self.turned:
            return False
        self.turned.add(way.at)
        way.fast = self._unsure(way.fast, way.at, step.offset)
        return True

    # ---- one instruction -----------------------------------------------------------------------------------------
    def _step(self, state: _State, step: Step) -> list[_State]:
        name, stack = step.name, state.stack
        if "JUMP" in name or name in ("SEND", "FOR_ITER", "YIELD_FROM"):
            return self._jump(state, step)
        if name in ("RETURN_VALUE", "RETURN_CONST"):
            self.returns.append(stack[-1] if name == "RETURN_VALUE" else Value(self._constant(step.argument)))
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
            state.blocks.append((step.target(self.known["absolute"]) or 0, len(stack)))
        elif name == "POP_BLOCK":
            state.blocks.pop() if state.blocks else None
        elif name not in _NEUTRAL:
            work = getattr(self, "_" + name.lower(), None)
            if work is not None:
                work(state, step.argument)
            else:
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

    def _handler(self, state: _State, step: Step) -> list[_State]:
        """The way of a call that raises: to its handler."""
        if "code.co_exceptiontable" in self.rt.layout:
            pointer = self.rt.target.u64(self.code.address + self.rt.layout["code.co_exceptiontable"])
            for start, end, target, depth, lasti in exception_entries(self.rt.object(pointer).raw_bytes(1 << 20)):
                if start <= step.offset < end:
                    kept = 24 - self._base() + depth if self.head >= 0 else depth
                    return [_State(target, state.stack[:kept] + [UNSEEN] * (lasti + 1), state.fast, state.blocks)]
        elif state.blocks:
            target, depth = state.blocks.pop()
            return [_State(target, state.stack[:depth] + [UNSEEN] * 6, state.fast, state.blocks)]
        if not self.depth:
            raise _OtherError(f"{self.code.qualname} ends by an exception")
        self.returns.append(Value(poll_values.RAISES))
        return []

    def _base(self) -> int:
        """How many values lie on the stack at the loop's head."""
        return len(writers(self.code)[1].get(self.head, ()))

    # ---- jumps ---------------------------------------------------------------------------------------------------
    def _jump(self, state: _State, step: Step) -> list[_State]:
        name, stack = step.name, state.stack
        target = step.target(self.known["absolute"])
        below = -3 if self.version >= (3, 15) else -2  # a NULL lies between, from 3.15 on
        if name in ("SEND", "YIELD_FROM") and isinstance(stack[below].held, poll_values.Awaitable):
            return self._limited(state, step, stack[below].held)
        if name == "YIELD_FROM":  # 3.9, 3.10: an await of what only pauses or asks
            stack.pop()
            state.at = step.behind
            return [state]
        assert target is not None
        if name == "SEND":  # an await of what only pauses or asks: its value is what the call gave
            stack.pop()
            if self.version >= (3, 12):
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

    def _limited(self, state: _State, step: Step, awaited: poll_values.Awaitable) -> list[_State]:
        """An await that its time limit ends."""
        if not awaited.limited:
            raise _OtherError(f"{self.code.qualname} waits without a time limit")
        target = step.target(self.known["absolute"]) or step.behind
        self.visited |= {at for at in self.steps if step.offset <= at < target}
        if self.head >= 0:
            self.asks += awaited.asks
        return self._handler(state, step)

    def _decided(self, state: _State, step: Step, target: int) -> list[_State]:
        name, stack = step.name, state.stack
        value = stack[-1]
        keeps = name.endswith("_OR_POP")
        if name.endswith("NONE"):
            said = poll_values.is_none(value)
            jumps = said if said is None else said != name.endswith("NOT_NONE")
        else:
            value = poll_values.truth(value)
            said = value.held if isinstance(value.held, bool) else None
            jumps = said if said is None else said == ("TRUE" in name)
        gone, stays = state.copy(target), state.copy(step.behind)
        stays.stack.pop()
        if not keeps:
            gone.stack.pop()
        if jumps is None:
            return self._undecided(gone, stays, value, step)
        taken, left = (gone, stays) if jumps else (stays, gone)
        if value.asks and not self.probes and (self.head < 0 or self._leads_out(left, step)):
            self.asks += value.asks
        return [taken]

    def _undecided(self, gone: _State, stays: _State, value: Value, step: Step) -> list[_State]:
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

    def _leads_out(self, way: _State, step: Step) -> bool:
        """Whether the other way of a decision leads to something else than the loop's next round."""
        other = Walk(self.rt, self.code, way.fast, self.spaces, [200])
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

    # ---- loads and the stack -------------------------------------------------------------------------------------
    def _load_fast(self, state: _State, index: int) -> None:
        state.stack.append(self._local(state, index))

    _load_fast_check = _load_fast_borrow = _load_fast_and_clear = _load_fast

    def _load_deref(self, state: _State, index: int) -> None:
        state.stack.append(self._local(state, self._cell(index)))

    _load_classderef = _load_deref

    def _store_deref(self, state: _State, index: int) -> None:
        state.fast[self._variable(self._cell(index))] = state.stack.pop()

    def _cell(self, index: int) -> int:
        """The number of a variable in a cell; before 3.11 cells have numbers of their own."""
        L = self.rt.layout
        return index if self.version >= (3, 11) else index + self.rt.target.i32(self.code.address + L["code.co_nlocals"])

    def _local(self, state: _State, index: int) -> Value:
        name = self._variable(index)
        held = state.fast.get(name, UNKNOWN)
        return held if isinstance(held, Value) else Value(None if held is None else held)

    def _load_fast_load_fast(self, state: _State, pair: int) -> None:
        state.stack += [self._local(state, pair >> 4), self._local(state, pair & 15)]

    _load_fast_borrow_load_fast_borrow = _load_fast_load_fast

    def _store_fast(self, state: _State, index: int) -> None:
        state.fast[self._variable(index)] = state.stack.pop()

    def _store_fast_load_fast(self, state: _State, pair: int) -> None:
        self._store_fast(state, pair >> 4)
        self._load_fast(state, pair & 15)

    def _store_fast_store_fast(self, state: _State, pair: int) -> None:
        self._store_fast(state, pair >> 4)
        self._store_fast(state, pair & 15)

    def _load_const(self, state: _State, index: int) -> None:
        state.stack.append(Value(self._constant(index)))

    def _load_small_int(self, state: _State, number: int) -> None:
        state.stack.append(Value(number))

    def _load_global(self, state: _State, argument: int) -> None:
        null = self.version >= (3, 11) and argument & 1
        name = self._name(argument >> 1 if self.version >= (3, 11) else argument)
        self._push(state, self._global(name), bool(null))

    def _load_name(self, state: _State, index: int) -> None:
        state.stack.append(self._global(self._name(index)))

    def _global(self, name: str) -> Value:
        if name in self.written:
            return UNSEEN
        for n, space in enumerate(self.spaces):
            found = space.lookup(name) if hasattr(space, "lookup") else poll_values.entry(space, name)
            if found is not None:
                asks = () if n else (Ask("Flag", space, name, name),)
                return Value(found, asks)
        return UNSEEN

    def _load_attr(self, state: _State, argument: int) -> None:
        method = self.version >= (3, 12) and argument & 1
        name = self._name(argument >> 1 if self.version >= (3, 12) else argument)
        self._push(state, self._attribute(state.stack.pop(), name), bool(method))

    def _load_method(self, state: _State, index: int) -> None:
        self._push(state, self._attribute(state.stack.pop(), self._name(index)), True)

    def _attribute(self, owner: Value, name: str) -> Value:
        if name in self.written:
            return UNSEEN
        found = poll_calls.attribute(owner, name)
        if isinstance(found.held, Bound) and found.held.computes:
            found = self._function(found.held.function, [Value(found.held.owner)])
            if found.held is poll_values.RAISES:
                raise _OtherError(f"{name} of {self.code.qualname} ends by an exception")
        return found

    def _push(self, state: _State, value: Value, null: bool) -> None:
        """Pushes a callable, and the place beside it where the instruction leaves one."""
        beside = [NULL] if null else []
        state.stack += [value, *beside] if self.version >= (3, 13) else [*beside, value]

    # ---- calls ---------------------------------------------------------------------------------------------------
    def _kw_names(self, state: _State, index: int) -> None:
        state.fast["<keywords>"] = Value(self._constant(index))

    def _call(self, state: _State, step: Step) -> bool:
        """Does a call. -> whether it raises, as its object stands."""
        name, stack, count = step.name, state.stack, step.argument
        words: list[str] = []
        if name in ("CALL_KW", "CALL_FUNCTION_KW"):
            words = poll_values.names(stack.pop().held)
        elif name == "CALL" and self.version < (3, 13):
            words = poll_values.names(state.fast.pop("<keywords>", UNSEEN).held)
        arguments = [stack.pop() for _ in range(count)][::-1]
        if name in ("CALL_FUNCTION", "CALL_FUNCTION_KW"):
            called = stack.pop()
        else:
            pair = [one for one in (stack.pop(), stack.pop()) if one is not NULL]
            if len(pair) != 1:
                raise _OtherError(f"{self.code.qualname} makes a call that is not followed")
            called = pair[0]
        named = dict(zip(words, arguments[count - len(words) :]))
        plain = arguments[: count - len(words)]
        found = poll_calls.called(called, plain, named)
        if found is None:
            found = self._python(called, plain, named)
        self.pauses = self.pauses or any(ask.kind in ("Clock", "Pause") for ask in found.asks)
        self.unsure = self.unsure or found.held is poll_values.RAISES and any(a.kind in poll_values.UNREAD for a in found.asks)
        stack.append(found)
        if found.held is poll_values.RAISES:
            self.asks += found.asks
            stack.pop()
            return True
        return False

    def _python(self, called: Value, arguments: list[Value], named: dict[str, Value]) -> Value:
        """A call of a function written in Python."""
        held = called.held
        if isinstance(held, Bound) and held.function.isa("function"):
            return self._function(held.function, [Value(held.owner), *arguments], named)
        if isinstance(held, Object) and held.isa("function"):
            return self._function(held, arguments, named)
        raise _OtherError(f"{self.code.qualname} calls what is not known to ask only")

    def _function(self, function: Object, arguments: list[Value], named: dict[str, Value] | None = None) -> Value:
        rt, L = self.rt, self.rt.layout
        code = rt.code(rt.target.u64(function.address + L["func.func_code"]))
        if self.depth >= MAX_DEPTH or code.flags & (_VARIADIC | _YIELDS):
            raise _OtherError(f"{code.qualname} takes other arguments, or is no plain function")
        fast = poll_values.bound(function, code, arguments, named or {})
        spaces = (rt.object(rt.target.u64(function.address + L["func.func_globals"])), self.spaces[1])
        inner = Walk(rt, code, fast, spaces, self.budget)
        inner.depth = self.depth + 1
        inner.written, inner.probes = self.written, self.probes
        found = inner.coroutine() if code.flags & _COROUTINE else inner.call()
        self.pauses = self.pauses or inner.pauses
        return found

    def coroutine(self) -> Value:
        """As `call`, for a coroutine whose instructions begin with those that make it."""
        start = next((at for at, step in self.steps.items() if step.name == "RETURN_GENERATOR"), None)
        first = 0 if start is None else self.steps[start].behind
        self._run([_State(first, [UNSEEN], dict(self.fast))])
        return Value(self.returns[0].held if len(self.returns) == 1 else UNKNOWN, tuple(self.asks))

    # ---- names ---------------------------------------------------------------------------------------------------
    def _constant(self, index: int) -> Any:
        if index not in self._constants:
            pointer = self.rt.target.u64(self.code.address + self.rt.layout["code.co_consts"])
            self._constants[index] = self.rt.object(pointer).elements(index + 1)[index]
        found = self._constants[index]
        return None if found.is_none() else found

    def _name(self, index: int) -> str:
        names: list[str] = self.rt.target.cached(("co_names", self.code.address, self.code.first), self._names)
        return names[index]

    def _names(self) -> list[str]:
        pointer = self.rt.target.u64(self.code.address + self.rt.layout["code.co_names"])
        return [one.string(1000) for one in self.rt.object(pointer).elements(1000)]

    def _variable(self, index: int) -> str:
        variables = self.code.variables
        return variables[index][0] if index < len(variables) else "?"
