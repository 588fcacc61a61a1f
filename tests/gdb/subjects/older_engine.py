"""Makes an older engine's own scheduler and KV-cache classes importable without its compiled parts.

`use(folder, …)`: from then on the modules below `real` (of vLLM `vllm.v1.core` and what it computes with) are
the release's own files, and whatever else of the package they import is a STUB made here: a name that answers to anything and is
false."""

import contextlib
import enum
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import pickle
import sys
import types

REAL = (
    "vllm.v1.core",
    "vllm.v1.request",
    "vllm.v1.kv_cache_interface",
    "vllm.v1.kv_cache_spec_registry",
    "vllm.v1.engine",
    "vllm.v1.utils",
    "vllm.v1.metrics.stats",
    "vllm.v1.outputs",
    "vllm.utils.math_utils",
    "vllm.utils.hashing",
    "vllm.utils.mem_constants",
    "vllm.v1.hisparse.block_pool",
    "vllm.kv_cache_spec_kind",
)


class _Anything(type):
    """The type of stub names: false, callable, usable as a base class, in annotations and as a decorator."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return stub(name)

    def __call__(cls, *args, **kwargs):
        if cls.__dict__.get("_is_stub"):
            plain = len(args) == 1 and not kwargs and isinstance(args[0], (type, types.FunctionType))
            return args[0] if plain else cls  # a bare decorator gives back what it decorates
        return super().__call__(*args, **kwargs)

    def __bool__(cls):
        return not cls.__dict__.get("_is_stub")

    def __or__(cls, other):
        return cls

    __ror__ = __or__

    def __getitem__(cls, item):
        return cls

    def __iter__(cls):
        return iter(())

    def __hash__(cls):
        return id(cls)


def stub(name):
    return _Anything(name, (), {"_is_stub": True})


class Config:
    """A configuration of which only what is given here is set; everything else is None, and so off."""

    def __init__(self, **values):
        self.__dict__.update(values)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def sha256(value):
    return int.from_bytes(hashlib.sha256(pickle.dumps(value)).digest(), "big")


def sha256_bytes(value):
    return hashlib.sha256(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)).digest()


def cdiv(a, b):
    return -(-a // b)


class Counter:
    def __init__(self, start=0):
        self.counter = start

    def __next__(self):
        self.counter += 1
        return self.counter - 1


class PyObjectCache:
    """A cache of objects that caches none."""

    def __init__(self, builder):
        self.get_object = builder

    def reset(self):
        pass


Device = enum.Enum("Device", "GPU CPU")


class Saver:
    """TorchMemorySaverAdapter, switched off."""

    create = classmethod(lambda cls, enable: cls)
    region = staticmethod(lambda *names, **more: contextlib.nullcontext())


class Backend:
    """An attention backend's layout of a layer, flash attention's."""

    @staticmethod
    def get_kv_cache_shape(blocks, tokens, heads, size):
        return 2, blocks, tokens, heads, size


SGLANG = ("sglang.srt.mem_cache",)
KNOWN = {  # small helpers of vllm.utils and others that the real files compute with
    "vllm.logger": {"init_logger": logging.getLogger},
    "vllm.utils": {
        "cdiv": cdiv,
        "sha256": sha256,
        "sha256_cbor": sha256_bytes,
        "sha256_cbor_64bit": sha256,
        "GiB_bytes": 1 << 30,
        "round_up": lambda a, b: cdiv(a, b) * b,
        "Counter": Counter,
        "chunk_list": lambda items, n: [items[i : i + n] for i in range(0, len(items), n)],
        "is_pin_memory_available": lambda: False,
        "STR_DTYPE_TO_TORCH_DTYPE": {},
        "Device": Device,
        "PyObjectCache": PyObjectCache,
        "get_dtype_size": lambda dtype: dtype.itemsize,
        "is_list_of": lambda value, kind: all(isinstance(v, kind) for v in value),
        "length_from_prompt_token_ids_or_embeds": lambda ids, embeds: len(ids),
    },
    "vllm.utils.torch_utils": {"get_dtype_size": lambda dtype: dtype.itemsize},
    "vllm.v1.structured_output.request": {
        "StructuredOutputRequest": type("StructuredOutputRequest", (), {"from_sampling_params": staticmethod(lambda p: None)})
    },
    "vllm.attention": {"get_attn_backend": lambda *names, **more: Backend},
    "vllm.inputs": {"SingletonInputsAdapter": lambda inputs: inputs},
    "sglang.srt.torch_memory_saver_adapter": {"TorchMemorySaverAdapter": Saver},
    "sglang.srt.utils.torch_memory_saver_adapter": {"TorchMemorySaverAdapter": Saver},
    "vllm.envs": Config(VLLM_USE_V1=True),
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, folder, package, real):
        self.folder, self.packages, self.real = folder, (package, "triton", "sgl_kernel"), real  # none of their kernels is run

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.packages:
            return None
        base = os.path.join(self.folder, *name.split("."))
        package = os.path.isdir(base)
        file = os.path.join(base, "__init__.py") if package else base + ".py"
        if any(name == r or name.startswith(r + ".") for r in self.real):
            if not os.path.exists(file):
                return None  # not in this release
            return importlib.util.spec_from_file_location(name, file, submodule_search_locations=[base] if package else None)
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = [base] if package else []
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        known, made = KNOWN.get(module.__name__, {}), {}
        if isinstance(known, Config):
            module.__getattr__ = lambda name: getattr(known, name)
            return
        module.__dict__.update(known)

        def anything(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return made.setdefault(name, stub(name))

        module.__getattr__ = anything


def use(folder, version, package="vllm", real=REAL):
    sys.meta_path.insert(0, _Finder(folder, package, real))
    importlib.import_module(package).__version__ = version
    if package != "vllm":
        return
    try:  # a real file whose one function asks a model for its multi-modal inputs
        from vllm.v1.core import encoder_cache_manager

        encoder_cache_manager.compute_encoder_budget = lambda **more: (0, 0)
    except ImportError:
        pass
