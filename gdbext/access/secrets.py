"""Which texts are secrets, by their names and by themselves. Every output asks here: snapshots, JSON, pages and the values of
expressions.

`spans` reads a text once; what must not be shown is replaced once, all together: no replacement changes what the next one sees.

Of the command line and the environment a snapshot keeps the names, and those values that an answer may need (KEPT_VARIABLES,
KEPT_OPTIONS). The other values are blanked (access/redaction.py) where the kernel and the C library keep them (fs/exec.c,
arg_start to env_end of proc(5)), and in the program's own os.environ and sys.argv. Copies of those that are secrets, or look like
one, are blanked everywhere.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Iterable, Iterator

from .. import log
from ..errors import GdbextError
from .model import Mapping
from .procfs import parse_stat
from .secret_text import as_variable, looks_secret, password_in, spans
from .secret_text import is_secret_name as is_secret_name

if TYPE_CHECKING:
    from .base import Target

MAX_VARIABLES = 10_000
MIN_VALUE, MAX_VALUE = 6, 16 << 10  # bytes: shorter ones would blank words that mean nothing
KEPT_VARIABLES = (
    r"(CUDA|NVIDIA|NCCL|FLASHINFER|TORCH\w*|PYTORCH|TRITON|OMP|MKL|OPENBLAS|KMP|GLOO|UCX|NIXL"
    r"|NVSHMEM|RAY|SLURM|OMPI|PMI|PMIX|LC|TRANSFORMERS|TOKENIZERS|HF_HUB|PYTHON|GDBEXT)_?\w*"
    r"|((LOCAL|NODE|GROUP|GLOBAL)_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|HOST(NAME)?|PORT|HF_HOME|LANG|TZ|TERM|\w*MODEL\w*"
)
KEPT_OPTIONS = (
    r"m|model\w*|served_model\w*|tokenizer\w*|\w*dtype|host|port|\w*_ports?|\w*_size|[tdpe]p|\w*parallel\w*|max_\w+|min_\w+|num_\w+"
    r"|\w*(backend|policy|format|level|mode|rank|ratio|utilization|fraction|fraction_static|len|length|steps?|method|type|device)"
    r"|quantization|nnodes|dist_init_addr|seed|task|runner|engine|revision|lora\w*|speculative\w*|chunked\w*|block\w*|page\w*"
)
_OPAQUE = rb"(?<![\w/.~+=-])[\w~+=-]{12,}(?![\w/.~+=-])"  # of a value, but for parts of a path
_LIBC = r"libc[.-]|ld-musl"


def _masked(text: str, places: list[tuple[int, int]]) -> str:
    parts, at = [], 0
    for start, end in places:
        parts += [text[at:start], "***"]
        at = end
    return "".join([*parts, text[at:]])


def secret_parts(text: str) -> list[str]:
    """The parts of a text that must not be shown, by the text alone: see `spans`."""
    return [text[start:end] for start, end in spans(text)]


def secret(name: str | None, value: str) -> bool:
    """Whether text is a secret, or holds one: by its name, or by itself."""
    return is_secret_name(name) or bool(spans(value))


def hidden(text: str) -> str:
    """A text with `***` in place of its `secret_parts`."""
    return _masked(text, spans(text))


def shown(argv: Iterable[str]) -> str:
    """The words of a command line for people, with `***` in place of secrets and of what people wrote (a system prompt)."""
    text = "\0".join(argv)
    return _masked(text, spans(text, content=True)).replace("\0", " ")


def pairs(argv: Iterable[bytes], environ: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """(name, value) of each variable and of each value of an option; ("", word) of a word that belongs to none."""
    for pair in environ:
        name, _, value = pair.partition(b"=")
        yield os.fsdecode(name), value
    option = ""
    for word in argv:
        name, mark, value = word.partition(b"=")
        if mark and (name.startswith(b"-") or not option and re.fullmatch(rb"[\w.-]+", name)):
            yield as_variable(os.fsdecode(name)), value
        elif word.startswith(b"-") and len(word) > 1 and not re.fullmatch(rb"-[\d.]+", word):
            option = as_variable(os.fsdecode(word))
        else:
            yield option, word


def is_kept(name: str, value: bytes, variable: bool) -> bool:
    """Whether a snapshot keeps a value of the environment or the command line: an answer may need it, and it is no secret."""
    if secret(name, os.fsdecode(value)):
        return False
    if variable:
        return bool(re.fullmatch(KEPT_VARIABLES, name))
    return bool(re.fullmatch(KEPT_OPTIONS, name.lower())) if name else not looks_secret(value)


def left_out(environ: Iterable[tuple[bytes, int]]) -> Iterator[tuple[int, int, int]]:
    """(address, bytes, bytes of a character) of the values that a snapshot does not keep, from NAME=VALUE strings with
    addresses."""
    for pair, at in environ:
        name, _, value = pair.partition(b"=")
        if not is_kept(os.fsdecode(name), value, variable=True):
            yield at + len(name) + 1, len(value), 1


def values(argv: Iterable[bytes], environ: Iterable[bytes]) -> tuple[set[bytes], set[bytes]]:
    """(secrets, possible secrets) of a command line and an environment. Each part of a secret is searched for, and of a possible
    one only a copy of the whole value, or of one of its words."""
    argv, environ = list(argv), list(environ)
    sure: set[bytes] = set()
    perhaps: set[bytes] = set()
    for text in (b"\0".join(argv), *environ):
        sure |= {os.fsencode(part) for part in secret_parts(os.fsdecode(text))}
    for variable, found in ((True, pairs((), environ)), (False, pairs(argv, ()))):
        for name, value in found:
            if is_secret_name(name):
                sure.add(value)
            if not is_kept(name, value, variable):
                perhaps |= {one for one in (value, *re.findall(_OPAQUE, value[:MAX_VALUE])) if looks_secret(one)}
    sure |= {re.sub(rb"%([0-9A-Fa-f]{2})", lambda code: bytes.fromhex(code[1].decode()), one) for one in sure}  # of an address
    sure |= {password_in(one) for one in sure}
    sure = set(filter(is_worth, sure))
    return sure, set(filter(is_worth, perhaps - sure))


def kernel_area(stat: bytes, maps: Iterable[Mapping]) -> tuple[int, int] | None:
    """(start, end) of the strings that the kernel put above the main thread's stack; None where /proc/PID/stat does not say."""
    try:
        start = parse_stat(stat).arguments
    except ValueError:
        return None
    mapping = next((m for m in maps if start and m.start <= start < m.end), None)
    return (start, mapping.end) if mapping else None


def moved_environment(target: Target) -> list[tuple[bytes, int]]:
    """The NAME=VALUE strings that the C library's `environ` points to, with their addresses; after an error those read before it.

    A program that sets its title (setproctitle, as the engines do) writes it over the kernel's strings, and keeps the environment
    elsewhere."""
    found: list[tuple[bytes, int]] = []
    try:
        modules = target.modules()
        # the program's own, where the linker has copied it there, else the C library's: of hundreds of files no other has one
        likely = [m for i, m in enumerate(modules) if not i or re.match(_LIBC, m.name)]
        at = target.u64(target.symbol("environ", likely + modules))
        while len(found) < MAX_VARIABLES:
            pointer = target.u64(at + 8 * len(found))
            if not pointer:
                break
            found.append((target.cstring(pointer, 2 * MAX_VALUE), pointer))
    except GdbextError as e:
        log.passed_over(e)
    return found


def is_worth(value: bytes) -> bool:
    """Whether a value has the length of a secret, so that a search for it makes sense. One of five characters is worth it if it
    is no word and no number."""
    if len(value) == MIN_VALUE - 1:
        return not value.isalpha() and not value.isdigit()
    return MIN_VALUE <= len(value) <= MAX_VALUE
