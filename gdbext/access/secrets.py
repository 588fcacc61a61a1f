"""Which texts are secrets, by their names and by themselves. Every output asks here: snapshots, JSON, pages and the values of
expressions.

Of the command line and the environment a snapshot keeps the names, and those values that an answer may need (KEPT_VARIABLES,
KEPT_OPTIONS). The other values are blanked where the kernel and the C library keep them (fs/exec.c, arg_start to env_end of
proc(5)), and in the program's own os.environ and sys.argv. Copies of those that are secrets, or look like one, are blanked
everywhere.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from .. import log
from ..errors import GdbextError
from .model import PAGE
from .procfs import parse_stat

if TYPE_CHECKING:
    from typing import Iterable, Iterator, MutableMapping

    from .base import Target
    from .model import Mapping

MAX_VARIABLES = 10_000
MIN_VALUE, MAX_VALUE = 6, 16 << 10  # bytes: shorter ones would blank words that mean nothing
PIECE = 16  # characters: the size of a vector register
MIN_DISTINCT = 5  # bytes of a piece that are not alike
STRETCH = 256  # pages that are searched at once
GRAM = 8  # characters by which a copy is found
MAX_NEEDLES = 128  # up to so many pieces are searched for one by one: faster than the index
BETWEEN = b"\xff" * 8  # no character: stretches of memory that are searched together are kept apart by it
FEW = 8  # short secrets that are searched for one by one, in addition to the index
MAX_INDEXED = 1 << 18  # characters of secrets whose every place is in the index

# ---- secrets ---------------------------------------------------------------------------------------------------------
# Patterns are compiled by their first use: many commands need none of them.
# Words of a name, which `_words` has put between underscores: HF_TOKEN, authToken, --signing-key, SSHPASS.
_SECRET = (
    r"secret|passw|passphrase|sshpass|credential|cookie|authorization|bearer|auth[_-]?key|auth[_-]?token|pgpass"
    r"|(?<![a-z])(pass|pwd|pw|pat|auth|creds?|dsn|sas|jwt|pin|otp|apikey|connection_string|conn_str)s?(?![a-z])"
    r"|(?<![a-z])[a-z]*(api|access|private|hmac|master|signing|sign|encryption|encrypt|license|account|shared|service|ssh"
    r"|host|storage|session|client|deploy|registry|webhook)_?keys?(?![a-z])"
    r"|(?<![a-z])(hf|api|access|auth|bearer|refresh|csrf|jwt|bot|hub|github|gitlab|deploy|registry|session|id)_?tokens?(?![a-z])"
)
# Tokens and keys that engines and Python count or look up; no secrets.
_COUNTED = (
    r"(max|min|num|n|total|prompt|output|input|new|stop|eos|bos|pad|unk|special|cached?|computed|scheduled|batched|draft|spec|image"
    r"|per|extra|free|used|all|mask|decode|prefill|delta|next|last|seq|think|tool|req|best|current|previous|cls|sep)_.*tokens?$"
    r"|^tokens?_|tokeniz|^(sort|dict|cache|block|primary|foreign|lookup|index|lora|hash)_?keys?$"
)
_OF_ENVIRONMENT = r"[A-Z0-9_]*(TOKEN|_KEY)S?|[A-Z0-9]+(_[A-Z0-9]+)*_KEY[A-Z0-9_]*"
# The value itself; its `secret` must not be shown.
_IN_VALUE = r"""(?isx)
    ://[^\s/@:'"]*:(?P<a>[^\s@/'"]+)@ | ://(?P<b>[^\s/@:'"]{6,})@                           # user:password@, key@
    | \b(?:bearer|basic|digest|negotiate|token)[ ]+(?P<c>[\w.~+/=-]{6,})                      # of HTTP's Authorization
    | \b(?:[\w-]*(?:password|passwd|passphrase|pwd|secret|token|(?:api|access|account|shared[_-]?access)[_-]?key
        |credential|authorization|signature))["']?\s*[=:]\s*["']?(?!(?:bearer|basic|digest|negotiate|token)[ ])
        (?P<d>[^\s"',;&}]{3,})                                                         # AccountKey=, "password": "x"
    | \bcookie["']?\s*[=:]\s*["']?(?P<h>[^\s"',;&}]{3,}(?:;\s*[^\s"',;=]+=[^\s"',;]+)*)            # name=value; name=value
    | \b(?:sig|pw)=(?P<e>[^\s"',;&}]{6,})
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----(?P<f>.*?)(?:-----END|\Z)
    | \b(?P<g>(?:sk|rk|pk)-[\w-]{12,} | (?:hf|gh[pousr]|github_pat|glpat|npm|pypi|dop_v1|xox[abpr])[_-][\w-]{10,}
        | (?:AKIA|ASIA)[0-9A-Z]{12,} | AIza[\w-]{20,} | eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?)
    """
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
_PLAIN = rb"[~.]{0,2}/[^\s:@=]*|[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)+|[\d.,:+-]*"  # a path, a dotted name, numbers
_WORD = rb"(?<![\w/.~+=-])[\w~+=-]{12,}(?![\w/.~+=-])"  # of a value, but for parts of a path
_LIBC = r"libc[.-]|ld-musl"


def is_secret_name(name: str | None) -> bool:
    """Whether the name of a variable, attribute, key or option says that its value is a key, a password or the like."""
    if not name or len(name) > 200 or name in ("PWD", "OLDPWD"):
        return False
    if re.fullmatch(_OF_ENVIRONMENT, name) and not re.search(_COUNTED, name.lower()):
        return True
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_-").replace("-", "_").replace(".", "_")
    return bool(re.search(_SECRET, words)) and not re.search(_COUNTED, words)


def secret_parts(text: str) -> list[str]:
    """The parts of a text that must not be shown, by the text alone: passwords of addresses and of connection strings, the word
    after `Bearer`, keys with a known prefix."""
    return [part for found in re.finditer(_IN_VALUE, text[:MAX_VALUE]) for part in found.groups() if part]


def secret(name: str | None, value: str) -> bool:
    """Whether text is a secret, or holds one: by its name, or by itself."""
    return is_secret_name(name) or bool(secret_parts(value))


def hidden(text: str) -> str:
    """A text with `***` in place of its `secret_parts`."""
    for part in sorted(secret_parts(text), key=len, reverse=True):
        text = text.replace(part, "***")
    return text


def shown(words: str) -> str:
    """A command line for people, with `***` in place of secrets: values of options with secret names, and values that are secrets
    by themselves."""
    words = hidden(words)
    for value in sorted(_named(map(os.fsencode, words.split()), ()), key=len, reverse=True):
        words = words.replace(os.fsdecode(value), "***")
    return words


def _option(word: bytes) -> str:
    """As a variable of the environment would be named."""
    return os.fsdecode(word).lstrip("-").replace("-", "_").replace(".", "_").upper()


def _named(argv: Iterable[bytes], environ: Iterable[bytes]) -> set[bytes]:
    """Values of variables and options whose names say that they are secret: NAME=VALUE, --option VALUE..., --option=VALUE."""
    return {value for name, value in pairs(argv, environ) if is_secret_name(name) and is_worth(value)}


def pairs(argv: Iterable[bytes], environ: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """(name, value) of each variable and of each value of an option; ("", word) of a word that belongs to none."""
    for pair in environ:
        name, _, value = pair.partition(b"=")
        yield os.fsdecode(name), value
    option = ""
    for word in argv:
        name, mark, value = word.partition(b"=")
        if mark and (name.startswith(b"-") or not option and re.fullmatch(rb"[\w.-]+", name)):
            yield _option(name), value
        elif word.startswith(b"-") and len(word) > 1 and not re.fullmatch(rb"-[\d.]+", word):
            option = _option(word)
        else:
            yield option, word


def is_kept(name: str, value: bytes, variable: bool) -> bool:
    """Whether a snapshot keeps a value of the environment or the command line: an answer may need it, and it is no secret."""
    if secret(name, os.fsdecode(value)):
        return False
    if variable:
        return bool(re.fullmatch(KEPT_VARIABLES, name))
    return bool(re.fullmatch(KEPT_OPTIONS, name.lower())) if name else not looks_secret(value)


def looks_secret(value: bytes) -> bool:
    """Whether a value of unknown meaning may be a key or a password: letters and digits, no path, number or dotted name."""
    letters, digits = len(re.findall(rb"[A-Za-z]", value[:64])), len(re.findall(rb"\d", value[:64]))
    return len(value) >= 10 and letters >= 2 and digits >= 2 and not re.fullmatch(_PLAIN, value)


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
    sure: set[bytes] = set()
    perhaps: set[bytes] = set()
    for variable, found in ((True, pairs((), environ)), (False, pairs(argv, ()))):
        for name, value in found:
            if is_secret_name(name):
                sure.add(value)
            sure |= {os.fsencode(part) for part in secret_parts(os.fsdecode(value))}
            if not is_kept(name, value, variable):
                perhaps |= {one for one in (value, *re.findall(_WORD, value[:MAX_VALUE])) if looks_secret(one)}
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
    """Whether a value has the length of a secret, so that a search for it makes sense."""
    return MIN_VALUE <= len(value) <= MAX_VALUE


def blank(memory: MutableMapping[int, bytes | memoryview], start: int, end: int) -> None:
    """Zeroes a range of copied pages."""
    for page in range(start & -PAGE, end, PAGE):
        data = memory.get(page)
        if data is not None:
            low, high = max(start - page, 0), min(end - page, PAGE)
            memory[page] = b"".join((data[:low], bytes(high - low), data[high:]))


def fill(memory: MutableMapping[int, bytes | memoryview], start: int, size: int, unit: int = 1) -> None:
    """Writes `*` over `size` bytes of copied pages, characters of `unit` bytes each."""
    stars = (b"*" + bytes(unit - 1)) * (size // unit)
    for page in range(start & -PAGE, start + size, PAGE):
        data = memory.get(page)
        if data is not None:
            low, high = max(start - page, 0), min(start + size - page, PAGE)
            memory[page] = b"".join((data[:low], stars[page + low - start : page + high - start], data[high:]))


def redact(memory: MutableMapping[int, bytes | memoryview], secrets: Iterable[bytes], perhaps: Iterable[bytes] = ()) -> None:
    """Writes `*` over each copy of a secret, as bytes and as characters of 2 and 4 bytes.

    Remains of a copy with PIECE characters or more are overwritten too. Such parts are left where a thread's vector registers
    were saved on its stack, and where freed memory was used again. Of `perhaps` only whole copies are overwritten. All values are
    searched for in one pass over the memory."""
    sought = _Sought(secrets, perhaps)
    batch: list[list[int]] = []
    for pages in _stretches(memory, -(-4 * sought.longest // PAGE)) if sought.longest else ():
        if sum(map(len, batch)) + len(pages) > STRETCH:
            _redact(memory, batch, sought)
            batch = []
        batch.append(pages)
    _redact(memory, batch, sought)


def _redact(memory: MutableMapping[int, bytes | memoryview], stretches: list[list[int]], sought: _Sought) -> None:
    """As `redact`, of some stretches of adjoining pages, which share none: one search for all of them."""
    data = BETWEEN.join([b"".join([memory[page] for page in pages]) for pages in stretches])
    spans = list(sought.spans(data))
    if spans:
        changed, at = bytearray(data), 0
        for start, end in spans:
            changed[start:end] = b"*" * (end - start)
        for pages in stretches:
            for page in pages:
                memory[page] = bytes(changed[at : at + PAGE])
                at += PAGE
            at += len(BETWEEN)


class _Sought:
    """An index of secrets.

    Runs of text in the secrets' alphabet that are at least as long as the shortest secret are taken out of memory. GRAM
    characters of them are looked up at a time, at places so close together that no part of PIECE characters is missed."""

    def __init__(self, secrets: Iterable[bytes], perhaps: Iterable[bytes]) -> None:
        everything = dict.fromkeys(perhaps, False)
        everything.update(dict.fromkeys(secrets, True))
        self.longest = max(map(len, everything), default=0)
        count = sum(3 * (4 if sure else 1) for sure in everything.values())
        short = [value for value in everything if len(value) < PIECE]
        few = len(everything) if count <= MAX_NEEDLES else FEW
        alone = {v for v in everything if count <= MAX_NEEDLES or not v.isascii() or len(v) < PIECE and len(short) <= few}
        self.needles = {
            (form, at, piece) for v in alone for form, unit in _forms(v) for at, piece in _pieces(form, unit, everything[v])
        }
        indexed = [value for value in everything if value not in alone]
        self.least = min((min(len(value), PIECE) for value in indexed), default=PIECE)
        self.gram, total = min(GRAM, self.least), sum(map(len, indexed))
        together = self.least - self.gram + 1  # a part of `least` characters has one place of so many in step, and in the index
        every, self.step = (1, together) if total <= MAX_INDEXED else (together, 1)
        self.table = _alphabet(b"".join(indexed))
        self.index: dict[bytes, list[tuple[bytes, bytes, int, bool]]] = {}
        for value in indexed:
            piecemeal, form = everything[value] and not value.startswith(b"/"), value.translate(self.table)
            for at in range(0, len(value) - self.gram + 1, every):
                self.index.setdefault(form[at : at + self.gram], []).append((value, form, at, piecemeal))

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """(start, end) of each secret or part of one in `data`."""
        for form, at, piece in self.needles:
            place = data.find(piece)
            while place >= 0:
                yield _extent(data, place, form, at)
                place = data.find(piece, place + 1)
        found: set[bytes] = set()
        for unit, first in [(u, f) for u in (1, 2, 4) for f in range(u)] if self.index else ():
            runs = data[first::unit].translate(self.table).split()
            for run in [run for run in runs if len(run) >= self.least]:
                found |= {b"".join(bytes((c,)) + bytes(unit - 1) for c in part) for part in self._parts(run)}
        for part in found:
            at = data.find(part)
            while at >= 0:
                yield at, at + len(part)
                at = data.find(part, at + 1)

    def _parts(self, run: bytes) -> Iterator[bytes]:
        """The secrets, and parts of them, that a run of text holds."""
        index, gram, covered = self.index, self.gram, 0
        for place in range(0, len(run) - gram + 1, self.step):
            for value, form, at, piecemeal in index.get(run[place : place + gram], ()) if place >= covered else ():
                start, end = _extent(run, place, form, at)
                part = value[at - place + start : at - place + end]
                if part == value or piecemeal and len(part) >= PIECE and len(set(part)) >= MIN_DISTINCT:
                    yield part
                    covered = max(covered, end - gram + 1)


def _alphabet(text: bytes) -> bytes:
    """A table for `bytes.translate`. After it `split` gives the runs of characters that occur in `text`."""
    blank, used = b" \t\n\r\x0b\x0c", set(text)
    spare = iter([c for c in range(256) if c not in used and c not in blank] or [0])
    instead = {c: next(spare, 0) for c in blank if c in used}
    return bytes(instead.get(c, c) if c in used else 32 for c in range(256))


def _extent(run: bytes, place: int, value: bytes, at: int) -> tuple[int, int]:
    """(start, end) of the part of a value that a run holds. The value's character `at` is at `place` in the run."""
    start, end = place, place
    while start and start > place - at and run[start - 1] == value[at - (place - start) - 1]:
        start -= 1
    last = min(len(run), place - at + len(value))
    while end < last and run[end] == value[at + end - place]:
        end += 1
    return start, end


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _forms(value: bytes) -> Iterator[tuple[bytes, int]]:
    """(bytes, bytes of one character) of a secret as it may lie in memory: a C string, and characters of 2 and 4 bytes (a wider
    str; wchar_t: sys.orig_argv before Python has decoded it)."""
    yield value, 1
    if _is_text(value):
        yield value.decode().encode("utf-16-le"), 2
        yield value.decode().encode("utf-32-le"), 4


def _pieces(form: bytes, unit: int, piecemeal: bool) -> list[tuple[int, bytes]]:
    """(offset, bytes): the parts by which a form of a secret is found. They are PIECE characters at its beginning and end, and
    those next to them. A path, whose beginning is that of other paths too, and pieces with few different characters are searched
    for as a whole."""
    size = PIECE * unit
    last = len(form) - size
    wanted = {0, min(size, last), last, max(last - size, 0)} if piecemeal and last > 0 and not form.startswith(b"/") else set()
    return [(at, form[at : at + size]) for at in wanted if len(set(form[at : at + size])) >= MIN_DISTINCT] or [(0, form)]


def _stretches(memory: MutableMapping[int, bytes | memoryview], more: int) -> Iterator[list[int]]:
    """The addresses of adjoining pages, STRETCH of them and the `more` that follow at a time."""
    pages: list[int] = []
    for page in sorted(memory):
        if pages and page != pages[-1] + PAGE:
            yield pages
            pages = []
        elif len(pages) >= STRETCH + more:
            yield pages
            pages = pages[STRETCH:]
        pages.append(page)
    if pages:
        yield pages
