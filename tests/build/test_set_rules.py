"""Rules about several tools together: classes and their ancestors, modules, toolboxes, experimental API."""

import pytest

from build.marks import expected

HEAD = "from toolmason import *\nimport toolmason as tw\n"


def bundle(name: str, *tools: str, base: str = "") -> str:
    body = "".join(f"    @tool\n    def {tool}(self): 'Do.'\n" for tool in tools) or "    ...\n"
    return f"class {name}({base}):\n{body}"


# --- which decorators are ours -----------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "from toolmason import tool\n@tool\ndef ⟦TM102⟧act(): ...\n",
        "from toolmason import tool as t\n@t\ndef ⟦TM102⟧act(): ...\n",
        "from toolmason import tool as t\n@t(read_only=True)\ndef ⟦TM102⟧act(): ...\n",
        "import toolmason\n@toolmason.tool\ndef ⟦TM102⟧act(): ...\n",
        "import toolmason as tw\n@tw.tool()\ndef ⟦TM102⟧act(): ...\n",
        "from toolmason._core.define.decorators import tool\n@tool\ndef ⟦TM102⟧act(): ...\n",
        "from toolmason import *\n@tool\ndef ⟦TM102⟧act(): ...\n",
        "try:\n    from toolmason import tool\nexcept ImportError:\n    raise\n@tool\ndef ⟦TM102⟧act(): ...\n",
        "def make():\n    from toolmason import tool\n    @tool\n    def ⟦TM102⟧act(): ...\n    return act\n",
        "if True:\n    from toolmason import tool\n    @tool\n    def ⟦TM102⟧act(): ...\n",
        "from toolmason import Toolbox\ndef ⟦TM102⟧act(): ...\nbox = Toolbox(act)\n",
        "from toolmason import Tool\ndef ⟦TM102⟧act(): ...\nmade = Tool.from_function(act)\n",
        "from toolmason import Tool\nmade = ⟦TM102⟧Tool.from_schema('act', '', {}, print)\n",
        "from toolmason import Tool\nmade = Tool.from_schema('act', 'Do it.', {}, print)\n",
        "from elsewhere import tool\n@tool\ndef act(): ...\n",
        "import toolmason\n@toolmason.other\ndef act(): ...\n",
        "def tool(f): return f\n@tool\ndef act(): ...\n",
        "from toolmason import tool\nmethod = tool\ndef act(): ...\n",
    ],
)
def test_a_decorator_is_told_by_where_it_comes_from(folder, source):
    folder.agrees(source)


def test_a_decorator_may_come_through_other_files_of_the_project(folder):
    folder.write(
        {
            "pkg/__init__.py": "",
            "pkg/base.py": "from toolmason import tool as make\n",
            "pkg/middle.py": "from pkg.base import make as decorate\n",
            "pkg/app.py": "from .middle import decorate\n@decorate\ndef act(): ...\n",
        }
    )

    assert [str(found.location) for found in folder.check("pkg").findings] == ["pkg/app.py:3:5"]


# --- classes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            "class A:\n    @tool\n    def x(self): 'Do.'\n    @tool(name='x')\n    def ⟦TM106⟧y(self): 'Do.'\n",
            id="one body",
        ),
        pytest.param(
            "class A:\n    @tool\n    def x(self): 'Do.'\n    @tool\n    def ⟦TM106⟧x(self): 'Do.'\n",
            id="written twice",
        ),
        pytest.param(
            bundle("A", "x") + "class B(A):\n    @tool(name='x')\n    def ⟦TM106⟧y(self): 'Do.'\n", id="inherited"
        ),
        pytest.param(
            bundle("A", "x")
            + bundle("M", base="A")
            + "class B(M):\n    @tool(name='x')\n    def ⟦TM106⟧y(self): 'Do.'\n",
            id="inherited from further up",
        ),
        pytest.param(
            bundle("A", "x")
            + "class B:\n    @tool(name='x')\n    def y(self): 'Do.'\n"
            + "class ⟦TM106⟧C(A, B): ...\n",
            id="two bases",
        ),
        pytest.param(bundle("A", "x") + bundle("B", "x", base="A"), id="override, decorated again"),
        pytest.param(bundle("A", "x") + "class B(A):\n    def x(self): 'Do.'\n", id="override"),
        pytest.param(bundle("A", "x") + bundle("B", "x"), id="two classes"),
        pytest.param(
            bundle("A", "x")
            + "class B(A):\n    @tool.exclude\n    def x(self): ...\n    @tool(name='x')\n    def y(self): 'Do.'\n",
            id="excluded",
        ),
        pytest.param(
            bundle("A", "x") + "class B(A):\n    x = None\n    @tool(name='x')\n    def y(self): 'Do.'\n", id="assigned"
        ),
        pytest.param(
            "class A:\n    if True:\n        @tool\n        def x(self): 'Do.'\n"
            "    else:\n        @tool\n        def x(self): 'Do.'\n",
            id="alternatives",
        ),
        pytest.param("class A(A): ...\nclass B(C): ...\nclass C(B): ...\n" + bundle("D", "x", base="C"), id="rings"),
        pytest.param(
            "class A:\n    @tool\n    def x(self): 'Do.'\n    @tool(name='X')\n    def ⟦TM207⟧y(self): 'Do.'\n",
            id="case",
        ),
    ],
)
def test_tools_of_a_class_and_its_ancestors_have_names_of_their_own(folder, source):
    folder.agrees(HEAD + source)


def test_a_clash_is_told_once_and_not_again_for_every_subclass(folder):
    clash = "class A:\n    @tool\n    def x(self): 'Do.'\n    @tool(name='x')\n    def ⟦TM106⟧y(self): 'Do.'\n"

    folder.agrees(f"{HEAD}{clash}class B(A): ...\nclass C(B): ...\n")


