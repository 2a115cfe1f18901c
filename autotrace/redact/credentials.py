"""Replace credentials within a text, found by shape or by name; everything else stays.

Most recorded text is ordinary, so the search has two steps. The first step is a few passes in C over the text in ASCII,
a character for a character (so positions agree). Is a run long enough for a token, and does a name of a secret occur at
all? Only then a pattern is tried, at that place.
"""

from __future__ import annotations

import bisect
import itertools
import re
import string
from collections.abc import Iterator, Sequence

from autotrace.redact.images import decoded
from autotrace.redact.named_values import without_named_values
from autotrace.redact.rules import (
    APART,
    HOOKS,
    PASSWORDS,
    PLACES,
    PRIVATE_KEY_BEGINS,
    SCHEME,
    SHORTEST,
    SIGNS,
    TOKENS,
    CredentialContext,
    any_of,
)  # fmt: skip
from autotrace.redact.secret_names import FRAGMENTS, fragments, name_starts, pw_at, secret_kind

REDACTED = "<redacted>"

_ALPHABET = (string.ascii_letters + string.digits + "_-").encode()
_RUNS = bytes(97 if byte in _ALPHABET else 32 for byte in range(256))
"""Translates a character of a token to ``a``, and any other character to a blank."""
_RUN = b"a" * SHORTEST
_TOKEN = re.compile(f"(?<![A-Za-z0-9])(?:{any_of(TOKENS)})")
_REST = re.compile(r"[\w.+/=-]*")
_ESCAPES = re.compile(
    r"(?:\x1b|\\u001b|\\x1b|\\033|\\e)\[[0-9;]{0,16}m|\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[nrtbf])|%[0-9A-Fa-f]{2}"
)
"""Match a colour and the escapes of JSON, Python and URLs, which end in letters: a token may follow at once."""
"""Matches the rest of a token behind the first run."""
_LINE, _LAST = r"[A-Za-z0-9][A-Za-z0-9+/=]{15,}", r"[A-Za-z0-9][A-Za-z0-9+/=]{0,14}"
_APART = r"[^A-Za-z0-9]{1,300}(?:[A-Za-z0-9]{1,5}[^A-Za-z0-9]{1,300}){0,3}"
"""Match a line of base64, the last line, and the text between lines: blanks, quotes, ``\\n``, ``<br>``, ``%0A``."""
_HEADERS = r"(?:[^A-Za-z0-9]{1,300}[A-Za-z][A-Za-z-]{0,40}: [^\r\n<\"\\]{0,200}(?=[\r\n<\"\\])){0,4}"
_KEY = re.compile(
    rf"{PRIVATE_KEY_BEGINS}{_HEADERS}(?:(?:{_APART})?{_LINE})+"
    rf"(?:(?:{_APART}{_LAST})?(?:(?:{_APART})?-{{4,5}} ?END [A-Z0-9 ]{{0,40}}-{{4,5}}|\Z))?"
)
"""Matches a private key in PEM form, perhaps cut off."""
_KEY_ENDS = re.compile(r"-----? ?END [A-Z0-9 ]{0,40}PRIVATE KEY")
_TAIL = re.compile(rf"(?:[A-Za-z0-9]{{0,5}}{_APART})?(?:{_LAST}{_APART})?{_LINE}(?:{_APART}{_LINE})*")
"""Matches the lines in front of a key's end, backwards."""
_DATA_OF_KUBERNETES = re.compile(
    r"(?P<begin>^(?P<indent>[ \t]*)(?:data|stringData):[ \t]*\n)"
    r"(?P<lines>(?:(?P=indent)[ \t]{1,8}[\w.-]{1,99}:[^\n]{0,9999}\n?){1,99})",
    re.M,
)
_LINE_OF_DATA = re.compile(r"^(\s+[\w.-]+:[ \t]+)\S[^\n]*", re.M)
_MEMBER_BEFORE = re.compile(
    r"(?P<head>(?P<q>(?<!\\)\\{0,255}[\"'])(?:value|val)(?P=q)\s{0,9}:\s{0,9}(?P=q))(?P<value>(?:(?!(?P=q)).){1,4096})"
    r"(?P<tail>(?P=q)\s{0,9},\s{0,9}(?P=q)(?:name|key|header)(?P=q)\s{0,9}:\s{0,9}(?P=q)(?P<name>[\w.\-]{1,64})(?P=q))"
)
_LONGEST_KEY = 20_000
_NEAR, _SHORT = 8, 100
"""Limits for words of a command: the number of words before a password, and the length of such a word."""
_HOOK = re.compile(any_of(HOOKS))
_SCHEME = re.compile(SCHEME)
_PLACES = [(place, re.compile(place.pattern), place.signs()) for place in PLACES]
_WORD_BEGINS = re.compile(r"\b(?=\w)")
_FOLDED = (("\u017f", "s"), ("\u212a", "k"), ("\u0131", "i"), ("\u0130", "i"))
"""Maps letters beyond ASCII to the ASCII letters that a case-insensitive pattern takes for equal."""
_FOREIGN = tuple(
    (word.strip(string.ascii_letters)[-1:], word, "Pw".ljust(len(word), "_"))
    for small in PASSWORDS
    if not small.isascii()
    for word in sorted({small, small.capitalize(), small.upper()})
)
"""Lists words for ``password``: a letter beyond ASCII in the word, the word, and a fragment of the same length."""
_SLASHES = {":": ("://",), "\\": ("\\/", "\\u002"), "&": (":&#",)}
"""Maps a character to signs of a URL, also of a URL within JSON or HTML."""
RUN = "run"
"""Sign (see ``signs``): at least ``SHORTEST`` characters of a token in a row."""
ORDINARY: frozenset[str] = frozenset()
"""Signs of a text in which no rule can find anything."""

