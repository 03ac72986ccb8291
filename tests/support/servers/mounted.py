"""A FastAPI program in a folder with a servers.json, which mounts the page and its API under ``/assistant``."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from dial_client import Callbacks, DialClient
from dial_client.serve import PageUser, create_app

LIFETIME = 300.0
TOKEN = "a-token"

user = PageUser()
dial = DialClient.from_config("servers.json", approve=user, callbacks=Callbacks(elicit=user.elicit))
web = create_app(dial, user, token=TOKEN)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with dial, web.lifespan():  # its own client, which the mounted application must not close or open again
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/assistant", web)


@app.get("/own")
async def own() -> dict[str, str]:
    """Return the result of a turn that the program runs itself."""
    return {"answer": (await dial.run("Delete it.")).text}


if __name__ == "__main__":
    end = threading.Timer(LIFETIME, os._exit, [9])
    end.daemon = True
    end.start()
    served = web if "alone" in sys.argv else app
    listener = socket.create_server(("127.0.0.1", 0))
    prefix = "" if served is web else "assistant/"
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/{prefix}#token={TOKEN}", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(served, log_level="warning")).run(sockets=[listener])
