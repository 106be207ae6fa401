"""Promise 21 of spec/seeds.md §3b: what the seed's annotation processor claims to refuse and does not, is refused here.

CO-15 lists duplicates in a hierarchy, unsupported types and the combination of override and skipped permission as
build errors. A check tells them from the source alone, with the place, also in a package that cannot be imported.
"""

import pytest

from build.marks import expected, unmarked
from fork_server import COMMAND

HEAD = "import no_such_package\nfrom typing import Annotated, Callable\nfrom toolmason import tool\n"
CASES = {
    "duplicates in a hierarchy": """
class Shop:
    @tool
    def find(self):
        '''Find an article.'''

class Market(Shop):
    @tool(name="find")
    def ⟦TM106⟧search(self):
        '''Search an article.'''
""",
    "an unsupported type": """
@tool
def act(change: ⟦TM104⟧Annotated[Callable[[int], int], "What to do"]):
    '''Act.'''
""",
    "override and skipped permission": """
@tool(overrides_builtin=True, ⟦TM302⟧skip_permission=True)
def read_result():
    '''Read a result.'''
""",
}


@pytest.mark.row("P21", "CO-15")
@pytest.mark.parametrize("case", CASES)
def test_promise_21_what_the_seed_claims_to_refuse_is_a_build_error_with_its_place(tmp_path, forks, case):
    marked = HEAD + CASES[case]
    (tmp_path / "shop.py").write_text(unmarked(marked), "utf-8")

    done = forks.run([COMMAND, "check", "shop.py"], cwd=tmp_path)

    [place] = expected(marked)
    at, _, code = place.partition(" ")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"shop.py:{at}: {code} ")
    assert lines[1].startswith("    error: ")
    assert lines[-1].startswith("Found 1 error:")
    assert done.returncode == 1
