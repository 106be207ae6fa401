"""A program that traces as its argument says, for `tracing.py`: otlp, logfire, langfuse or phoenix."""

import asyncio
import os
import sys

from toolmason import Allow, Chat, McpServer, Retry, Toolbox, tool
from toolmason.chat import Price, Usage
from toolmason.models import ModelReply
from toolmason.testing import ScriptedModel

SECRET = "sk-not-in-any-span-0123456789"  # noqa: S105 - looked for in what arrives
ATTEMPTS = iter([True, False])


def set_up(kind: str, url: str) -> None:
    """Set up tracing as the documentation of each SDK says, with the receiver as its server."""
    if kind == "otlp":
        from opentelemetry import metrics, trace
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
        trace.set_tracer_provider(provider)
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{url}/v1/metrics"))
        metrics.set_meter_provider(MeterProvider([reader]))
    elif kind == "logfire":
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = url
        import logfire

        logfire.configure(send_to_logfire=False, console=False)
    elif kind == "langfuse":
        from langfuse import Langfuse

        Langfuse(public_key="pk-lf-test", secret_key="sk-lf-test", base_url=url)  # noqa: S106 - not a key
    else:
        from phoenix.otel import register

        register(endpoint=f"{url}/v1/traces", protocol="http/protobuf", batch=False, verbose=False)


@tool(retry=Retry(attempts=3, delay=0), read_only=True)
async def read_meter(name: str, api_key: str) -> float:
    """Read a meter."""
    if next(ATTEMPTS):
        raise TimeoutError(f"{name} with {api_key}")
    return 21.5


@tool(destructive=True)
def reset_meter(name: str) -> str:
    """Reset a meter."""
    raise OSError(f"no meter {name} for {SECRET}")


async def main(kind: str, url: str) -> None:
    """Run a chat with a server, a retry, an approval and a failure."""
    set_up(kind, url)
    server = McpServer.of("meters", Toolbox(read_meter))
    box = Toolbox(server, reset_meter, approver=lambda _: Allow(), name="desk")
    first = [("read_meter", {"name": "main", "api_key": SECRET}), ("reset_meter", {"name": "main"})]
    last = ModelReply.from_dict(
        {
            "message": {"role": "assistant", "content": [{"type": "text", "text": "21.5"}]},
            "finish": "stop",
            "usage": {"input_tokens": 100, "output_tokens": 20},
        }
    )
    assert last.usage == Usage(100, 20)
    chat = Chat(ScriptedModel([first, last], name="openai:gpt-5"), box, price=Price(input=1, output=2))
    async with chat:
        reply = await chat.send(f"Read the main meter with {SECRET}.")
    assert reply.text == "21.5"
    from opentelemetry import metrics, trace

    for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
        getattr(provider, "force_flush", lambda: None)()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
