"""Asks `otel-ml mcp` over the protocol: `python -m tests.integration.mcp_client DIR CALLS`.

CALLS is a JSON list of [tool, arguments]. Prints a JSON object: the tools, and an answer for each call.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mcp import Client, StdioServerParameters

__all__: list[str] = []


async def asked(base: str, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "otel_ml_service", "mcp", "--dir", base], env=dict(os.environ)
    )
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        version = client.server_info.version
        answers = [await client.call_tool(name, arguments) for name, arguments in calls]
    return {
        "version": version,
        "tools": {tool.name: tool.annotations.read_only_hint if tool.annotations else None for tool in tools},
        "answers": [
            {
                "is_error": bool(answer.is_error),
                "text": "".join(getattr(part, "text", "") for part in answer.content),
                "content": answer.structured_content,
            }
            for answer in answers
        ],
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(asked(sys.argv[1], json.loads(sys.argv[2])))))
