"""Django with a toolbox at /mcp: `uvicorn django_app:app`."""

from secrets import token_hex
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from tools import box

from toolmason import asgi_app

settings.configure(ALLOWED_HOSTS=["tools.example.com"], ROOT_URLCONF=__name__, SECRET_KEY=token_hex())
django.setup()


async def home(request: HttpRequest) -> HttpResponse:
    """Answer the page of the application itself."""
    return HttpResponse(f"Hello from {request.path}")


urlpatterns = [path("", home)]
pages = get_asgi_application()
mcp = asgi_app(box, path="/mcp", allowed_hosts=["tools.example.com"])


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Send requests for tools, and the start and end of the server, to the toolbox; Django handles neither."""
    is_tools = scope["type"] == "lifespan" or scope["path"] == "/mcp"
    await (mcp if is_tools else pages)(scope, receive, send)
