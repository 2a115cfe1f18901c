"""An agent that asks a model and adds two numbers. Standard library only: it runs under ``python -I -S``, where no
tracer gets in."""

import json
import re
import sys
import urllib.request


def ask(base, messages):
    body = json.dumps({"model": "policy", "messages": messages}).encode()
    request = urllib.request.Request(f"{base}/v1/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def solve(base, question, *helpers):
    for helper in helpers:  # a sub-agent
        ask(base, [{"role": "system", "content": helper}, {"role": "user", "content": question}])
    messages = [{"role": "user", "content": question}]
    said = ask(base, messages)
    a, b = map(int, re.findall(r"\d+", said))
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": f"result: {a + b}"}]
    print(ask(base, messages))


if __name__ == "__main__":
    solve(*sys.argv[1:])
