"""A toy engine: what the other rooms know of it is `ENGINE`."""

from .spec import Toy

ENGINE = Toy()
