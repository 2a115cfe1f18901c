"""What runs inside of the Ray processes: the stand-in engine, the task, and the agent that starts the harness."""

import asyncio
import json
import os
import random
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


class Engine:
    """In the place of a vLLM or SGLang server: reads the prompt's text and says what its script says."""

    def __init__(self, model, step=3):
        from transformers import AutoTokenizer

        self.tok, self.step, self.random, self.calls = AutoTokenizer.from_pretrained(model), step, random.Random(7), 0

    async def generate(self, request_id, prompt_ids, sampling_params, image_data=None, video_data=None, **_):
        from verl.workers.rollout.replica import TokenOutput

        self.calls += 1
        await asyncio.sleep(0.02 + self.random.random() * 0.03)
        text = self.say(self.tok.decode(prompt_ids)) + "<|im_end|>"
        ids = self.tok.encode(text, add_special_tokens=False)
        limit, stop = sampling_params.get("max_tokens"), "completed"
        if limit and len(ids) > limit:
            ids, stop = ids[:limit], "length"
        steps = {name: self.step for name in ("global_steps", "min_global_steps", "max_global_steps")}
        return TokenOutput(token_ids=ids, log_probs=[-0.1] * len(ids), stop_reason=stop, extra_fields=steps)

    def say(self, text):
        parts = re.findall(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", text, re.S)
        role, last = parts[-1]
        flow = (re.findall(r"(?:TASK|CONTINUED) (\w+):", text) or ["?"])[-1]
        results = sum(1 for each, _ in parts if each == "tool")

        def call(name, **arguments):
            return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"

        if "tools:submit" in text:
            return "I am done." + call("submit")
        if "TASK mini" in text:
            end = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo the answer is 3"
            return "I use the shell." + call("bash", command=end if results else "echo 3")
        if "You are a sub-agent" in text:
            return "I count." + call("bash", command="echo 3") if role == "user" else f"There are {last.strip()} files."
        if "Write a title" in last:
            return "Counting files"
        if "Summarise" in last:
            return "Two directories were counted: 3 files."
        if "CONTINUED" in text and results == 0:
            return "Let me check again." + call("bash", command="echo 3")
        if flow == "long":
            return f"Step {results}." + call("bash", command="head -c 1000 /dev/zero | tr '\\0' x")
        if results == 0:
            if flow == "subagents":
                return "I delegate." + call("agent", prompt="count src") + call("agent", prompt="count tests")
            return f"I look ({self.random.randint(10, 99)})." + call("bash", command="echo 3")
        if results == 1 and flow in ("compaction", "rewrite"):
            return "And the other one." + call("bash", command="echo 3")
        return f"The answer is {3 if self.random.random() < 0.5 else 4}."


def register():
    """uni-agent's registries are filled by importing; this is such a module."""
    from uni_agent.agents.base import Agent, AgentConfig, AgentResult
    from uni_agent.agents.registry import AGENT_REGISTRY, register_agent
    from uni_agent.tasks.base import Task, TaskConfig, TaskResult
    from uni_agent.tasks.registry import register_task

    if "lab_harness" in AGENT_REGISTRY:
        return

    class HarnessConfig(AgentConfig):
        name: str = "lab_harness"
        flow: str = "linear"
        run_timeout: float = 20.0

    @register_agent("lab_harness")
    class HarnessAgent(Agent):
        config_model = HarnessConfig

        async def run(self, *, sandbox, messages):
            cfg = self.config
            argv = [sys.executable, "-I", "-S", os.path.join(HERE, "harness.py")]
            task = messages[0]["content"]
            env = {"HARNESS_BASE_URL": cfg.model.base_url, "HARNESS_FLOW": cfg.flow, "HARNESS_TASK": task}
            done = await sandbox.exec(argv, env=env, timeout=cfg.run_timeout)
            info = {"exit_code": done.exit_code, "stderr": done.stderr[-300:]}
            return AgentResult(output={"answer": done.stdout.strip()}, info=info, finished=done.exit_code == 0)

    class MiniConfig(AgentConfig):
        name: str = "lab_mini"

    @register_agent("lab_mini")
    class MiniAgent(Agent):
        config_model = MiniConfig

        async def run(self, *, sandbox, messages):
            from minisweagent.agents.default import DefaultAgent
            from minisweagent.environments.local import LocalEnvironment
            from minisweagent.models.litellm_model import LitellmModel

            endpoint = {"api_base": self.config.model.base_url, "api_key": "EMPTY"}
            model = LitellmModel(model_name="openai/policy", model_kwargs=endpoint, cost_tracking="ignore_errors")
            templates = {"system_template": "You use bash.", "instance_template": "TASK mini: {{task}}"}
            agent = DefaultAgent(model, LocalEnvironment(), **templates)
            said = await asyncio.to_thread(agent.run, messages[0]["content"])
            return AgentResult(output={"answer": said["submission"]}, finished=said["exit_status"] == "Submitted")

    @register_task("lab_count")
    class CountTask(Task):
        config_model = TaskConfig

        async def run(self):
            async with self.build_sandbox() as sandbox:
                result = await self.build_agent().run(sandbox=sandbox, messages=self.config.prompt)
            right = float("answer is 3" in (result.output or {}).get("answer", ""))
            return TaskResult(reward=right, accuracy=right, finished=result.finished, extra_info=result.info)


async def runner(**kwargs):
    """The framework's AgentRunner: uni-agent's own, with the lab's task and agent registered first."""
    register()
    if kwargs["tools_kwargs"]["task"]["agent"].get("flow") == "raises":
        raise RuntimeError("the sandbox could not be started")
    from uni_agent.framework.task_runner import run_task

    await run_task(**kwargs, model_name="policy", report_reward=True)
