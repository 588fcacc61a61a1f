"""access/device_memory.py: what one question may read of a GPU's memory, by a clock and a memory of the test's own."""

import pytest

from gdbext.access.device_memory import PIECE, DeviceMemory
from gdbext.errors import FaultError, GdbextError


class Device:
    """Bytes that count up by address; each read takes `seconds`."""

    def __init__(self, seconds=0.0):
        self.now, self.seconds, self.reads = 0.0, seconds, []

    def read(self, address, size):
        self.now += self.seconds
        self.reads.append((address, size))
        return bytes(size)

    def clock(self):
        return self.now


def test_bytes_are_read_in_pieces_up_to_a_bound():
    device = Device()
    memory = DeviceMemory(device.read, clock=device.clock)
    memory.begin(2 * PIECE + 10, 1.0)
    assert len(memory.read(0x1000, 2 * PIECE)) == 2 * PIECE and device.reads == [(0x1000, PIECE), (0x1000 + PIECE, PIECE)]
    assert len(memory.read(5, 10)) == 10 and memory.read(5, 0) == b""
    with pytest.raises(GdbextError, match="32 MiB of the GPU's memory were read .* one question may read 32 MiB in 1 s") as e:
        memory.read(5, 1)
    assert "\n" not in str(e.value) and not isinstance(e.value, FaultError)
    memory.begin()
    assert len(memory.read(5, 1)) == 1


def test_seconds_of_reading_alone_count():
    device = Device(0.4)
    memory = DeviceMemory(device.read, clock=device.clock)
    memory.begin(1 << 20, 1.0)
    for _ in range(3):
        memory.read(0, 1)
        device.now += 100
    with pytest.raises(GdbextError, match="were read in 1.2 s"):
        memory.read(0, 1)
    assert len(device.reads) == 3


def test_whether_its_work_has_ended_is_looked_at_once_for_each_question():
    looks = []
    memory = DeviceMemory(Device().read, lambda: looks.append(1) or "a kernel runs")
    assert [memory.unfinished, memory.unfinished] == ["a kernel runs"] * 2 and len(looks) == 1
    memory.begin()
    assert memory.unfinished and len(looks) == 2
