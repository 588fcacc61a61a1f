"""Reads a text once, from left to right, and says which characters of it must not be shown: a command line, a variable, JSON, a
header, an address. `secrets` is the door to it.

No pattern looks further than the characters that the reading then leaves behind, or than a bounded number of them: a text costs
time in proportion to its length, whoever wrote it. What is left of it after MAX_TOKENS tokens is left out.
"""

from __future__ import annotations

import binascii
import itertools
import os
import re

MAX_TOKENS = 1 << 15  # of a text that is looked at; real command lines have a few hundred
MAX_NAME = 64  # characters of a name, from its end, that are looked at
MAX_PATH = 4096  # characters of an address that are looked at for a webhook

# ---- names -----------------------------------------------------------------------------------------------------------
# Patterns are compiled by their first use: many commands need none of them.
# Words of a name, which `is_secret_name` has put between underscores: HF_TOKEN, authToken, --signing-key, SSHPASS.
_SECRET = (
    r"secret|passw|passphrase|sshpass|credential|cookie|authorization|bearer|auth[_-]?key|auth[_-]?token|pgpass"
    r"|(?<![a-z])(pass|pwd|pw|pat|auth|creds?|dsn|sas|jwt|pin|otp|apikey|connection_string|conn_str)s?(?![a-z])"
    r"|(?<![a-z])[a-z]*(api|access|private|hmac|master|signing|sign|encryption|encrypt|license|account|shared|service|ssh"
    r"|host|storage|session|client|deploy|registry|webhook)_?keys?(?![a-z])"
    r"|(?<![a-z])(hf|api|access|auth|bearer|refresh|csrf|jwt|bot|hub|github|gitlab|deploy|registry|session|id)_?tokens?(?![a-z])"
)
_SURE = r"secret|passw|passphrase|sshpass|api[_-]?key|access[_-]?key"  # whatever else the name says
# Tokens and keys that engines and Python count or look up; no secrets.
_COUNTED = (
    r"(?<![a-z])(max|min|num|n|total|prompt|output|input|new|stop|eos|bos|pad|unk|special|cached?|computed|scheduled|batched|draft"
    r"|spec|image|per|extra|free|used|all|mask|decode|prefill|delta|next|last|seq|think|tool|req|best|current|previous|cls|sep)"
    r"_.*tokens?$|^tokens?_|tokeniz|^(sort|dict|cache|block|primary|foreign|lookup|index|lora|hash)_?keys?$|pin_memory|allow_credentials"
)
_OF_ENVIRONMENT = r"[A-Z0-9_]*(TOKEN|_KEY)S?|[A-Z0-9]+(_[A-Z0-9]+)*_KEY[A-Z0-9_]*"
_IN_TEXT = r"(?:.*[_-])?(?:token|sig|signature|passwd)"  # secret where a value follows, though not the name of an attribute
_CONTENT = r"(?:.*_)?(?:prompts?|instructions?|messages?|content|persona|system)"  # of people: never shown in a command line
_USER = r"u|U|user|proxy_user|username|login"  # options that take user:password
_FILE = r".*(?:file|path|dir)"
_SHORT = {"sshpass": "p", "mysql": "p", "mysqldump": "p", "mariadb": "p", "login": "p", "redis-cli": "a", "ldapsearch": "w"}

