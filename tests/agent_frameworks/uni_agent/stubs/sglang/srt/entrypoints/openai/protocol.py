"""Stand-in for SGLang's protocol: what uni-agent's codec wraps tool schemas in before it parses."""

from types import SimpleNamespace


class Function(SimpleNamespace):
    pass


class Tool(SimpleNamespace):
    pass
