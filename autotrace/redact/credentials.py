"""Credentials within a text, by shape and by the name they stand under: everything but them stays as it is.

A text is looked at in two steps, because ordinary text is most of what is recorded. The first step is a few passes in C
over the text in ASCII, a character for a character (so positions agree): is there a run that is long enough for a
token, and does a name of a secret occur at all? Only where that is so, a pattern is tried, at that place.
"""

from __future__ import annotations

import bisect
import itertools
import re
import string
from collections.abc import Iterator, Sequence

from autotrace.redact.named_values import without_named_values
from autotrace.redact.rules import (
    APART,
    HOOKS,
    PLACES,
    PRIVATE_KEY_BEGINS,
    SCHEME,
    SHORTEST,
    SIGNS,
    TOKENS,
    Place,
    any_of,
)  # fmt: skip
from autotrace.redact.secret_names import FRAGMENTS, fragments, name_starts, pw_at, secret_kind

REDACTED = "<redacted>"

_ALPHABET = (string.ascii_letters + string.digits + "_-").encode()
_RUNS = bytes(97 if byte in _ALPHABET else 32 for byte in range(256))
"""Translates a character of a token to ``a``, any other to a blank."""
_RUN = b"a" * SHORTEST
_TOKEN = re.compile(f"(?<![A-Za-z0-9])(?:{any_of(TOKENS)})")
_REST = re.compile(r"[\w.+/=-]*")
"""What may belong to a token behind its first run."""
_KEY_BEGINS = re.compile(PRIVATE_KEY_BEGINS)
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}-----")
_DATA_OF_KUBERNETES = re.compile(
    r"(?P<begin>^(?P<indent>[ \t]*)(?:data|stringData):[ \t]*\n)"
    r"(?P<lines>(?:(?P=indent)[ \t]{1,8}[\w.-]{1,99}:[^\n]{0,9999}\n?){1,99})",
    re.M,
)
_LINE_OF_DATA = re.compile(r"^(\s+[\w.-]+:[ \t]+)\S[^\n]*", re.M)
_MEMBER_BEFORE = re.compile(
    r"(?P<head>(?P<q>\\{0,7}[\"'])(?:value|val)(?P=q)\s{0,9}:\s{0,9}(?P=q))(?P<value>(?:(?!(?P=q)).){1,4096})"
    r"(?P<tail>(?P=q)\s{0,9},\s{0,9}(?P=q)(?:name|key|header)(?P=q)\s{0,9}:\s{0,9}(?P=q)(?P<name>[\w.\-]{1,64})(?P=q))"
)
_TAIL_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY")
_TAIL = re.compile(r"[A-Za-z0-9+/=\s\\]{16,}")
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=\s\\:,.()-]*")
_KEY_CUT_OFF = re.compile(r"[A-Za-z0-9+/=\s\\:,-]{16,}")
_LONGEST_KEY = 20_000
_NEAR, _SHORT = 8, 100
"""Words of a command before one of it, and their length, that may make it a password."""
_HOOK = re.compile(any_of(HOOKS))
_SCHEME = re.compile(SCHEME)
_PLACES = [(place, re.compile(place.pattern), place.signs()) for place in PLACES]
_WORD_BEGINS = re.compile(r"\b(?=\w)")
_FOLDED = (("\u017f", "s"), ("\u212a", "k"), ("\u0131", "i"), ("\u0130", "i"))
"""Letters beyond ASCII that a pattern that ignores case takes for letters of ASCII."""
RUN = "run"
"""A sign (see ``signs``): characters of a token, ``SHORTEST`` of them or more."""
ORDINARY: frozenset[str] = frozenset()
"""``signs`` of a text in which no rule can find anything."""

_USERINFO = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30})://(?P<user>[^/\s:@\"'<>?#]{0,1024})"
    r"(?P<password>:(?!\d{1,5}[/?#])(?:[^/\s\"'<>]{0,1024}|[^@\s\"'<>]{0,256}))?@"
)


