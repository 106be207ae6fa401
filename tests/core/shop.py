"""A package with a manifest, and looking at what of it is loaded; shared by the tests of manifests."""

import json
import sys

ORDERS = '''
    from toolmason import prompt, tool


    @tool(read_only=True, tags=["search"])
    def find(text: str, limit: int = 3) -> list[str]:
        """Find orders."""
        return [text] * limit


    @tool(destructive=True)
    async def drop(order: str) -> str:
        """Drop an order."""
        return f"dropped {order}"


    @prompt
    def greet(name: str) -> str:
        """Greet."""
        return f"Hello {name}"
'''
STOCK = '''
    from toolmason import tool


    @tool
    def count() -> int:
        """Count."""
        return 7
'''


def forget(package):
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]


def loaded():
    return sorted(name for name in sys.modules if name == "shop" or name.startswith("shop."))


def names(box):
    return [tool.name for tool in box]


def edit(folder, change):
    """Change the manifest of a package, as a hand or a hostile writer would."""
    file = folder / "_toolmason.json"
    form = json.loads(file.read_text("utf-8"))
    change(form)
    file.write_text(json.dumps(form), "utf-8")
    return file
