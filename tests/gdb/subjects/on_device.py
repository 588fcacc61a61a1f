"""For subjects without a GPU: tensors that are what a GPU's are, of device "cuda", in memory that the process cannot read.

Their bytes are in a file that `fake_cuda_gdb.py` and tests read as the GPU's memory: `said()` is where."""

import ctypes
import mmap
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
from gdbext.torch import layout as layouts


class Device:
    """`size` bytes of memory of a GPU."""

    def __init__(self, size):
        self.file, self.size, self.used, self.kept = os.memfd_create("device"), size, 0, []
        os.ftruncate(self.file, size)
        self.window = mmap.mmap(self.file, size)
        self.table = layouts.for_version(".".join(torch.__version__.split(".")[:2]))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        self.address = libc.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)  # nobody may read it

    def said(self):
        return {"fd": self.file, "address": self.address, "size": self.size}

    def name(self, tensor):
        """Makes a tensor one of device cuda:0 that stays where it is: a UVA view."""
        impl = ctypes.c_uint64.from_address(id(tensor) + self.table.offset("THPVariable", "cdata")).value
        at = self.table.row["TensorImpl"]["device_opt_"]
        ctypes.c_int8.from_address(impl + at["type"]).value = self.table.row["DeviceType"]["CUDA"]
        ctypes.c_int8.from_address(impl + at["index"]).value = 0
        self.kept.append(tensor)
        return impl

    def put(self, tensor):
        """Moves a tensor's storage there. Nothing may compute with it any more. -> the tensor"""
        held = tensor.untyped_storage()
        size, start = held.nbytes(), self.used
        assert start + size <= self.size, "the device is full"
        self.window[start : start + size] = ctypes.string_at(held.data_ptr(), size)
        self.used += size + 255 & -256
        impl = self.name(tensor)
        storage = ctypes.c_uint64.from_address(impl + self.table.offset("TensorImpl", "storage_")).value
        pointer = storage + self.table.offset("StorageImpl", "data_ptr_")
        pointer += self.table.offset("DataPtr", "ptr_", "UniqueVoidPtr", "data_")
        ctypes.c_uint64.from_address(pointer).value = self.address + start
        return tensor