# ---- tokens: no pattern looks further than its own characters, or a bounded number of them ---------------------------
_TOKEN = r"[\w.-]+|[^\S\0]+|."
_MARKS = r"[:=\s\0]|[A-Za-z0-9]{12}|(?:sk|rk|pk)-|(?:glpat|xox|pypi|npm|hf|gh|nvapi|AKIA|ASIA|AIza|eyJ|github)"  # else no secret
_WORD_END = r"[^\s\0]*"
_ADDRESS = r"""[^\s\0"'<>`\\]*"""
_AUTHORITY = r"""[^\s\0"'<>`\\/?#]*"""
# Up to the end of an item: a comma, semicolon or ampersand ends it where another name, or nothing, follows.
_ITEM = r"""(?:[^\s\0"',;&}]|[,;&](?=[^\s\0"',;&}])(?![\w.\[\]-]*["']?[=:]))*"""
_LISTED = r"(?:[^\0,;&]|[,;&](?![ ]?[\w.\[\]-]*[=:]))*"  # as _ITEM, of a whole word of a command line
_QUOTED = {'"': r'(?:[^"\\\0]|\\[^\0])*', "'": r"(?:[^'\\\0]|\\[^\0])*", "\\": r"""[^\\"'\0]*"""}
_NEXT = r"""\\{0,3}["'][^\S\0]{0,16},\s{0,64}(\\{0,3}["'])"""  # between two items of a list: JSON, repr()
_COOKIES = r"""[^\s\0"',;&}]+(?:;[ ]?[^\s\0"',;=]+=[^\s\0"',;]+)*"""
_SCHEME = r"(?i)(?:bearer|basic|digest|negotiate|token|apikey|splunk|aws4-hmac-sha256)[ ]+"
_CREDENTIALS = r"[\w.~+/=-]*"
_NO_VALUE = (
    r"(?i)true|false|none|null|nil|yes|no|on|off|auto|\$\{?\w+\}?|\$\(.*|\*+|<[\w -]*>|enabled?|disabled?"
    r"|required|\[|\{|\(|"
)
_KEY = (
    r"(?<![A-Za-z0-9])(?:(?P<hyphen>(?:sk|rk|pk|glpat|xox[abeprs]|nvapi|pypi|npm)-)|(?P<plain>(?:hf|gh[pousr]|npm|gsk|pypi)_)"
    r"|(?P<any>github_pat_|dop_v1_|glpat_|pk_live_|[sr]k_live_|AKIA|ASIA|AIza)|(?P<jwt>eyJ))"
)
_BASE64 = r"[A-Za-z0-9+/]{11,512}={0,2}"
_HOOK = r"(?i)(?:[^/?#]*[./])?(?:web)?hooks?(?:b2)?(?:[./][^/?#]*)?|bot\d+:[\w-]*"
_PEM = r"-----BEGIN[ ][A-Z ]{0,24}PRIVATE[ ]KEY-----"
_PLAIN = rb"[~.]{0,2}/[^\s:@=]*|[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)+|[\d.,:+-]*"  # a path, a dotted name, numbers


def is_secret_name(name: str | None) -> bool:
    """Whether the name of a variable, attribute, key or option says that its value is a key, a password or the like."""
    if not name or name in ("PWD", "OLDPWD"):
        return False
    name = name[-MAX_NAME:]
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_-").replace("-", "_").replace(".", "_")
    if re.search(_COUNTED, words) and not re.search(_SURE, words):
        return False
    return bool(re.fullmatch(_OF_ENVIRONMENT, name) or re.search(_SECRET, words))


def _tells(name: str) -> bool:
    """As `is_secret_name`, for a name before a value in a text."""
    words = name[-MAX_NAME:].lower()
    return is_secret_name(name) or bool(re.fullmatch(_IN_TEXT, words)) and not re.search(_COUNTED, words.replace("-", "_"))


def _match(pattern: str, text: str, at: int) -> re.Match[str] | None:
    return re.compile(pattern).match(text, at)


def _end(pattern: str, text: str, at: int) -> int:
    found = _match(pattern, text, at)
    return found.end() if found else at


