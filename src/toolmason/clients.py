"""What a tool may ask of whoever called it over MCP: the questions for `ctx.client.ask`, and the answers."""

from toolmason._core.clients import Client, Elicit, Elicited, Question, Roots, Sample

__all__ = ["Client", "Elicit", "Elicited", "Question", "Roots", "Sample"]
