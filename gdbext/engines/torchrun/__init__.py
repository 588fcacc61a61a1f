"""Jobs of torch.distributed that torchrun, or anything that sets the same variables, has started. `ENGINE` is its interface for
the other rooms."""

from .spec import Torchrun

ENGINE = Torchrun()
