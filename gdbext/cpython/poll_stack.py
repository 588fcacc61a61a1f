"""The instructions of a walk (`poll_walk`) that only move, compare and build values."""

from __future__ import annotations

from typing import Any

from . import poll_values
from .poll_values import UNKNOWN, UNREAD, Value

UNSEEN, NULL = Value(), Value(poll_values.NOTHING)
_SHIFT = {(3, 12): 4}  # of a comparison's argument; none before 3.12, 5 since 3.13
_SUBSCRIPT = 26  # NB_SUBSCR of BINARY_OP, 3.14 and later (Include/opcode.h)


class StackWork:
    """What these instructions do to a state's `stack`. Of an unknown value only what cannot be read is kept of what it asks."""

    version: tuple[int, int]
    known: dict[str, Any]  # `codes.opcodes`

    def _push_null(self, state: Any, _: int) -> None:
        state.stack.append(NULL)

    def _pop_top(self, state: Any, _: int) -> None:
        state.stack.pop()

    def _copy(self, state: Any, depth: int) -> None:
        state.stack.append(state.stack[-depth])

    def _dup_top(self, state: Any, _: int) -> None:
        state.stack.append(state.stack[-1])

    def _swap(self, state: Any, depth: int) -> None:
        state.stack[-1], state.stack[-depth] = state.stack[-depth], state.stack[-1]

    def _rot_two(self, state: Any, _: int) -> None:
        self._swap(state, 2)

    def _rot_three(self, state: Any, _: int) -> None:
        state.stack.insert(-2, state.stack.pop())

    def _end_send(self, state: Any, _: int) -> None:
        del state.stack[-3 if self.version >= (3, 15) else -2 : -1]

    def _load_common_constant(self, state: Any, index: int) -> None:
        found = self.known["common"][index]
        state.stack.append(UNSEEN if isinstance(found, dict) else Value(found))

    def _unary_not(self, state: Any, _: int) -> None:
        value = poll_values.truth(state.stack.pop())
        state.stack.append(Value(not value.held if isinstance(value.held, bool) else UNKNOWN, value.asks))

    def _to_bool(self, state: Any, _: int) -> None:
        state.stack.append(poll_values.truth(state.stack.pop()))

    def _compare_op(self, state: Any, argument: int) -> None:
        right, left = state.stack.pop(), state.stack.pop()
        shift = _SHIFT.get(self.version, 5 if self.version >= (3, 13) else 0)
        state.stack.append(poll_values.compared(argument >> shift, left, right))

    def _is_op(self, state: Any, negated: int) -> None:
        right, left = state.stack.pop(), state.stack.pop()
        state.stack.append(poll_values.identical(left, right, bool(negated)))

    def _contains_op(self, state: Any, _: int) -> None:
        right, left = state.stack.pop(), state.stack.pop()
        state.stack.append(Value(UNKNOWN, left.asks + right.asks))

    def _check_exc_match(self, state: Any, _: int) -> None:
        state.stack[-1] = Value(True)

    def _push_exc_info(self, state: Any, _: int) -> None:
        state.stack.append(UNSEEN)

    def _build_list(self, state: Any, count: int) -> None:
        values = state.stack[len(state.stack) - count :]
        del state.stack[len(state.stack) - count :]
        state.stack.append(Value([value.held for value in values], tuple(ask for value in values for ask in value.asks)))

    _build_tuple = _build_set = _build_list

    def _unpack_sequence(self, state: Any, count: int) -> None:
        whole = state.stack.pop()
        parts = whole.held if isinstance(whole.held, tuple) and len(whole.held) == count else (UNKNOWN,) * count
        state.stack += [Value(part, whole.asks) for part in reversed(parts)]

    def _binary_subscr(self, state: Any, _: int) -> None:
        key, whole = state.stack.pop(), state.stack.pop()
        state.stack.append(poll_values.item(whole, poll_values.plain(key.held)))

    def _binary_op(self, state: Any, which: int) -> None:
        if which == _SUBSCRIPT:
            self._binary_subscr(state, 0)
        else:
            right, left = state.stack.pop(), state.stack.pop()
            state.stack.append(Value(UNKNOWN, tuple(ask for ask in left.asks + right.asks if ask.kind in UNREAD)))
