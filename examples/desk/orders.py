"""Tools of the desk itself: orders, and the refunds that a person has to approve."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated

from typing_extensions import TypedDict

from toolmason import Inject, ToolError, tool

SCHEMA = """
create table if not exists orders (
    number text primary key, customer text, sku text, parcel text, cents integer, state text, note text default ''
);
insert or ignore into orders values ('A-17', 'ada', 'TEA-01', 'P-100', 1350, 'sent', '');
insert or ignore into orders values ('A-18', 'bob', 'CUP-01', 'P-200', 1200, 'sent', '');
"""


class Order(TypedDict):
    """Order of a customer."""

    number: str
    sku: str
    parcel: str
    euros: float
    state: str


class Orders:
    """Orders in a database. A customer sees their own: the model cannot name another one."""

    def __init__(self, path: Path) -> None:
        """Create the tables if they are missing."""
        self.path = path
        with closing(sqlite3.connect(path)) as database, database:
            database.executescript(SCHEMA)

    @tool(read_only=True)
    def find_order(
        self, number: Annotated[str, "Order number, such as A-17"], customer: Annotated[str, Inject("customer")]
    ) -> Order:
        """Find an order of the customer."""
        with closing(sqlite3.connect(self.path)) as database:
            row = database.execute(
                "select number, sku, parcel, cents, state from orders where number = ? and customer = ?",
                (number, customer),
            ).fetchone()
        if row is None:
            raise ToolError(f"The customer has no order {number!r}.")
        number, sku, parcel, cents, state = row
        return Order(number=number, sku=sku, parcel=parcel, euros=cents / 100, state=state)

    @tool(
        approval=True,
        destructive=True,
        idempotent=True,
        preview=lambda arguments: f"Refund order {arguments['number']}: {arguments['reason']}",
    )
    def refund(
        self,
        number: Annotated[str, "Order number"],
        reason: Annotated[str, "One sentence for the books"],
        customer: Annotated[str, Inject("customer")],
    ) -> str:
        """Refund an order of the customer."""
        with closing(sqlite3.connect(self.path)) as database, database:
            changed = database.execute(
                "update orders set state = 'refunded', note = ? where number = ? and customer = ?",
                (reason, number, customer),
            ).rowcount
        if not changed:
            raise ToolError(f"The customer has no order {number!r}.")
        return f"{number} is refunded."
