"""Find tools in installed plugins, in a package, and by name through resolvers."""

import sys
import tempfile
from pathlib import Path

from toolmason import Toolbox, discover, scan, supported_for, tool
from toolmason.extend import ImportResolver, StaticResolver


class Shop:
    """Application."""


@supported_for(Shop)
class Shelves:
    """Tools for shops: `discover(Shop)` includes them, `discover()` does not."""

    @tool
    def count_shelves(self) -> int:
        """Count the shelves."""
        return 12


KITCHEN = '''
from toolmason import tool


@tool
def boil_water() -> str:
    """Boil water."""
    return "hot"
'''

if __name__ == "__main__":
    installed = discover(Shop)
    print("installed:", [found.name for found in installed], "problems:", [str(item) for item in installed.problems])

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kitchen.py").write_text(KITCHEN, "utf-8")
        sys.path.insert(0, folder)
        print("scanned:", [found.name for found in scan("kitchen")])

        resolvers = [StaticResolver(Shelves()), ImportResolver("kitchen:boil_water")]
        box = Toolbox("boil_water", resolvers=resolvers)
        print("offered:", [found.name for found in box])
        with box.run() as run:  # a run only allows calls that a model may make
            print("count_shelves:", run.call_sync("count_shelves").error)
            print("boil_water:", run.call_sync("boil_water").text)
