"""Chat with a model that calls tools: `Chat`, its replies, events, advisors, memories and durable runs."""

from typing import TYPE_CHECKING

from toolmason._lazy import lazy_names

if TYPE_CHECKING:
    from toolmason._core.run.progress import ProgressReport
    from toolmason._core.toolbox.exchange import ArgumentsDelta, CallClosed, CallOpened, TextDelta, ThoughtDelta, Usage
    from toolmason._core.values.messages import Citation, Message, Summary
    from toolmason._core.values.policy import Limits
    from toolmason._store.postgres_store import PostgresStore
    from toolmason._store.sqlite_store import SqliteStore
    from toolmason._store.store import Store
    from toolmason.chat.answers import Answer, AnswerProgress
    from toolmason.chat.budget import Budget, SqliteBudget, StoreBudget
    from toolmason.chat.chat import Chat
    from toolmason.chat.durable.effects import Completed, NotExecuted
    from toolmason.chat.durable.journal import EffectRecord, RunRecord, SqliteRuntime, StoreRuntime
    from toolmason.chat.events import (
        CallFinished,
        CallProgress,
        CallStarted,
        Compacted,
        Delegated,
        Done,
        Event,
        StepFinished,
        load_event,
    )
    from toolmason.chat.frontends.chat_app import sse
    from toolmason.chat.loop import Advisor, ModelTurn, NextStep, ToolLoop, before_loop, inside_loop
    from toolmason.chat.memory import Memory, SqliteMemory, StoreMemory, WindowMemory
    from toolmason.chat.programs.code import Code
    from toolmason.chat.reply import Delegation, Reply, Step
    from toolmason.chat.run.compaction import Compact
    from toolmason.chat.run.spending import PRICES, PRICES_DATE, Price
    from toolmason.chat.search import Search

__all__ = [
    "PRICES",
    "PRICES_DATE",
    "Advisor",
    "Answer",
    "AnswerProgress",
    "ArgumentsDelta",
    "Budget",
    "CallClosed",
    "CallFinished",
    "CallOpened",
    "CallProgress",
    "CallStarted",
    "Chat",
    "Citation",
    "Code",
    "Compact",
    "Compacted",
    "Completed",
    "Delegated",
    "Delegation",
    "Done",
    "EffectRecord",
    "Event",
    "Limits",
    "Memory",
    "Message",
    "ModelTurn",
    "NextStep",
    "NotExecuted",
    "PostgresStore",
    "Price",
    "ProgressReport",
    "Reply",
    "RunRecord",
    "Search",
    "SqliteBudget",
    "SqliteMemory",
    "SqliteRuntime",
    "SqliteStore",
    "Step",
    "StepFinished",
    "Store",
    "StoreBudget",
    "StoreMemory",
    "StoreRuntime",
    "Summary",
    "TextDelta",
    "ThoughtDelta",
    "ToolLoop",
    "Usage",
    "WindowMemory",
    "before_loop",
    "inside_loop",
    "load_event",
    "sse",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "toolmason._core.run.progress": ("ProgressReport",),
        "toolmason._core.toolbox.exchange": (
            "ArgumentsDelta",
            "CallClosed",
            "CallOpened",
            "TextDelta",
            "ThoughtDelta",
            "Usage",
        ),
        "toolmason._core.values.messages": ("Citation", "Message", "Summary"),
        "toolmason._core.values.policy": ("Limits",),
        "toolmason._store.postgres_store": ("PostgresStore",),
        "toolmason._store.sqlite_store": ("SqliteStore",),
        "toolmason._store.store": ("Store",),
        "toolmason.chat.answers": ("Answer", "AnswerProgress"),
        "toolmason.chat.budget": ("Budget", "SqliteBudget", "StoreBudget"),
        "toolmason.chat.chat": ("Chat",),
        "toolmason.chat.durable.effects": ("Completed", "NotExecuted"),
        "toolmason.chat.durable.journal": ("EffectRecord", "RunRecord", "SqliteRuntime", "StoreRuntime"),
        "toolmason.chat.events": (
            "CallFinished",
            "CallProgress",
            "CallStarted",
            "Compacted",
            "Delegated",
            "Done",
            "Event",
            "StepFinished",
            "load_event",
        ),
        "toolmason.chat.frontends.chat_app": ("sse",),
        "toolmason.chat.loop": ("Advisor", "ModelTurn", "NextStep", "ToolLoop", "before_loop", "inside_loop"),
        "toolmason.chat.memory": ("Memory", "SqliteMemory", "StoreMemory", "WindowMemory"),
        "toolmason.chat.programs.code": ("Code",),
        "toolmason.chat.reply": ("Delegation", "Reply", "Step"),
        "toolmason.chat.run.compaction": ("Compact",),
        "toolmason.chat.run.spending": ("PRICES", "PRICES_DATE", "Price"),
        "toolmason.chat.search": ("Search",),
    },
)
