"""`toolmason worker [TARGET]`: drive the runs of a Temporal server with the tools of a target."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import closing
from typing import Any

import click

from toolmason._text import pluralize
from toolmason.cli.commands.ask_model.chat import make_chat, model_options
from toolmason.cli.main import OK, examples
from toolmason.cli.main_thread import on_interrupt, run_beside
from toolmason.cli.output import echo
from toolmason.cli.targets import load_toolbox


@click.command(
    "worker",
    epilog=examples(
        "worker app.py:box --queue invoices --model openai:gpt-5",
        "worker app.py:box --temporal temporal.internal:7233 --grace 60",
    ),
)
@model_options
@click.option(
    "--temporal",
    "address",
    default="localhost:7233",
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the server.",
)
@click.option("--namespace", default="default", show_default=True, help="Namespace of the server.")
@click.option("--queue", default="toolmason", show_default=True, help="Task queue of the runs.")
@click.option(
    "--max-runs", type=click.IntRange(1), default=10, show_default=True, help="Maximum number of runs at a time."
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time that running runs get to end after Ctrl-C or SIGTERM.",
)
def command(target: str | None, **options: Any) -> None:
    """Drive the runs of a queue with a model and the tools of TARGET, until Ctrl-C or SIGTERM.

    A program starts runs with `TemporalRuntime.start`. A run that has not ended within the grace goes on in another
    worker.
    """
    from toolmason.scale import TemporalRuntime, TemporalWorker  # noqa: PLC0415 - an optional package

    box = load_toolbox(target, logs_failures=True)
    with closing(
        TemporalRuntime(options["address"], namespace=options["namespace"], queue=options["queue"])
    ) as runtime:
        chat = make_chat(box, options, runtime=runtime)
        worker = TemporalWorker(chat, runtime, max_runs=options["max_runs"], grace=options["grace"])

        async def drive() -> None:
            with on_interrupt(worker.stop):
                await worker.run(
                    lambda: echo(
                        f"Driving runs of the queue {options['queue']!r} at {options['address']} with "
                        f"{pluralize(len(box), 'tool')}. Press Ctrl-C to stop.",
                        err=True,
                    )
                )

        previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            run_beside(drive())
        finally:
            signal.signal(signal.SIGTERM, previous)
    # Threads of Temporal's core may still use the interpreter, so that its regular end would hang or crash.
    click.get_current_context().close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(OK)
