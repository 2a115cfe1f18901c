"""Runs the agent once."""

import agent

agent.run("apples")
