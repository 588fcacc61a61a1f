"""What torch's own objects answer in Python expressions and reprs, from memory: tensors, and the children of modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..cpython.adapters import Adapter
from ..cpython.types import DICT
from .tensor_impl import read_tensor

if TYPE_CHECKING:
    from ..cpython.reprs import Repr

MODULE_TABLES = ("_parameters", "_buffers", "_modules")


class TensorAdapter(Adapter):
    """A tensor: one line that describes it, whatever its class's own repr is."""

    reprs = None

    def text(self, printer: Repr, depth: int) -> str:
        assert self.object is not None
        return read_tensor(self.object.rt, self.object.address).one_line()


class ModuleAdapter(Adapter):
    """A torch.nn.Module: its `__getattr__` looks in three dicts."""

    def missing_attribute(self, name: str) -> Any:
        obj = self.object
        assert obj is not None
        own = dict(obj.instance_entries())
        for table in MODULE_TABLES:
            if table in own and obj.rt.object(own[table]).type.flags & DICT:
                held = next((v for k, v in obj.rt.object(own[table]).items() if k.equals(name)), None)
                if held is not None:
                    return held
        return NotImplemented
