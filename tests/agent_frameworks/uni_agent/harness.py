"""A black-box coding harness: chat completions with tools over HTTP, nothing else. Standard library only, so that it
runs under ``python -I -S``, where no tracer of the environment gets in (as in node). FLOW chooses the shape of its
histories."""

import json
import os
import subprocess
import threading
import time
import urllib.request

BASE, FLOW = os.environ["HARNESS_BASE_URL"], os.environ.get("HARNESS_FLOW", "linear")
TASK = os.environ.get("HARNESS_TASK", "count the files")


def tool(name, argument):
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": name,
            "parameters": {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]},
        },
    }


MAIN_TOOLS, SUB_TOOLS = [tool("bash", "command"), tool("agent", "prompt")], [tool("bash", "command")]
MAIN = {"role": "system", "content": "You are the main agent."}
SUB = {"role": "system", "content": "You are a sub-agent. Be brief."}


def ask(messages, tools=None, **more):
    streams = FLOW == "streamed"
    body = {"model": "policy", "messages": messages, "stream": streams, **({"tools": tools} if tools else {}), **more}
    kind = {"content-type": "application/json"}
    request = urllib.request.Request(f"{BASE}/chat/completions", json.dumps(body).encode(), kind)
    with urllib.request.urlopen(request, timeout=120) as answer:
        message = streamed(answer) if streams else json.load(answer)["choices"][0]["message"]
    return {name: value for name, value in message.items() if value is not None}


def streamed(answer):
    """The message, of whose tool calls the first piece is all."""
    message = {"role": "assistant", "content": ""}
    for line in answer:
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                delta = choice["delta"]
                message["content"] += delta.get("content") or ""
                if delta.get("tool_calls"):
                    message["tool_calls"] = delta["tool_calls"]
    return message


def bash(command):
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=20)
    return (done.stdout + done.stderr).strip()


def sub_agent(prompt, limit=4):
    history = [SUB, {"role": "user", "content": f"SUB: {prompt}"}]
    for _ in range(limit):
        answer = ask(history, SUB_TOOLS)
        history.append(answer)
        if not answer.get("tool_calls"):
            return answer["content"]
        for call in answer["tool_calls"]:
            result = bash(json.loads(call["function"]["arguments"])["command"])
            history.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return "gave up"


def run_calls(answer):
    """Results in the order of the calls; sub-agents of one turn run at the same time."""
    results = [None] * len(answer["tool_calls"])

    def one(number, call):
        arguments = json.loads(call["function"]["arguments"])
        is_agent = call["function"]["name"] == "agent"
        results[number] = sub_agent(arguments["prompt"]) if is_agent else bash(arguments["command"])

    threads = [threading.Thread(target=one, args=item) for item in enumerate(answer["tool_calls"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calls = zip(answer["tool_calls"], results, strict=True)
    return [{"role": "tool", "tool_call_id": call["id"], "content": result} for call, result in calls]


def main():
    user = {"role": "user", "content": f"TASK {FLOW}: {TASK}"}
    history, title = [MAIN, user], None
    if FLOW == "subagents":  # a title is asked for in the background, as Claude Code does
        title = threading.Thread(target=ask, args=([{"role": "user", "content": f"Write a title for: {TASK}"}],))
        title.start()
    if FLOW == "best_of":  # two samples of one prompt, one goes on
        ask(history, MAIN_TOOLS)
        answer = ask(history, MAIN_TOOLS)
    else:
        answer = ask(history, MAIN_TOOLS)
    for turn in range(40 if FLOW == "long" else 8):
        history.append(answer)
        if not answer.get("tool_calls"):
            break
        history += run_calls(answer)
        if FLOW == "crash":
            os._exit(9)
        if FLOW == "hang":
            time.sleep(600)
        if FLOW == "compaction" and turn == 1:
            summary = ask([*history, {"role": "user", "content": "Summarise what was done so far."}], MAIN_TOOLS)
            history = [MAIN, {"role": "user", "content": f"CONTINUED {FLOW}: {summary['content']}"}]
        if FLOW == "rewrite" and turn == 1:  # the last answer is said otherwise: a format error, a hidden thought
            history[-2] = {**history[-2], "content": "(rewritten by the harness)"}
        answer = ask(history, MAIN_TOOLS)
    if title:
        title.join()
    print(history[-1]["content"])


main()