def test_an_ancestor_may_stand_in_another_file(folder):
    folder.write(
        {
            "pkg/__init__.py": "",
            "pkg/base.py": HEAD + bundle("Base", "x"),
            "pkg/app.py": HEAD
            + "from . import base\nclass B(base.Base):\n    @tool(name='x')\n    def y(self): 'Do.'\n",
        }
    )

    [found] = folder.check("pkg").findings

    assert (str(found.location), found.code) == ("pkg/app.py:6:9", "TM106")
    assert found.message == "two tools are named 'x' in class 'B': `Base.x` (line 5) and `B.y` (line 6)"


def test_an_override_is_checked_as_the_tool_that_it_is(folder):
    folder.agrees(f"{HEAD}{bundle('A', 'x')}class B(A):\n    def x(self, ⟦TM103⟧n): 'Do.'\n")


# --- modules and toolboxes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("@tool\ndef x(): 'Do.'\n@tool(name='x')\ndef ⟦TM108⟧y(): 'Do.'\n", id="name"),
        pytest.param("@tool\ndef x(): 'Do.'\n@tool\ndef ⟦TM108⟧x(): 'Do.'\n", id="lost"),
        pytest.param("@tool\ndef x(): 'Do.'\n@tool(name='X')\ndef ⟦TM207⟧y(): 'Do.'\n", id="case"),
        pytest.param("@tool\ndef x(): 'Do.'\n@prompt(name='x')\ndef y(): 'Do.'\n", id="a prompt"),
        pytest.param("@tool(name=A)\ndef x(): 'Do.'\n@tool(name=B)\ndef y(): 'Do.'\n", id="unknown names"),
        pytest.param("if A:\n    @tool\n    def x(): 'Do.'\nelse:\n    @tool\n    def x(): 'Do.'\n", id="branches"),
        pytest.param("def f():\n    @tool\n    def x(): 'Do.'\n@tool\ndef x(): 'Do.'\n", id="inside a function"),
    ],
)
def test_tools_of_a_module_have_names_of_their_own(folder, source):
    folder.agrees(HEAD + source)


@pytest.mark.parametrize(
    "box",
    [
        "Toolbox(x, ⟦TM107⟧A())",
        "Toolbox(A(), ⟦TM107⟧x)",
        "Toolbox([x], (⟦TM107⟧A(),))",
        "Toolbox(x, ⟦TM107⟧x)",
        "Toolbox(x, ⟦TM107⟧held)",
        "Toolbox(getURL, ⟦TM107⟧get_url, naming='snake')",
        "tw.Toolbox(x, ⟦TM107⟧A())",
        "Toolbox(getURL, get_url)",
        "Toolbox(x, A(), naming=rename)",
        "Toolbox(x, A(), **words)",
        "Toolbox(x, unknown, unknown())",
        "Toolbox(x, B())",
        "Toolbox(⟦TM123⟧A)",
        "Toolbox(B)",
        "Toolbox(x, other_box)",
    ],
)
def test_tools_of_a_toolbox_have_names_of_their_own(folder, box):
    folder.agrees(
        f"""{HEAD}
@tool
def x(): 'Do.'
@tool
def getURL(): 'Do.'
@tool
def get_url(): 'Do.'
{bundle("A", "x")}
class B:
    @staticmethod
    @tool
    def y(): 'Do.'
held = A()
box = {box}
"""
    )


# --- experimental ------------------------------------------------------------------------------


MARKED = "from toolmason.extend import experimental\n@experimental('why')\ndef f(): ...\n@experimental\nclass C: ...\n"


@pytest.mark.row("CO-18")
@pytest.mark.parametrize(
    "use",
    [
        "def g():\n    ⟦TM125⟧f()\n",
        "⟦TM125⟧C()\n",
        "@tool\ndef g():\n    'Do.'\n    return 1 + ⟦TM125⟧f()\n",
        "class D:\n    def g(self):\n        return ⟦TM125⟧C()\n",
        "def g():\n    return f\n",
        "@experimental\ndef g():\n    f()\n",
        "from toolmason.extend import allow_experimental\nwith allow_experimental():\n    f()\n",
        "import toolmason\ntoolmason.extend.allow_experimental()\nf()\n",
        "other.f()\n",
    ],
)
def test_the_call_of_a_marked_function_or_class_is_told(folder, use):
    folder.agrees(f"from toolmason import tool\n{MARKED}{use}")


@pytest.mark.row("CO-18")
@pytest.mark.parametrize(
    "use",
    [
        "from pkg.marked import f\n⟦TM125⟧f()\n",
        "from pkg.marked import C as Other\n⟦TM125⟧Other()\n",
        "from pkg import marked\n⟦TM125⟧marked.f()\n",
        "import pkg.marked\n⟦TM125⟧pkg.marked.f()\n",
        "from .marked import f\n⟦TM125⟧f()\n",
        "from pkg.marked import plain\nplain()\n",
        "from elsewhere.marked import f\nf()\n",
    ],
)
def test_experimental_code_of_another_file_is_told(folder, use):
    text = f"from toolmason import tool\n{use}"
    folder.write({"pkg/__init__.py": "", "pkg/marked.py": f"{MARKED}def plain(): ...\n", "pkg/app.py": text})

    found = [f"{one.location.line}:{one.location.column} {one.code}" for one in folder.check("pkg").findings]

    assert found == expected(text)


def test_a_setting_allows_experimental_api(folder):
    assert folder.codes(f"{MARKED}f()\n", experimental=True) == []
