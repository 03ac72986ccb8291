"""Ask many questions at once, with a progress bar; a failed question does not affect the others."""

import asyncio
import os

from dial_client import DialClient, Limits, Turn

MODEL = os.environ.get("DIAL_MODEL", "local")
CITIES = ("Tokyo", "Berlin", "Lima", "Cairo")


async def main() -> None:
    async with DialClient(MODEL, system="Answer in one word.") as dial:
        prompts = [f"Which country is {city} in?" for city in CITIES]
        results = await dial.map(prompts, concurrency=2, progress=True, limits=Limits(timeout=600))
    for city, result in zip(CITIES, results, strict=True):
        print(f"{city}: {result.text if isinstance(result, Turn) else f'failed: {result}'}")


asyncio.run(main())
