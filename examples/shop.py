"""Tools of a small shop; `make demo` calls them."""

from typing import Annotated

from toolmason import Toolbox, ToolError, tool

PRICES = {"TEA-01": 4.5, "TEA-02": 6.0, "CUP-01": 12.0}


class Shop:
    """Tools for customers."""

    @tool(read_only=True)
    def find_products(self, text: Annotated[str, "Part of the article number"] = "") -> list[str]:
        """List the articles on sale."""
        return [sku for sku in PRICES if text.upper() in sku]

    @tool(read_only=True)
    async def quote_price(
        self, sku: Annotated[str, "Article number"], quantity: Annotated[int, "How many"] = 1
    ) -> float:
        """Quote the price of an article in euros."""
        if sku not in PRICES:
            raise ToolError(f"No article {sku!r}. On sale: {', '.join(PRICES)}.")
        return PRICES[sku] * quantity

    @tool(destructive=True, preview=lambda arguments: f"Cancel order {arguments['order']}")
    def cancel_order(self, order: Annotated[str, "Order number, as on the receipt"]) -> None:
        """Cancel an order."""


box = Toolbox(Shop())

if __name__ == "__main__":
    print(box.call_sync("quote_price", {"sku": "TEA-01", "quantity": 3}).text)
