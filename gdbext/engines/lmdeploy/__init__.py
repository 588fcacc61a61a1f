"""LMDeploy. `ENGINE` is its interface for the other rooms."""

from .spec import LmDeploy

ENGINE = LmDeploy()
