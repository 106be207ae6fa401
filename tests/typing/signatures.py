"""Checked by mypy and pyright, never run: a decorated function keeps its signature.

A line with ignores must stay an error in both checkers: an ignore that hides nothing fails the check.
"""

from typing import Annotated, assert_type

from toolmason import Depends, Tool, Toolbox, ToolCall, ToolContext, ToolResult, tool, tools_from


@tool
def double(n: int) -> int:
    return n * 2


@tool(name="price_of", read_only=True, timeout=5)
def price(sku: str, *, quantity: int = 1) -> float:
    return len(sku) * float(quantity)


@tool
async def fetch(url: str) -> bytes:
    return url.encode()


@tool(destructive=True)
async def remove(url: str, *, force: bool = False) -> None:
    del url, force


@tool
def whoami(ctx: ToolContext) -> str:
    return ctx.call_id


class Shop:
    """A bundle with each kind of method."""

    @tool
    def stock(self, sku: str) -> int:
        return len(sku)

    @tool(read_only=True)
    async def reserve(self, sku: str, quantity: int) -> bool:
        return len(sku) > quantity

    @staticmethod
    @tool
    def inner_static(sku: str) -> int:
        return len(sku)

    @tool
    @staticmethod
    def outer_static(sku: str) -> int:
        return len(sku)

    @classmethod
    @tool
    def inner_class(cls, sku: str) -> int:
        return len(sku)

    @tool(read_only=True)
    @classmethod
    def outer_class(cls, sku: str) -> int:
        return len(sku)


def functions_keep_their_signature() -> None:
    assert_type(double(2), int)
    assert_type(double(n=2), int)
    assert_type(price("TEA-01", quantity=3), float)

    double("2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    double()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    double(m=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    price("TEA-01", 3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    price("TEA-01", quantity="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    whoami("me")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def async_functions_keep_their_signature() -> None:
    assert_type(await fetch("a"), bytes)
    await remove("a", force=True)

    await fetch(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await remove("a", force="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def methods_keep_their_signature(shop: Shop) -> None:
    assert_type(shop.stock("TEA-01"), int)
    assert_type(await shop.reserve("TEA-01", 2), bool)

    shop.stock(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await shop.reserve("TEA-01", "2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def static_and_class_methods_keep_their_signature(shop: Shop) -> None:
    assert_type(Shop.inner_static("TEA-01"), int)
    assert_type(shop.inner_static("TEA-01"), int)
    assert_type(Shop.outer_static("TEA-01"), int)
    assert_type(shop.outer_static("TEA-01"), int)
    assert_type(Shop.inner_class("TEA-01"), int)
    assert_type(Shop.outer_class("TEA-01"), int)

    Shop.inner_static(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Shop.outer_static(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Shop.inner_class(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Shop.outer_class(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def a_toolbox_is_typed() -> None:
    box = Toolbox(double, price, Shop(), timeout=5)

    assert_type(await box.call("double", {"n": 2}), ToolResult)
    assert_type(box.call_sync(ToolCall(id="1", name="double", arguments='{"n": 2}')), ToolResult)
    assert_type(box["double"].name, str)
    assert_type(await box.resolve("double"), Tool | None)
    assert_type(tools_from(Shop()), list[Tool])
    for result in await box.call_all([ToolCall(id="1", name="double", arguments={"n": 2})]):
        assert_type(result, ToolResult)

    await box.call(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def override() -> None:
    box = Toolbox(double)
    assert_type(box.override("double", name="twice", approval=True, arguments={"n": 3}), Toolbox)
    box.override("double", aproval=True)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    box.override("double", timeout="5")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def open_session() -> str:
    return "session"


@tool
def save(text: str, session: Annotated[str, Depends(open_session, scope="run")]) -> str:
    return assert_type(session, str) + text


assert_type(save("a", "b"), str)
save("a", 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Depends(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Depends(open_session, scope="app")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