_SLASH = r"(?:\\{0,255}(?:/|u002[fF])|&#(?:x2[fF]|47);)"
_USERINFO = re.compile(
    rf"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{{0,30}}:{_SLASH}{_SLASH})"
    r"(?P<user>[^/\s:@\"'<>?#]{0,1024})(?P<password>:(?!\d{1,5}\\{0,255}[/?#])(?:[^/\s\"'<>]{0,1024}|[^@\s\"'<>]{0,256}))?@"
)


def without_credentials(
    text: str, mask: str = REDACTED, any_value: bool = False, known: frozenset[str] | None = None
) -> str:
    """Return ``text`` with each credential replaced by ``mask``.

    With ``any_value``, any text behind a secret's name is a value, as on a command line. Otherwise source code and
    prose in that place stay: types, calls, ``token=token``, ``<your password>``. ``known`` holds the text's ``signs``,
    or a superset.
    """
    known = signs(text) if known is None else known
    if not known:
        return text
    plain = _plain(text)
    names = [fragment for fragment in FRAGMENTS if fragment in known]
    if RUN in known:
        text = _without_tokens(text, plain.encode().translate(_RUNS), mask)
        plain = _plain(text)
    if "key" in names and "PRIVATE KEY" in plain:
        text = _without_private_keys(text, mask)
        plain = _plain(text)
    if "@" in known and any(
        [any([each in plain for each in slashes]) for at, slashes in _SLASHES.items() if at in plain]
    ):
        text = without_userinfo(text, mask)
        plain = _plain(text)
    if names:
        text = without_named_values(text, plain, names, mask, any_value)
        text = _without_members(text, mask)
    if "bearer" in known or "basic " in known:
        text = _without_schemes(text, mask)
    for place, pattern, needed in _PLACES:
        if needed.isdisjoint(known) or place.sign not in plain or not _is_near(place, plain, known):
            continue
        if place.reach is None:
            text = pattern.sub(lambda match: match["head"] + mask, text)
        else:
            having = [name for name in names if name in place.needles]
            text = _without_passwords(text, pattern, name_starts(_plain(text).lower(), having), place.reach, mask)
    return text


def _without_schemes(text: str, mask: str) -> str:
    """Mask the token behind ``Bearer``, and a user and a password in base64 behind ``Basic``."""
    return _SCHEME.sub(
        lambda match: match["scheme"] + mask if not match["user"] or b":" in decoded(match["value"]) else match[0], text
    )


def _without_members(text: str, mask: str) -> str:
    """Mask values whose names follow the value, and the data of a Kubernetes secret."""
    if "value" in text and ('"name' in text or "'name" in text or '"key' in text or '"header' in text):
        text = _MEMBER_BEFORE.sub(
            lambda match: match["head"] + mask + match["tail"] if secret_kind(match["name"]) else match[0], text
        )
    if "kind: Secret" in text:
        shown = rf"\1{mask}"
        text = _DATA_OF_KUBERNETES.sub(lambda all: all["begin"] + _LINE_OF_DATA.sub(shown, all["lines"]), text)
    return text


def _is_near(place: CredentialContext, plain: str, known: frozenset[str]) -> bool:
    for name, needles in place.needles.items():
        if not name or name in known:
            for needle in needles:
                if needle in plain:
                    return True
    return False


def in_command(words: Sequence[object], mask: str) -> Iterator[tuple[int, str]]:
    """Yield the index of each word that is a credential because of earlier words (``docker login -p X``), and the
    masked word."""
    if not any(type(word) is str and _is_option(word) for word in words):
        return
    if not signs(" ".join([word for word in words if type(word) is str])):
        return
    for at, word in enumerate(words[1:], 1):
        before = words[at - 1]
        if type(word) is str and type(before) is str and (_is_option(word) or _is_option(before)):
            near = [each for each in words[max(0, at - _NEAR) : at] if type(each) is str and len(each) < _SHORT]
            head = " ".join([*near, ""])
            shown = without_credentials(head + word[:_LONGEST_KEY], mask)
            head = without_credentials(head, mask)
            if shown.startswith(head) and shown != head + word[:_LONGEST_KEY]:
                yield at, shown[len(head) :]


