"""A workflow of activities without Toolmason, as a floor for runs on Temporal."""

from datetime import timedelta

from temporalio import activity, workflow

NAME = "bare"


@activity.defn(name=NAME)
async def bare(text: str) -> str:
    """Return the text."""
    return text


@workflow.defn(name=NAME)
class Bare:
    """Activities, one after another."""

    @workflow.run
    async def run(self, count: int) -> None:
        """Execute them."""
        for _ in range(count):
            await workflow.execute_activity(NAME, "x", start_to_close_timeout=timedelta(seconds=60))
