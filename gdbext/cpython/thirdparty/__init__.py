"""Objects of widely used libraries as their own code shows them: numpy, pydantic, msgspec. Importing it registers them with
`adapters`."""

from ..adapters import register
from . import msgspec_structs, numpy_objects, pydantic_models

register(("msgspec._core._StructMixin",), msgspec_structs.StructAdapter)
register(("pydantic.main.BaseModel",), pydantic_models.ModelAdapter)
register(("numpy.generic",), numpy_objects.ScalarAdapter)
register(("numpy.ndarray",), numpy_objects.ArrayAdapter)