def _is_option(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and (word[1].isalpha() or word.startswith("--"))


def _without_passwords(text: str, pattern: re.Pattern[str], starts: list[int], reach: int, mask: str) -> str:
    """Mask matches of ``pattern`` that begin at a word up to ``reach`` before any of ``starts``."""
    pieces: list[str] = []
    written = 0
    for start in starts:
        for word in _WORD_BEGINS.finditer(text, max(written, start - reach), start + 1):
            match = pattern.match(text, word.start())
            if match is not None:
                pieces += (text[written : match.end("head")], mask)
                written = match.end()
                break
    return "".join((*pieces, text[written:])) if written else text


def signs(text: str) -> frozenset[str]:
    """Find the signs of ``text`` that all credentials have or follow; without a sign, no rule can find anything.

    A sign has at most ``SHORTEST`` characters. The signs of a text are therefore the signs of the text's parts and of
    the neighbourhood of each border.
    """
    plain = _plain(text)
    lower = plain.lower()
    having = fragments(plain, lower)
    if plain.encode().translate(_RUNS).find(_RUN) >= 0:
        having.append(RUN)
    for character, others in SIGNS.items():
        if character in lower:
            for sign in others:
                if sign in lower:
                    having.append(sign)
    return frozenset(having) if having else ORDINARY


def signs_of_lines(texts: Sequence[str]) -> list[frozenset[str]]:
    """Find the signs of each of ``texts``, in a single search over all texts, which is faster than separate
    searches."""
    whole = "\n".join(texts)  # a line's end is in no sign, and ends a name as the end of a text does
    plain = _plain(whole)
    lower = plain.lower()
    runs = plain.encode().translate(_RUNS)
    ends = list(itertools.accumulate(len(text) + 1 for text in texts))
    having: dict[int, set[str]] = {}

    def find(sign: str, at: int) -> int:
        if sign == RUN:
            return runs.find(_RUN, at)
        return pw_at(plain, lower, at) if sign == "pw" else lower.find(sign, at)

    rare = [sign for character, others in SIGNS.items() if character in lower for sign in others]
    for sign in (*FRAGMENTS, RUN, *rare):
        at = find(sign, 0)
        while at >= 0:
            line = bisect.bisect_right(ends, at)
            having.setdefault(line, set()).add(sign)
            at = find(sign, ends[line])
    return [frozenset(having[line]) if line in having else ORDINARY for line in range(len(texts))]


def _plain(text: str) -> str:
    """Convert ``text`` to ASCII, a character for a character. (Searching ``bytes`` takes five times as long as
    searching a string.)"""
    if text.isascii():
        return text
    for letter, plain in _FOLDED:
        text = text.replace(letter, plain)
    for letter, word, fragment in _FOREIGN:
        if letter in text:
            text = text.replace(word, fragment)
    return text.encode("ascii", "replace").decode("ascii")


def _without_private_keys(text: str, mask: str) -> str:
    """Mask private keys in PEM form with any separator of lines, also without the beginning or the end."""
    text = _KEY.sub(mask, text)
    pieces: list[str] = []
    written = 0
    for ends in _KEY_ENDS.finditer(text):  # the beginning is elsewhere
        body = _TAIL.match(text[max(written, ends.start() - _LONGEST_KEY) : ends.start()][::-1])
        if body is not None:
            pieces += (text[written : ends.start() - body.end()], mask)
            written = ends.start()
    return "".join((*pieces, text[written:]))


def _without_tokens(text: str, runs: bytes, mask: str) -> str:
    """Mask tokens; the search covers only words that hold a long enough run."""
    pieces: list[str] = []
    searched = text
    if "\\" in text or "%" in text or "\x1b" in text:
        searched = _ESCAPES.sub(lambda escape: " " * len(escape[0]), text)
        runs = _plain(searched).encode().translate(_RUNS)
    written = 0
    rest_ends = -1
    at = runs.find(_RUN)
    while at >= 0:
        begins = runs.rfind(b" ", written, at)
        start = max(written, begins + 1 - APART.get(text[begins], 0)) if begins >= 0 else written
        if at > rest_ends:
            end = runs.find(b" ", at)
            rest_ends = len(text) if end < 0 else _REST.match(searched, end).end()  # type: ignore[union-attr] # matches nothing, too
        end = rest_ends
        match = _TOKEN.search(searched, start, end)
        if match is not None:
            pieces += (text[written : max(match.start(), match.end("head"))], mask)
            written = end = match.end()
        at = runs.find(_RUN, end)
    if written:
        text = "".join((*pieces, text[written:]))
    if "hook" in text:
        text = _HOOK.sub(mask, text)
    return text


def without_userinfo(text: str, mask: str = REDACTED) -> str:
    """Return ``text`` without the passwords and tokens in front of the hosts of URLs."""
    return _USERINFO.sub(lambda match: _without_userinfo(match, mask), text)


def _without_userinfo(match: re.Match[str], mask: str) -> str:
    """Mask the user information of a URL. A short user name stays, for people; a user without a password is a token if
    the scheme is HTTP."""
    scheme, user, password = match["scheme"], match["user"], match["password"] or ""
    if len(password) > 1:
        if len(user) <= 16 and password != ":x-oauth-basic":
            return f"{scheme}{user}:{mask}@"
    elif not user or (not password and not scheme.partition(":")[0].lower().endswith(("http", "https"))):
        return match[0]
    return f"{scheme}{mask}@"
