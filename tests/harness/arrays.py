"""A torch tensor over a numpy view, in the memory of a fake process."""

from gdbext.access.fake import FakeTarget
from gdbext.torch import dtypes
from gdbext.torch.tensor import Tensor

DATA = 0x200000


def made(base, view, dtype="int32"):
    """A `Tensor` that is `view` of `base`, a flat array."""
    size = base.itemsize
    offset = (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // size
    return Tensor(
        FakeTarget({DATA: base.tobytes()}),
        None,
        8,
        kind="c10::TensorImpl",
        device="cpu",
        shape=view.shape,
        stride=tuple(s // size for s in view.strides),
        dtype=dtypes.DTYPES[dtype],
        storage_offset=offset,
        numel=view.size,
        storage=8,
        storage_data=DATA,
        storage_bytes=base.nbytes,
    )
