"""Server of the warehouse: tools of Toolmason, served over MCP."""

from typing import Annotated

from toolmason import Toolbox, ToolError, serve, tool

STOCK = {"TEA-01": 12, "CUP-01": 0}


@tool(read_only=True)
def count_stock(sku: Annotated[str, "Article number"]) -> int:
    """Count the pieces of an article in the warehouse."""
    if sku not in STOCK:
        raise ToolError(f"No article {sku!r}. Known: {', '.join(STOCK)}.")
    return STOCK[sku]


if __name__ == "__main__":
    serve(Toolbox(count_stock, name="warehouse"))
