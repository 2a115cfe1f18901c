"""A server of tools over stdio."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

server = MCPServer("calculator")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def divide(a: int, b: int) -> float:
    """Divide two numbers."""
    return a / b


if __name__ == "__main__":
    server.run("stdio")
