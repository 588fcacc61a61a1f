"""vLLM's model runner V2 on a CPU, with VLLM_USE_V2_MODEL_RUNNER=1: Triton's interpreter runs its kernels. vLLM takes Triton for
working where it has an active backend: it gets one that is called cpu, once its list of backends is there."""

import importlib.abc
import importlib.util
import os
import sys
import types

os.environ["TRITON_INTERPRET"] = "1"


class _Driver:
    @staticmethod
    def is_active():
        return True


class _Backends(importlib.abc.MetaPathFinder):
    busy = False

    def find_spec(self, name, path, target=None):
        if name != "triton.backends" or self.busy:
            return None
        self.busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.busy = False
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            module.backends["cpu"] = types.SimpleNamespace(driver=_Driver, compiler=None)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Backends())
