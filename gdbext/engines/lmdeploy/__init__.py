"""LMDeploy: what the other rooms know of it is `ENGINE`."""

from .spec import LmDeploy

ENGINE = LmDeploy()