def without_credentials(
    text: str, mask: str = REDACTED, any_value: bool = False, known: frozenset[str] | None = None
) -> str:
    """``text`` with each credential replaced by ``mask``.

    ``any_value``: whatever stands behind a secret's name is its value, as on a command line. Otherwise what source code
    and prose have in that place stays: types, calls, ``token=token``, ``<your password>``. ``known``: its ``signs``, or
    more than these.
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
    if "@" in known and "://" in plain:
        text = without_userinfo(text, mask)
        plain = _plain(text)
    if names:
        text = without_named_values(text, plain, names, mask, any_value)
        text = _without_members(text, mask)
    if "bearer" in known or "basic " in known:
        text = _SCHEME.sub(lambda match: match["scheme"] + mask, text)
    for place, pattern, needed in _PLACES:
        if needed.isdisjoint(known) or place.sign not in plain or not _is_near(place, plain, known):
            continue
        if place.reach is None:
            text = pattern.sub(lambda match: match["head"] + mask, text)
        else:
            having = [name for name in names if name in place.needles]
            text = _without_passwords(text, pattern, name_starts(_plain(text).lower(), having), place.reach, mask)
    return text


def _without_members(text: str, mask: str) -> str:
    """``text`` without values whose names follow them, and without the data of a secret of Kubernetes."""
    if "value" in text and ('"name' in text or "'name" in text or '"key' in text or '"header' in text):
        text = _MEMBER_BEFORE.sub(
            lambda match: match["head"] + mask + match["tail"] if secret_kind(match["name"]) else match[0], text
        )
    if "kind: Secret" in text:
        shown = rf"\1{mask}"
        text = _DATA_OF_KUBERNETES.sub(lambda all: all["begin"] + _LINE_OF_DATA.sub(shown, all["lines"]), text)
    return text


def _is_near(place: Place, plain: str, known: frozenset[str]) -> bool:
    for name, needles in place.needles.items():
        if not name or name in known:
            for needle in needles:
                if needle in plain:
                    return True
    return False


def in_command(words: Sequence[object], mask: str) -> Iterator[tuple[int, str]]:
    """Which of ``words`` are credentials because of those before, as in ``docker login -p X``, and what to show."""
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
    """``pattern`` is looked for at words up to ``reach`` before each of ``starts``."""
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
    """What stands in ``text`` that all credentials have or stand behind; where there is nothing, no rule can find
    anything. Each has at most ``SHORTEST`` characters, so the signs of a text are those of its parts and of what is as
    near as that to where they meet."""
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
    """The signs of each of ``texts``. All of them are looked through at once, which takes less than one by one."""
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
    """``text`` in ASCII, a character for a character. (To ask ``bytes`` for what they contain takes five times as
    long as to ask a string.)"""
    if text.isascii():
        return text
    for letter, plain in _FOLDED:
        text = text.replace(letter, plain)
    return text.encode("ascii", "replace").decode("ascii")


def _without_private_keys(text: str, mask: str) -> str:
    """PEM, also with its line ends escaped, or cut off."""
    pieces: list[str] = []
    written = body_ends = 0
    closing = _KEY_ENDS.search(text)
    for opening in _KEY_BEGINS.finditer(text):
        if opening.start() < written:
            continue
        at = opening.end("dashes")
        if at > body_ends:
            body_ends = _KEY_BODY.match(text, at).end()  # type: ignore[union-attr] # matches nothing, too
        while closing is not None and closing.start() < at:
            closing = _KEY_ENDS.search(text, at)
        if closing is not None and closing.start() <= min(body_ends, at + _LONGEST_KEY):
            end = closing.end()
        elif (rest := _KEY_CUT_OFF.match(text, at)) is not None:
            end = rest.end()
        else:
            continue
        pieces += (text[written : opening.start()], mask)
        written = end
    text = "".join((*pieces, text[written:]))
    if (ends := _TAIL_ENDS.search(text)) is not None:  # the tail of a file whose beginning is elsewhere
        body = _TAIL.match(text[max(0, ends.start() - _LONGEST_KEY) : ends.start()][::-1])
        if body is not None:
            text = text[: ends.start() - body.end()] + mask + text[ends.start() :]
    return text


def _without_tokens(text: str, runs: bytes, mask: str) -> str:
    """Tokens are looked for only in the words that hold a long enough run."""
    pieces: list[str] = []
    written = 0
    rest_ends = -1
    at = runs.find(_RUN)
    while at >= 0:
        begins = runs.rfind(b" ", written, at)
        start = max(written, begins + 1 - APART.get(text[begins], 0)) if begins >= 0 else written
        if at > rest_ends:
            end = runs.find(b" ", at)
            rest_ends = len(text) if end < 0 else _REST.match(text, end).end()  # type: ignore[union-attr] # matches nothing, too
        end = rest_ends
        match = _TOKEN.search(text, start, end)
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
    """``text`` without the passwords and tokens in front of the hosts of its URLs."""
    return _USERINFO.sub(lambda match: _without_userinfo(match, mask), text)


def _without_userinfo(match: re.Match[str], mask: str) -> str:
    """A short user name stays, for people; a user without a password is a token where the scheme is HTTP."""
    scheme, user, password = match["scheme"], match["user"], match["password"] or ""
    if len(password) > 1:
        if len(user) <= 16 and password != ":x-oauth-basic":
            return f"{scheme}://{user}:{mask}@"
    elif not user or (not password and not scheme.lower().endswith(("http", "https"))):
        return match[0]
    return f"{scheme}://{mask}@"