class _Reader:
    """One reading of a text. Words of a command line are kept apart by NUL; in a title by blanks.

    `secrets` and `content` (what a person wrote: prompts) get the places, as (start, end). A method that looks at a token gets
    the place where that begins and ends, and returns the place where the reading goes on."""

    def __init__(self, text: str) -> None:
        self.text, self.words = text, "\0" in text
        self.secrets: list[tuple[int, int]] = []
        self.content: list[tuple[int, int]] = []
        self.short = self.named = ""  # a program's option for a password; what "name" of {"name": x, "value": y} says
        self.login = False  # in a line of .netrc
        self.address, self.last_at = 0, -1  # the end of an address, and its last @
        self.hook = self.kwargs = 0  # up to here: values of an option for a webhook; for a chat template

    def read(self) -> None:
        at = end = 0
        for found in itertools.islice(re.finditer(_TOKEN, self.text, re.DOTALL), MAX_TOKENS):
            start, end = found.span()
            if start >= at:
                at = self._token(start, end)
        if max(at, end) < len(self.text):
            self.secrets.append((max(at, end), len(self.text)))

    def _token(self, start: int, end: int) -> int:
        text = self.text
        first = text[start]
        if first == ":" and text.startswith("//", end):
            return self._address(start)
        if not (first.isalnum() or first in "_-."):
            return end
        token = text[start:end]
        if "-----BEGIN" in token:
            return self._private_key(start + token.index("-----BEGIN"), end)
        before = text[start - 1] if start else " "
        if first == "-" and len(token) > 1 and not token[1].isdigit() and (before in "\0\"'(" or before.isspace()):
            at = self._option(token, end)
        else:
            at = self._word(token, start, end, before)
        if at == end:
            at = self._value(token, start, end)
        return at if at != end else self._key(token, start, end)

    # ---- words -----------------------------------------------------------------------------------------------------
    def _option(self, token: str, end: int) -> int:
        """An option whose value is the next word, or which is one word with its value (-uUSER:PASSWORD)."""
        text, name = self.text, as_variable(token)
        after = text[end : end + 1]
        following = _match(_NEXT, text, end) if after in _QUOTED else None  # it is an item of a list
        if following:
            after = following[1][0]
        apart = following or after in ("", "\0") or after.isspace()
        if self.short and token[1] == self.short and (len(token) > 2 or not apart):
            return self._found(end - len(token) + 2, self._word_end(end, after))
        if token.startswith("-u") and len(token) > 2 and after == ":" and not text.startswith("://", end):
            return self._found(end + 1, self._word_end(end, after))
        if not apart:
            return end
        at = following.end() if following else end + 1 if after == "\0" else _end(r"[^\S\0]*", text, end)
        last = self._word_end(at, after)
        if "WEBHOOK" in name:
            self.hook = last
        if name.endswith("CHAT_TEMPLATE_KWARGS"):
            self.kwargs = last if self.words else len(text)
        if is_secret_name(name) or name == "KEY" and looks_secret(os.fsencode(text[at:last])) or token[1:] == self.short:
            return self._values(name, at, after) or end
        if re.fullmatch(_USER, token.lstrip("-").replace("-", "_")):
            return self._user(at, last) or end
        if re.fullmatch(_CONTENT, name.lower()) and not _is_option(text, at):
            whole = following or after == "\0"
            self.content.append((at, last if whole else _end(r"(?:(?!\s--?\w)[^\0])*", text, at)))
            return self.content[-1][1]
        return end

    def _word_end(self, at: int, after: str) -> int:
        """Where a word ends, after which `after` separates words: a NUL, or a blank; a quoted one has blanks. An item of a list
        ends at its quote."""
        if after in _QUOTED:
            return _end(_QUOTED[after], self.text, at)
        if after == "\0" or self.words and not after.isspace():
            return _end(r"[^\0]*", self.text, at)
        quote = self.text[at : at + 1]
        return _end(_QUOTED[quote], self.text, at + 1) if quote in ("'", '"') else _end(_WORD_END, self.text, at)

    def _values(self, name: str, at: int, after: str) -> int:
        """The values of a secret option: one word, and those after it that may be secrets too; all of --api-key."""
        text, last = self.text, 0
        while at < len(text) and not _is_option(text, at):
            end = self._word_end(at, after)
            value = text[at:end]
            if last and "API_KEY" not in name and not looks_secret(os.fsencode(value)):
                break
            if not last and (self._plain(value) or value.startswith(("/", "~", "./")) and re.fullmatch(_FILE, name.lower())):
                break
            scheme = _end(_SCHEME, text, at)
            last = self._found(scheme if scheme < end else at, end)
            at = end + 1 if after == "\0" else _end(_NEXT if after in _QUOTED else r"[\"']?[^\S\0]*", text, end)
            if after != "\0" and at == end:
                break
        return last

    def _user(self, at: int, end: int) -> int:
        """USER:PASSWORD; not 1000:1000 (docker's)."""
        user, mark, password = self.text[at:end].partition(":")
        if not mark or not password or password.startswith("//") or user.isdigit() and password.isdigit() or user.startswith("$"):
            return 0
        return self._found(at + len(user) + 1, end)

    def _word(self, token: str, start: int, end: int, before: str) -> int:
        """A word that tells of the one after it: a program, a scheme of HTTP's Authorization, a field of .netrc; and
        USER:PASSWORD@HOST."""
        text, low = self.text, token.lower()
        self.short = _SHORT.get(token, self.short)
        if low in ("machine", "login"):
            self.login = True
        if text[end : end + 1] == " ":
            if self.login and low in ("password", "passwd"):
                return self._found(end + 1, _end(_WORD_END, text, end + 1))
            scheme = _match(_SCHEME, text, start) if before != "-" else None
            if scheme and low == token[: len(low)].lower():
                last = _end(_CREDENTIALS, text, scheme.end())
                value = text[scheme.end() : last]
                long = len(value) >= 6 and (low == "bearer" or not value.isalpha() or not value.islower())
                return self._found(scheme.end(), last) if long and not self._plain(value) else end
        elif text[end : end + 1] == ":" and (before in "\0=\"'" or before.isspace()):
            found = _match(r"""[^\s\0"'/@]{4,256}@(?!sha\d)[\w.\[-]""", text, end + 1)
            if found and low not in ("mailto", "ssh"):
                return self._found(end + 1, found.end() - 2)
        return end

    # ---- values ----------------------------------------------------------------------------------------------------
    def _value(self, token: str, start: int, end: int) -> int:
        """NAME=VALUE, NAME: VALUE, "NAME": "VALUE"."""
        text = self.text
        found = _match(r"""\\{0,3}["']?[^\S\0]{0,16}(?P<mark>[:=])(?![:]|//)[^\S\0]{0,64}(?P<quote>\\{0,3}["'])?""", text, end)
        if not found:
            return end
        option, quote, at = token[0] == "-", found["quote"] or "", found.end()
        name = token.strip("-.")
        low = name[-MAX_NAME:].lower().replace("-", "_").rpartition(".")[2]
        if low == "name":
            self.named = text[at : min(self._value_end(low, quote, start, at, MAX_NAME), at + MAX_NAME)]
        if option and low.endswith("chat_template_kwargs"):
            self.kwargs = _end(r"[^\0]*", text, at) if self.words else len(text)
        if not quote and text[at : at + 1] == "[" and _tells(name):
            return self._found(at + 1, _end(r"[^\]\0]*", text, at))
        if re.fullmatch(_CONTENT, low) and (quote or option) or quote and at < self.kwargs:
            last = self._value_end(low, quote, start, at)
            if re.fullmatch(_CONTENT, low) or re.search(r"\s|[^ -~]", text[at:last]):
                self.content.append((at, last))
                return last
        if option and re.fullmatch(_USER, low):
            return self._user(at, self._value_end(low, quote, start, at)) or end
        if "webhook" in low and at > self.hook:
            self.hook = self._value_end(low, quote, start, at)
        if not self._is_secret(low, as_variable(name) if option else name, start, at):
            return end
        last = self._value_end(low, quote, start, at)
        value = text[at : min(last, at + MAX_PATH)]
        if self._plain(value) or found["mark"] == ":" and not quote and len(value) < 3:
            return end
        if value.startswith(("/", "~", "./")) and len(value) < MAX_PATH and re.fullmatch(_FILE, low):
            return end
        return self._found(at, last)

    def _is_secret(self, low: str, name: str, start: int, at: int) -> bool:
        """Whether what stands at `at`, after a name, is a secret."""
        text = self.text
        if name in ("PWD", "OLDPWD"):
            return not text.startswith(("/", "~"), at)
        if low == "key" and looks_secret(os.fsencode(text[at : _end(r"[^\s\0\"',;&}]{0,64}", text, at)])):
            return True
        if text[start - 1 : start] in ("?", "&") and low in ("key", "code", "sign", "auth"):
            return True
        return low in ("sig", "pw") or low == "value" and is_secret_name(self.named) or _tells(name)

    def _value_end(self, name: str, quote: str, start: int, at: int, most: int = 0) -> int:
        """Where a value ends that begins at `at`; at most `most` characters of it are read."""
        text = self.text[: at + most] if most else self.text
        if quote:
            return _end(_QUOTED[quote[0]], text, at)
        if name.endswith("cookie"):
            return _end(_COOKIES, text, at)
        at = _end(_SCHEME, text, at)
        whole = self.words and (not start or text[start - 1] == "\0")  # a word of a command line
        if whole and name.endswith("authorization"):
            return _end(r"[^\0]*", text, at)
        return _end(_LISTED if whole else _ITEM, text, at)

    def _plain(self, value: str) -> bool:
        return len(value) <= MAX_NAME and bool(re.fullmatch(_NO_VALUE, value))

    def _found(self, start: int, end: int) -> int:
        scheme = _end(_SCHEME, self.text, start)  # Authorization: Bearer
        start = scheme if scheme < end else start
        if start < end:
            self.secrets.append((start, end))
        return end

    # ---- what is secret by itself ----------------------------------------------------------------------------------
    def _private_key(self, start: int, end: int) -> int:
        found = _match(_PEM, self.text, start)
        if not found:
            return end
        last = self.text.find("-----END", found.end())
        return self._found(found.end(), last if last >= 0 else len(self.text))

    def _key(self, token: str, start: int, end: int) -> int:
        """A key with a known prefix; base64 of USER:PASSWORD."""
        for tries, found in enumerate(re.finditer(_KEY, token)):
            rest = token[found.start() :]
            letters = _end(r"[A-Za-z0-9]*", token, found.end()) - found.end()
            head, _, tail = rest.partition(".")
            if (
                tries >= 16  # nobody's key: what is left of it is left out
                or found["hyphen"]
                and len(rest) >= 15
                and re.search(r"[A-Z0-9]", rest)
                or found["plain"]
                and letters >= 10
                or found["any"]
                and len(rest) >= 16
                or found["jwt"]
                and len(head) >= 11
                and len(tail) >= 4
            ):
                return self._found(start + found.start(), end)
        if len(token) >= 8 and token.isalnum() and self.text[start - 1 : start] not in ("/", "+", "="):
            found64 = _match(_BASE64, self.text, start)
            if found64 and password_in(found64.group()):
                return self._found(start, found64.end())
        return end

    def _address(self, start: int) -> int:
        """`://` and what follows: user:password@, key@, and what a webhook's path has."""
        text, at = self.text, start + 3
        if at > self.address:
            self.address = _end(_ADDRESS, text, at)
            self.last_at = text.rfind("@", at, self.address)
            self._webhook(at, self.address, at <= self.hook)
        end = _end(_AUTHORITY, text, at)
        mark, colon = text.rfind("@", at, end), text.find(":", at, end)
        if mark < 0 <= colon and self.last_at >= end and not text[colon + 1 : end].isdigit() and text[at] != "[":
            mark = self.last_at  # a password with a slash or a question mark
        if mark < 0:
            return at
        colon = text.find(":", at, mark)
        if colon >= 0:
            self._found(colon + 1, mark)
        elif mark - at >= 6 and not text[max(start - 4, 0) : start].endswith(("ssh", "sftp")):
            self._found(at, mark)
        return mark

    def _webhook(self, at: int, end: int, named: bool) -> None:
        """The part of a path by which anybody may post: after /hooks/ or /webhooks/, of a host hooks.x, /bot<number>:<key>."""
        path = re.split(r"[?#]", self.text[at : min(end, at + MAX_PATH)], maxsplit=1)[0]
        segments = path.split("/")
        for place, segment in enumerate(segments):
            rest = "/".join(segments[place + 1 :])
            begin = at + len(path) - len(rest)
            if re.fullmatch(r"bot\d+:.*", segment):
                self._found(at + len(path) - len(rest) - len(segment) - (1 if rest else 0) + 3, at + len(path))
                return
            if named or len(segment) <= 256 and re.fullmatch(_HOOK, segment):
                if place == 0 and not named and rest.count("/"):
                    begin += len(segments[1]) + 1  # hooks.slack.com/services/
                if rest and re.search(r"[A-Z0-9]|.{16}", self.text[begin : at + len(path)]):
                    self._found(begin, at + len(path))
                return
            if place >= 16:
                return


