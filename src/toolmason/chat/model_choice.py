"""Choose the model of a request and its options: those of the chat, or others that `send` is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolmason._core.toolbox.exchange import ModelRequest
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason.models.by_name import model as make_model
from toolmason.models.protocol import Model, check_model, check_options
from toolmason.providers.codec import Codec
from toolmason.providers.option_rules import merge_options


class ModelChoice:
    """Model and options of a chat, from which a request may differ."""

    def __init__(self, model: Model, box: Toolbox, options: Mapping[str, Any]) -> None:
        self._model, self._box, self.options = model, box, options
        self._by_name: dict[str, Model] = {}
        refuse_unsupported_native(model, box)
        check_options(model, options)

    def choose(
        self, model: Model | str | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Model, Mapping[str, Any]]:
        """Return the model of a request, and its options. A model that is given by name is made once.

        Raises:
            ConfigError: the value is not a model, or an option is not supported.
            DefinitionError: the provider does not support a tool of the chat.
        """
        merged = self.options if options is None else merge_options(self.options, options)
        chosen: Any = self._model if model is None else model
        if isinstance(chosen, str):
            chosen = self._by_name.setdefault(chosen, self._by_name.get(chosen) or make_model(chosen))
        check_model(chosen)
        if model is not None:
            refuse_unsupported_native(chosen, self._box)
        check_options(chosen, merged)
        return chosen, merged


def refuse_unsupported_native(model: Model, box: Toolbox) -> None:
    """Reject native tools that the provider does not support, before anything is sent.

    Raises:
        DefinitionError: the provider does not support a tool; the message names the alternative.
    """
    for each in getattr(model, "models", (model,)) if box.native else ():
        codec = getattr(each, "codec", None)
        if isinstance(codec, Codec):
            codec.encode(ModelRequest("?", box.native), "?")
