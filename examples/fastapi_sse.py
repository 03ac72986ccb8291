"""Serve a chat as server-sent events with FastAPI: ``uvicorn --app-dir examples fastapi_sse:app``.

``curl -N localhost:8000/chat -H 'content-type: application/json' -d '{"question": "What time is it in Tokyo?"}'``
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from dial_client import DialClient

MODEL = os.environ.get("DIAL_MODEL", "local")
SERVERS = {"time": {"command": "mcp-server-time", "args": ["--local-timezone", "UTC"]}}


class Chat(BaseModel):
    question: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with DialClient(MODEL, servers=SERVERS) as app.state.dial:  # one client for all requests
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/chat")
async def chat(body: Chat, request: Request) -> StreamingResponse:
    # If the reader disconnects, the turn is cancelled.
    return StreamingResponse(request.app.state.dial.stream_response(body.question), media_type="text/event-stream")
