"""Stand-in for SGLang's tool-call parser: hermes marks only."""

import json
import re
from types import SimpleNamespace

CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.S)


class FunctionCallParser:
    def __init__(self, tools, parser_name):
        self.names = {tool.function.name for tool in tools}

    def has_tool_call(self, text):
        return "<tool_call>" in text

    def parse_non_stream(self, text):
        calls = [json.loads(match) for match in CALL.findall(text)]
        content = CALL.sub("", text).replace("<|im_end|>", "").strip()
        return content, [SimpleNamespace(name=c["name"], parameters=json.dumps(c["arguments"])) for c in calls]
