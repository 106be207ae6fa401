"""Documents for the tests, a server that records the requests, and one that runs an application."""

import socket
import threading
from contextlib import contextmanager

import httpx2
import uvicorn


def operation(**fields):
    return {"responses": {"200": {"description": "Fine."}}, **fields}


def document(paths, **fields):
    info = {"title": "Sample", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "servers": [{"url": "https://api.test"}], "paths": paths, **fields}


def parameter(name, location="query", schema=None, **fields):
    required = {"required": True} if location == "path" else {}
    return {"name": name, "in": location, "schema": schema or {}, **required, **fields}


class Recorder:
    """A client whose server answers each request with the next response, or else with an empty object."""

    def __init__(self, *responses):
        self.responses = list(responses)
        self.requests = []
        self.client = httpx2.AsyncClient(transport=httpx2.MockTransport(self.answer), base_url="https://api.test/v1")

    def answer(self, request):
        self.requests.append(request)
        return self.responses.pop(0) if self.responses else httpx2.Response(200, json={})

    @property
    def sent(self):
        """Path and query of the last request."""
        return self.requests[-1].url.raw_path.decode().removeprefix("/v1")


@contextmanager
def running(app, lifespan="off"):
    """Run an application in a thread, and give its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # A client that comes before the server runs waits instead of being refused.
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan=lifespan))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            thread.join(10)