def _is_option(text: str, at: int) -> bool:
    return bool(_match(r"-[-\w]*[A-Za-z]|--(?=[\s\0]|$)", text, at))  # `--` ends the values of the option before it


def password_in(word: str | bytes) -> bytes:
    """The password of text that is base64 of USER:PASSWORD; b"" of other text."""
    try:
        plain = binascii.a2b_base64(word + ("=" if isinstance(word, str) else b"=") * (-len(word) % 4))  # type: ignore[operator]
    except (binascii.Error, ValueError):
        return b""
    found = re.fullmatch(rb"[!-9;-~]{1,64}:([ -~]{3,})", plain)
    return found[1] if found else b""


def looks_secret(value: bytes) -> bool:
    """Whether a value of unknown meaning may be a key or a password: letters and digits, no path, number or dotted name."""
    letters, digits = len(re.findall(rb"[A-Za-z]", value[:64])), len(re.findall(rb"\d", value[:64]))
    return len(value) >= 10 and letters >= 2 and digits >= 2 and not re.fullmatch(_PLAIN, value)


def as_variable(option: str) -> str:
    """As a variable of the environment would be named. `--pwd` is no working folder."""
    name = option.lstrip("-").replace("-", "_").replace(".", "_").upper()
    return name.lower() if name in ("PWD", "OLDPWD") else name


def spans(text: str, content: bool = False) -> list[tuple[int, int]]:
    """(start, end) of the parts of a text that must not be shown, in order, apart: values under the names of secrets, passwords
    of addresses, keys with a known prefix. With `content` also those that people wrote: prompts. NULs join the words of a command
    line. Its time is linear in the length of the text."""
    if not re.search(_MARKS, text):
        return []
    reader = _Reader(text)
    reader.read()
    merged: list[tuple[int, int]] = []
    for start, end in sorted(reader.secrets + (reader.content if content else [])):
        if merged and start < merged[-1][1]:
            start, end = merged[-1][0], max(end, merged.pop()[1])
        merged.append((start, end))
    return merged
