"""The workflow replays histories that earlier versions recorded, so a run may go on after an update. Needs no server.

Record one with `client.get_workflow_handle("toolmason/RUN").fetch_history()` and `to_json()`. A history is not replaced
when the workflow changes: the change is versioned with `workflow.patched`, and another history is added.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from toolmason.scale.temporal_workflow import RunWorkflow

HISTORIES = sorted((Path(__file__).parents[1] / "data" / "temporal").glob("*.json"))


async def replay(text):
    replayer = Replayer(workflows=[RunWorkflow], workflow_runner=UnsandboxedWorkflowRunner())
    return await replayer.replay_workflow(WorkflowHistory.from_json("w", text), raise_on_replay_failure=False)


@pytest.mark.parametrize("file", HISTORIES, ids=lambda file: file.stem)
async def test_a_recorded_history_is_replayed_without_a_difference(file):
    assert (await replay(file.read_text())).replay_failure is None


async def test_a_history_of_another_workflow_is_noticed():
    [file] = [file for file in HISTORIES if file.stem == "interrupted"]
    history = json.loads(file.read_text())
    for event in history["events"]:
        scheduled = event.get("activityTaskScheduledEventAttributes", {})
        if scheduled.get("activityType", {}).get("name") == "tool pay":
            scheduled["activityType"]["name"] = "tool other"

    assert "Nondeterminism" in str((await replay(json.dumps(history))).replay_failure)


def test_the_sdk_is_loaded_only_by_the_code_that_needs_it():
    code = "import sys; import toolmason.scale as scale; scale.RemoteCall; print('temporalio' in sys.modules)"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "False"


def test_there_are_histories():
    assert {file.stem for file in HISTORIES} >= {
        "approval",
        "interrupted",
        "killed",
        "lease-perform",
        "lease-record",
        "not-started",
        "worker",
    }
