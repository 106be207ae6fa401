"""Send the events of a chat to browsers and other front ends: an ASGI application and three protocols."""
