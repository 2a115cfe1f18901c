"""Match the value behind the name of a secret: in code, JSON, YAML, XML, headers, command lines and URLs."""

from __future__ import annotations

import re

ASSIGNED = re.compile(r"\s{1,9}(?:[:=]|\|\||\?\?|\*?string\s{0,9}=|\[\]byte\s{0,9}=)")
_WRAPPED = r"(?:(?:pydantic\.)?(?:Secret(?:Str|Bytes)?|Field)\((?:default=)?)?"
_LITERAL = r"(?P<quote>\\{0,255}(?:\"{3}|'{3}|[\"'`]))(?P<value>(?s:.*?))(?:(?<!\\)(?P=quote)|\Z)"
_QUOTED = rf"{_WRAPPED}[bBrRuUfF]{{0,2}}(?!`){_LITERAL}"
_BARE = r"(?:[^\s\x1b\"'`&;,{}\[\]<>()]+|[,)(\]\[}{](?![\s,;)}\]\"'`]|\Z|[\w.\-]+[:=]))+"
_UNQUOTED = (
    r"(?P<scheme>(?i:bearer|basic|digest|negotiate|apikey|(?<=zation: )token)\s+)?"
    rf"(?P<bare>(?!:){_BARE})"
)
AFTER_QUOTED_NAME = re.compile(rf"\\{{0,255}}[\"'](?:\s{{0,9}}(?::|=>?)\s{{0,9}}(?:{_QUOTED}|{_UNQUOTED}))")
PAIR = re.compile(
    r"\\{0,255}[\"']\s{0,9},\s{0,9}(?:(?P<member>\\{0,255}[\"'](?:[vV]alue|val|v|default|content)\\{0,255}[\"']\s{0,9}:\s{0,9}))?"
    r"[bru]{0,2}(?P<quote>\\{0,255}[\"'])(?P<value>(?s:.*?))(?:(?<!\\)(?P=quote)|\Z)"
)
BEHIND_SCHEME = re.compile(r"[ \t]{1,9}(?:[\w-]{1,30}[=:])?(?P<value>[^\s\"'`<>&;]{8,4000})[ \t]*(?=[\r\n\"'`\\,}]|\Z)")
"""Match a credential of a header, behind any scheme."""
_COLOUR = r"(?:\x1b\[[\d;]{0,9}m)?"
AFTER_NAME = re.compile(
    rf"{_COLOUR}\s{{0,9}}(?P<separator>:=|:(?![:=])|=>?(?!=))\s{{0,9}}{_COLOUR}\s{{0,9}}(?:{_QUOTED}|{_UNQUOTED})"
)
_TYPE = r"&?[A-Za-z_][\w.]{0,40}(?:[\[<][\w.,| \[\]<>]{0,60}[\]>])?(?: ?\| ?[A-Za-z_][\w.]{0,40}){0,3}"
AFTER_TYPED_NAME = re.compile(
    rf"(?:\s{{0,9}}:\s{{0,9}}{_TYPE}\s{{0,9}}=|\s{{1,9}}(?:\*?string|\[\]byte)\s{{0,9}}="
    rf"|\s{{0,9}}(?:\|\||\?\?)|\s{{0,9}}:?=(?=\s{{1,9}}`))\s{{0,9}}(?:{_QUOTED.replace('(?!`)', '')})"
)
"""Matches ``password: str = "..."``, ``password string = "..."`` of Go, ``env.PASSWORD || "..."``, and backticks."""
AFTER_SUBSCRIPT = re.compile(
    rf"\\{{0,255}}[\"'](?:[\])]{{1,2}}\s{{0,9}}(?:=(?!=)|or\b|\|\||\?\?)|\s{{0,9}},\s{{0,9}}default\s{{0,9}}=)\s{{0,9}}{_QUOTED}"
)
"""Matches ``environ["PASSWORD"] = "..."``, ``getenv("PASSWORD") or "..."``, ``getenv("PASSWORD", default="...")``."""
AFTER_OPTION = re.compile(r"\s{1,9}(?:[\"'](?P<value>[^\"']+)[\"']|(?P<bare>[^\s\"'-][^\s\"']*))")
SETS = re.compile(r"(?:(?:^|\n)[ \t]*(?:ENV|ARG)|(?:^|[\s;])(?:set[ \t]+-\w*x\w*|setenv))[ \t]+\Z")
AFTER_SET_NAME = re.compile(r"[ \t]{1,9}[\"']?(?P<value>[^\s\"'=|;&]+)")
"""Matches ``ENV PASSWORD ...`` of a Dockerfile, ``set -x PASSWORD ...`` of fish, ``setenv PASSWORD ...`` of csh."""
PARAMS = re.compile(r"params\s?[=:]\s?\{[^{}]{0,60}\\{0,255}[\"']\Z")
LOGPROB = re.compile(r"\\{0,255}[\"'],[^{}]{0,40}logprob")
ACCOUNT = re.compile(
    r"\s{0,9}[=:]\s{0,9}\(\s{0,9}[bru]{0,2}[\"'][^\"'\n]{0,100}[\"']\s{0,9},\s{0,9}[bru]{0,2}[\"'](?P<value>[^\"'\n]{1,4000})[\"']\s{0,9}\)"
)
"""Matches ``auth=("bob", "...")``."""
MARKED = re.compile(r"(?:\*\*:|:\*\*|:(?=\s{1,9}`))\s{0,9}[`\"']?(?P<value>[^\s`\"'<>]{8,400})")
"""Matches ``**Password:** `...` `` of Markdown."""
ATTRIBUTE = re.compile(
    r"\\{0,255}[\"'](?:\s{1,9}[\w:-]{1,40}=\\{0,255}[\"'][^\"'<>]{0,100}[\"']){0,4}\s{1,9}value=\\{0,255}[\"'](?P<value>[^\"'<>\\]{1,4000})"
)
"""Matches ``<property name="password" value="...">``, also in a form."""
PART = re.compile(
    r"\\{0,255}[\"'](?:(?:\r?\n|\\{1,7}r\\{1,7}n)[A-Za-z-]{1,40}:[^\r\n\\]{0,200})?(?:\r?\n|\\{1,7}r\\{1,7}n){2}(?P<value>[^\r\n\\]+)"
)
"""Matches a field of a multipart form: the name, an empty line, the value."""
ENCODED = re.compile(r"%(?:25)?3[dD](?P<bare>(?:(?!%(?:25)?(?:26|3[bB]|23))[^\s\"'`&<>;,)])+)")
"""Matches ``password%3D...`` of an address within an address."""
ELEMENT = re.compile(
    r"(?:\s[^<>]{0,200})?>\s{0,9}"
    r"(?:<!\[CDATA\[(?P<literal>[^<\]]{1,4000})\]\]>|(?P<value>[^<\s](?:[^<]{0,4000}[^<\s])?))\s{0,9}</"
)
PREFIX = re.compile(r"<[\w.-]{1,64}:\Z")
BLOCK = re.compile(r"[ \t]{0,9}:[ \t]{1,9}[|>][-+\d]{0,2}[ \t]{0,9}\r?\n(?P<indent>[ \t]{1,64})(?P<first>[^\r\n]+)")
"""Matches a block scalar of YAML."""
_WITHIN = r"[^\[\]{}]{0,4000}"
HELD = re.compile(
    rf"(?:\\{{0,255}}[\"'])?\s{{0,9}}[:=]\s{{0,9}}(?P<value>[\[{{]{_WITHIN}(?:[\[{{]{_WITHIN}[\]}}]{_WITHIN}){{0,40}}(?:[\]}}]|\Z))"
)
"""Matches a list or a mapping behind a name."""
STRING = re.compile(
    r"(?P<quote>(?<!\\)\\{0,255}[\"'])(?:(?P<word>[^\s\"'\\#$<{*][^\s\"'\\]{0,4000})|[^\"'\\]{0,4000})(?P=quote)(?P<key>\s{0,9}:)?"
)
"""Matches a string in a list or a mapping, as ``word`` if the string has no blanks, and with a colon if a key."""
DECLARES = re.compile(
    r"type\\{0,255}[\"']\s{0,9}:\s{0,9}\\{0,255}[\"'](?:string|integer|number|boolean|array|object|apiKey|http)|logprob"
)
"""Matches a schema, which declares a value, and tokens of a model."""
ITEMS = re.compile(
    r"[ \t]{0,9}:[ \t]{0,9}\r?\n(?P<indent>[ \t]{0,64})(?:-|value:)[ \t]{1,9}[\"']?(?P<first>[^\s:\"']{8,4000})"
    r"[\"']?[ \t]{0,9}(?=[\r\n]|\Z)"
)
"""Matches the first item of a list of YAML, or a value below the name."""
