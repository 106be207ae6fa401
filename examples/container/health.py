"""Succeed if the server answers, and refuses a request without a token."""

import os
import sys
from http import HTTPStatus
from http.client import HTTPConnection

connection = HTTPConnection("127.0.0.1", int(os.environ.get("PORT", "8000")), timeout=2)
headers = {"Content-Type": "application/json", "Host": os.environ.get("ALLOWED_HOST", "localhost")}
connection.request("POST", "/mcp", "{}", headers)
status = connection.getresponse().status
print("The server answered", status)
sys.exit(status != HTTPStatus.UNAUTHORIZED)
