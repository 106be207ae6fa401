"""Inject values that the model must not set: a tenant, a database, the call context."""

from dataclasses import dataclass
from typing import Annotated

from toolmason import Inject, Toolbox, ToolContext, tool


@dataclass
class Database:
    """Stand-in for a database of the application."""

    orders: dict[str, list[str]]


@tool(read_only=True)
def list_orders(
    tenant: Annotated[str, Inject("tenant")],
    db: Annotated[Database, Inject],
    ctx: ToolContext,
    limit: Annotated[int, "Maximum number of orders"] = 10,
) -> list[str]:
    """List the newest orders."""
    ctx.log.info("listing for %s", tenant)
    return db.orders[tenant][:limit]


database = Database({"acme": ["A-1", "A-2", "A-3"], "zeta": ["Z-1"]})
box = Toolbox(list_orders, context=ToolContext(deps=database, tenant="acme"))

if __name__ == "__main__":
    print("the model sees:", list(box["list_orders"].definition.input_schema["properties"]))
    print("acme:", box.call_sync("list_orders", {"limit": 2}).text)
    print("zeta:", box.call_sync("list_orders", context={"tenant": "zeta"}).text)
    print("ignored from a model:", box.call_sync("list_orders", '{"tenant": "zeta", "limit": 1}').text)
