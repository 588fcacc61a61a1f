"""Objects of widely used libraries as their own code shows them, or described: numpy, pydantic, msgspec, jax, cupy. Importing it
registers them with `adapters`."""

from ..adapters import register
from . import device_arrays, msgspec_structs, numpy_objects, pydantic_models

register(("msgspec._core._StructMixin",), msgspec_structs.StructAdapter)
register(("pydantic.main.BaseModel",), pydantic_models.ModelAdapter)
register(("numpy.generic",), numpy_objects.ScalarAdapter)
register(("numpy.ndarray",), numpy_objects.ArrayAdapter)
register(("jaxlib._jax.ArrayImpl", "jaxlib.xla_extension.ArrayImpl"), device_arrays.JaxArray)
register(("cupy._core.core._ndarray_base", "cupy._core.core.ndarray"), device_arrays.CupyArray)
