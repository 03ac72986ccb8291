"""Offer functions of your program as tools: with ``async`` or without, with progress, with errors the model reads."""

import asyncio
import os
from typing import Annotated

from pydantic import Field

from dial_client import Context, DialClient

MODEL = os.environ.get("DIAL_MODEL", "local")
STOCK = {"tea": 3, "coffee": 0}


async def order(article: str, count: Annotated[int, Field(ge=1, le=10)] = 1, *, context: Context) -> dict[str, int]:
    """Order an article.

    Args:
        article: The name of the article.
        count: The number of packets.
    """
    await context.report_progress(1, 2, "checking stock")
    if STOCK.get(article, 0) < count:
        raise ValueError(f"there are {STOCK.get(article, 0)} packets of {article}")
    STOCK[article] -= count
    return {"ordered": count, "left": STOCK[article]}


async def main() -> None:
    async with DialClient(MODEL, tools=[order]) as dial:
        turn = await dial.run("Order the article tea, count 2.")
        for record in turn.tool_calls:
            print(record.tool, dict(record.call.arguments), record.result.content)
        print(turn.text)


asyncio.run(main())
