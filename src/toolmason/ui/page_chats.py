"""Run the chats of the page with the SSE application of the library, one for each model."""

from __future__ import annotations

from typing import Any, Final, get_args

from typing_extensions import override

from toolmason._core.values.messages import Message, Role
from toolmason._http.guard import Guard
from toolmason.chat.chat import Chat
from toolmason.chat.durable.journal import StoreRuntime
from toolmason.chat.durable.run_records import read_input
from toolmason.chat.frontends.chat_app import ChatApp
from toolmason.chat.frontends.frontend import EventFrontend, FrontendRequest, get_field
from toolmason.chat.run.spending import PRICES, Price, find_price
from toolmason.errors import ConfigError, ToolmasonError, UnknownName
from toolmason.models.by_name import model
from toolmason.ui.page import Page
from toolmason.ui.run_entries import require_journal

_ON_THIS_MACHINE: Final = ("local", "offline")
TARGET_CHAT = "target"
"""Name of the model choice that stands for the chat of the target."""


class JournalFrontend(EventFrontend):
    """Our own events, with a request to go on with a run of the journal: `{"resume": "RUN"}`."""

    def __init__(self, runtime: StoreRuntime | None) -> None:
        self._runtime = runtime

    @override
    def parse(self, body: Any) -> FrontendRequest:
        run = get_field(body, "resume", str)
        if run is None:
            return super().parse(body)
        record = require_journal(self._runtime).run(run)
        return FrontendRequest(tuple(read_input(record)), resumes=record.run)


def _find_price(name: str) -> Price | None:
    """Return the price of a model, or None if it is unknown. A model on this machine asks no provider."""
    return Price(0, 0) if name.partition(":")[0] in _ON_THIS_MACHINE else find_price(PRICES, name)


class PageChats:
    """The chats of a page, by model. They share the conversations."""

    def __init__(self, page: Page, guard: Guard) -> None:
        self._page, self._guard = page, guard
        self._apps: dict[tuple[str, bool], ChatApp] = {}
        self._box = page.box

    def get(self, name: str, *, resumes: bool = False) -> ChatApp:
        """Return the application that runs the chat of a model, or that goes on with the runs of the journal.

        Raises:
            KeyError: the model is not one of the page.
            ConfigError: the model cannot be used.
            ImportError: the model needs a package that is missing.
        """
        page = self._page
        if name not in page.options.models:
            known = ", ".join(page.options.models)
            raise UnknownName(f"The page offers no model {name!r}. Available: {known}. Add it with --model.")
        if page.box is not self._box:
            # A run in progress goes on with the toolbox from before the reload.
            self._apps, self._box = {}, page.box
        if (name, resumes) not in self._apps:
            chat = self._make_chat(name, resumes=resumes)
            frontend = JournalFrontend(page.options.runtime) if resumes else EventFrontend()
            self._apps[name, resumes] = ChatApp(chat, frontend, self._guard, None)
        return self._apps[name, resumes]

    def _make_chat(self, name: str, *, resumes: bool) -> Chat[Any]:
        options = self._page.options
        if name == TARGET_CHAT and options.chat is not None:
            options.chat.price = options.chat.price or _find_price(options.chat.model.name)
            return options.chat
        # The journal has the messages before a run.
        memory, chosen = None if resumes else self._page.memory, model(name)
        return Chat(
            chosen,
            self._page.box,
            system=options.system,
            memory=memory,
            runtime=options.runtime,
            price=_find_price(chosen.name),
        )

    async def save(self, name: str, conversation: str) -> list[dict[str, Any]]:
        """Return the messages of a conversation as JSON data."""
        return [message.to_dict() for message in await self.get(name).chat.load_history(conversation)]

    async def load(self, conversation: str, messages: list[Any]) -> None:
        """Replace a conversation by saved messages.

        Raises:
            ConfigError: the data is not that of messages.
        """
        try:
            loaded = [Message.from_dict(message) for message in messages]
        except (ValueError, KeyError, TypeError, AttributeError, ToolmasonError) as error:
            raise ConfigError(f"The messages are not those of a saved chat: {type(error).__name__}.") from error
        if unknown := {message.role for message in loaded} - set(get_args(Role)):
            raise ConfigError(f"The messages are not those of a saved chat: the role {min(unknown)!r} is unknown.")
        self._page.memory.forget(conversation)
        await self._page.memory.append(conversation, loaded)
