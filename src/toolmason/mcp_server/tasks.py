"""Run calls as tasks in this process that outlive their request (the tasks extension)."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pydantic_core import to_json

from toolmason._wire import ByteBudget
from toolmason.mcp_client.specification import INTERNAL_ERROR, RpcError
from toolmason.mcp_server.client_requests import Answers

MAX_TASKS: Final = 1000
"""Maximum number of tasks; beyond it, the oldest finished one is dropped."""
OWNER_SHARE: Final = 10
"""Divisor of the maximum: one user may have a tenth of all tasks, and so cannot take all slots."""
TASK_TTL_SECONDS: Final = 3600.0
"""Seconds for which a task is kept after it finishes, or waits for an answer."""
MAX_RESULT_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of the results of all finished tasks; beyond it, the oldest of the user with the most are dropped."""
MAX_OWNER_RESULT_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of those of one user."""
POLL_INTERVAL_MS: Final = 500


@dataclass(slots=True, eq=False, repr=False)
class ServedTask:
    """A call that runs as a task."""

    id: str
    owner: str
    status: str = "working"
    created: float = field(default_factory=time.time)
    updated: float = field(default_factory=time.time)
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    questions: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    work: asyncio.Task[None] | None = None
    _answers_changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def done(self) -> bool:
        """True if the task has finished."""
        return self.status in ("completed", "failed", "cancelled")

    def set_status(self, status: str, **fields: Any) -> None:
        """Set the status, unless the task has finished."""
        if not self.done:
            self.status, self.updated = status, time.time()
            for name, value in fields.items():
                setattr(self, name, value)

    async def ask(self, questions: dict[str, dict[str, Any]]) -> Answers:
        """Wait until the client has answered all questions."""
        self.questions = dict(questions)
        self.set_status("input_required")
        try:
            async with asyncio.timeout(TASK_TTL_SECONDS):
                while self.questions:
                    await self._answers_changed.wait()
                    self._answers_changed.clear()
        except TimeoutError:
            self.set_status(
                "failed", error={"code": INTERNAL_ERROR, "message": "The task's questions were not answered in time."}
            )
            raise
        self.set_status("working")
        return {key: self.answers[key] for key in questions}

    def add_answers(self, answers: Mapping[str, Any]) -> None:
        """Record the answers to pending questions, and ignore others."""
        for key in [key for key in self.questions if isinstance(answers.get(key), Mapping)]:
            self.answers[key] = answers[key]
            del self.questions[key]
        self.updated = time.time()
        self._answers_changed.set()

    def to_dict(self) -> dict[str, Any]:
        """Return the task as MCP data."""
        data: dict[str, Any] = {
            "taskId": self.id,
            "status": self.status,
            "createdAt": _format_time(self.created),
            "lastUpdatedAt": _format_time(self.updated),
            "ttlMs": int(TASK_TTL_SECONDS * 1000),
            "pollIntervalMs": POLL_INTERVAL_MS,
        }
        if self.result is not None:
            data["result"] = self.result
        if self.error is not None:
            data["error"] = self.error
        if self.status == "input_required":
            data["inputRequests"] = dict(self.questions)
        return data


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(slots=True, eq=False, repr=False)
class TaskStore:
    """The tasks of a server, by id."""

    max_tasks: int = MAX_TASKS
    tasks: dict[str, ServedTask] = field(default_factory=dict)
    results: ByteBudget[str] = field(default_factory=lambda: ByteBudget(MAX_RESULT_BYTES, MAX_OWNER_RESULT_BYTES))
    """Sizes of the results, by task id."""

    def create(self, owner: str) -> ServedTask:
        """Create and store a task.

        Raises:
            RpcError: all slots are taken by running tasks.
        """
        self._make_room(owner)
        task = ServedTask(secrets.token_urlsafe(24), owner)
        self.tasks[task.id] = task
        return task

    def find(self, task_id: Any, owner: str) -> ServedTask | None:
        """Return a task, or None if it is unknown or belongs to another owner."""
        task = self.tasks.get(task_id) if isinstance(task_id, str) else None
        return task if task is not None and task.owner == owner else None

    def start(self, task: ServedTask, work: Coroutine[Any, Any, None]) -> None:
        """Run the work of a task in the background."""
        task.work = asyncio.get_running_loop().create_task(work, name=f"toolmason-task-{task.id}")

    def complete(self, task: ServedTask, result: dict[str, Any]) -> None:
        """Store the result of a task. Older results may be dropped for it."""
        task.set_status("completed", result=result)
        if task.status == "completed" and task.id in self.tasks:
            self.results.grow(task.id, task.owner, len(to_json(result)))
            while (excess := self.results.find_excess(task.owner)) is not None:
                self._drop(excess)

    def _drop(self, task_id: str) -> None:
        del self.tasks[task_id]
        self.results.release(task_id)

    def cancel(self, task: ServedTask) -> None:
        """Cancel a task."""
        task.set_status("cancelled")
        if task.work is not None:
            task.work.cancel()

    async def close(self) -> None:
        """Cancel all running tasks."""
        running = [task.work for task in self.tasks.values() if task.work is not None and not task.work.done()]
        for work in running:
            work.cancel()
        if running:
            await asyncio.wait(running, timeout=1.0)

    def _make_room(self, owner: str) -> None:
        now = time.time()
        for task_id, task in tuple(self.tasks.items()):
            if task.done and now - task.updated > TASK_TTL_SECONDS:
                self._drop(task_id)
        # Anonymous callers cannot be distinguished, so they share all slots.
        owned = [task_id for task_id, task in self.tasks.items() if task.owner == owner] if owner else []
        if len(owned) >= max(1, self.max_tasks // OWNER_SHARE):
            self._drop_oldest(owned)
        if len(self.tasks) >= self.max_tasks:
            self._drop_oldest(list(self.tasks))

    def _drop_oldest(self, task_ids: list[str]) -> None:
        """Drop the oldest finished one of these tasks."""
        oldest = next((task_id for task_id in task_ids if self.tasks[task_id].done), None)
        if oldest is None:
            raise RpcError(INTERNAL_ERROR, "Too many tasks are running. Try again later.")
        self._drop(oldest)
