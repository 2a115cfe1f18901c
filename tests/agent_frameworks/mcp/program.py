"""An agent whose tools are those of an MCP server in a child process. Written without a thought of tracing."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

SERVER = StdioServerParameters(command=sys.executable, args=[str(Path(__file__).with_name("tool_server.py"))])


class Agent:
    def __init__(self, session: ClientSession | Client) -> None:
        self.session = session

    async def solve(self, question: int) -> str:
        """One task: two tools at once, one of which fails."""
        added, divided = await asyncio.gather(
            self.session.call_tool("add", {"a": question, "b": 2}),
            self.session.call_tool("divide", {"a": 1, "b": 0}),
        )
        assert divided.is_error
        return str(added.content[0].text)


async def main() -> None:
    async with stdio_client(SERVER) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        await session.call_tool("add", {"a": 0, "b": 0})
        agent = Agent(session)
        print(*await asyncio.gather(*(agent.solve(question) for question in range(3))))
    async with Client(stdio_client(SERVER)) as client:
        print(await Agent(client).solve(3))


if __name__ == "__main__":
    asyncio.run(main())
