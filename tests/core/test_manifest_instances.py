"""Classes with constructor arguments in a manifest: the application gives their instances."""

import importlib
import json

import pytest

from core.shop import edit, forget, loaded, names
from toolmason import McpServer, Toolbox, discover
from toolmason.build.manifest.package_manifest import build, write_file
from toolmason.errors import ConfigError, DuplicateTool, StaleManifest

DB = '''
    from toolmason import prompt, tool


    class Db:
        """A database."""

        def __init__(self, url: str, pool: int = 2) -> None:
            self.url = url

        @tool
        def address(self) -> str:
            """Tell the address."""
            return self.url

        @prompt
        def ask(self) -> str:
            """Ask about the database."""
            return f"What is in {self.url}?"

        @tool
        @staticmethod
        def version() -> int:
            """Tell the version."""
            return 3


    class Counter:
        def __init__(self, start: int = 0) -> None:
            self.count = start

        @tool
        def up(self) -> int:
            """Count one up."""
            self.count += 1
            return self.count
'''
PATH = "shop.db:Db"


@pytest.fixture
def db(make_package):
    folder = make_package(db=DB)
    built = build("shop")
    write_file(built.path, built.data)
    forget("shop")
    return folder


def make(name, *args):
    return getattr(importlib.import_module("shop.db"), name)(*args)


# --- given --------------------------------------------------------------------------------------


@pytest.mark.row("CO-14")
async def test_the_tools_of_a_class_with_arguments_run_on_the_given_instance(db):
    instance = make("Db", "db://one")
    box = Toolbox.from_manifest("shop", instances={PATH: instance})

    assert names(box) == ["address", "up", "version"]
    assert (await box.call("address")).value == "db://one"
    assert (await box.prompt("ask"))[0].text == "What is in db://one?"


async def test_the_class_itself_is_a_key_too(db):
    cls = importlib.import_module("shop.db").Db

    box = Toolbox.from_manifest("shop", instances={cls: cls("db://two")})

    assert (await box.call("address")).value == "db://two"


async def test_a_function_makes_the_instance_once_and_not_before_the_first_call(db):
    made = []

    def create():
        made.append(1)
        return make("Db", "db://three")

    box = Toolbox.from_manifest("shop", instances={PATH: create})
    before = (list(made), loaded())
    answers = [(await box.call("address")).value for _ in range(3)]
    await box.prompt("ask")

    assert before == ([], [])
    assert answers == ["db://three"] * 3
    assert made == [1]


async def test_an_own_instance_replaces_the_one_that_would_be_created(db):
    box = Toolbox.from_manifest("shop", instances={"shop.db:Counter": make("Counter", 10)})

    assert (await box.call("up")).value == 11


async def test_an_instance_of_a_subclass_is_accepted(db):
    base = importlib.import_module("shop.db").Db

    class Loud(base):
        def address(self) -> str:
            return self.url.upper()

    box = Toolbox.from_manifest("shop", instances={PATH: Loud("db://four")})

    assert (await box.call("address")).value == "DB://FOUR"


# --- missing or wrong ----------------------------------------------------------------------------


async def test_a_missing_instance_costs_the_call_and_names_class_arguments_and_keyword(db):
    box = Toolbox.from_manifest("shop")

    result = await box.call("address")

    assert names(box) == ["address", "up", "version"]
    assert result.error.code == "execution_error"
    assert isinstance(result.error.__cause__, ConfigError)
    assert "'shop.db:Db' needs constructor arguments (url), and no instance of it was given" in result.text
    assert "instances={'shop.db:Db': Db(...)}" in result.text
    assert (await box.call("up")).value == 1


async def test_a_static_method_needs_no_instance(db):
    assert (await Toolbox.from_manifest("shop").call("version")).value == 3


@pytest.mark.parametrize(
    ("instances", "words"),
    [
        pytest.param({"shop.db:Dbx": 1}, "instances['shop.db:Dbx'] is an object of class 'int'", id="not an instance"),
        pytest.param({PATH: "db://"}, "Pass an instance of 'shop.db:Db', or a function", id="an argument"),
        pytest.param({"shop.db:Dbx": object}, "lists no tools of such a class. Classes in it: 'shop.db:C", id="class"),
        pytest.param({"Db": object}, "Use the class or 'module:Class' as the key", id="short name"),
    ],
)
def test_a_wrong_instance_is_refused_at_the_start(db, instances, words):
    with pytest.raises(ConfigError) as caught:
        Toolbox.from_manifest("shop", instances=instances)

    assert words in str(caught.value)
    assert loaded() == []


@pytest.mark.parametrize(
    ("create", "words"),
    [
        pytest.param(lambda: 1, "returned an object of class 'int'. Return an instance of", id="another class"),
        pytest.param(lambda: 1 / 0, "Cannot create the object of 'shop.db:Db': ZeroDivisionError", id="fails"),
    ],
)
async def test_a_function_that_makes_no_instance_costs_the_call(db, create, words):
    box = Toolbox.from_manifest("shop", instances={PATH: create})

    assert words in (await box.call("address")).text


def test_arguments_of_a_class_in_a_damaged_manifest_are_refused(db):
    edit(db, lambda form: form["classes"].update({PATH: "url"}))

    with pytest.raises(ConfigError, match="must be a list of names"):
        Toolbox.from_manifest("shop")


# --- a choice of classes --------------------------------------------------------------------------

QUERY = "class {0}:\n    def __init__(self, url): ...\n    @tool\n    def query(self) -> str:\n        return '{0}'\n"


@pytest.fixture
def choice(make_package):
    make_package(db="from toolmason import tool\n" + QUERY.format("Postgres") + QUERY.format("Sqlite"))
    built = build("shop")
    write_file(built.path, built.data)
    forget("shop")


@pytest.mark.parametrize("name", ["Postgres", "Sqlite"])
async def test_of_two_classes_with_a_tool_of_one_name_the_given_one_is_listed(choice, name):
    box = Toolbox.from_manifest("shop", instances={f"shop.db:{name}": make(name, "x")})

    assert names(box) == ["query"]
    assert (await box.call("query")).value == name


async def test_without_an_instance_the_first_is_listed_and_says_what_it_needs(choice):
    box = Toolbox.from_manifest("shop")

    assert names(box) == ["query"]
    assert "'shop.db:Postgres' needs constructor arguments" in (await box.call("query")).text


def test_instances_of_both_are_a_duplicate(choice):
    instances = {"shop.db:Postgres": make("Postgres", "x"), "shop.db:Sqlite": make("Sqlite", "x")}

    with pytest.raises(DuplicateTool):
        Toolbox.from_manifest("shop", instances=instances)


# --- out of date -----------------------------------------------------------------------------------


@pytest.mark.row("CO-17")
@pytest.mark.parametrize("given", [True, False])
async def test_a_changed_module_with_such_a_class_starts_and_uses_the_instance(db, given):
    text = (db / "db.py").read_text("utf-8").replace("def address", "def place")
    (db / "db.py").write_text(text, "utf-8")
    instances = {PATH: lambda: make("Db", "db://five")} if given else None

    with pytest.warns(StaleManifest, match="has changed"):
        box = Toolbox.from_manifest("shop", instances=instances)
    result = await box.call("place")

    assert names(box) == ["place", "up", "version"]
    assert result.text == "db://five" if given else "needs constructor arguments (url)" in result.text
    if given:
        assert (await box.prompt("ask"))[0].text == "What is in db://five?"


def test_an_instance_of_a_class_that_a_changed_module_renamed_does_not_stop_the_start(db):
    text = (db / "db.py").read_text("utf-8").replace("class Db", "class Store")
    (db / "db.py").write_text(text, "utf-8")
    importlib.invalidate_caches()

    with pytest.warns(StaleManifest):
        box = Toolbox.from_manifest("shop", instances={"shop.db:Store": lambda: make("Store", "db://six")})

    assert box.call_sync("address").value == "db://six"


def test_an_instance_of_a_class_whose_module_is_gone_does_not_stop_the_start(db):
    instance = make("Db", "db://seven")
    forget("shop")
    (db / "db.py").unlink()

    with pytest.warns(StaleManifest, match="no longer exists"):
        box = Toolbox.from_manifest("shop", instances={PATH: instance})

    assert names(box) == []


# --- plugins and commands ---------------------------------------------------------------------------


def test_discovery_omits_tools_whose_instance_only_an_application_could_give(db):
    metadata = db.parent / "shop-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n", "utf-8")
    (metadata / "entry_points.txt").write_text("[toolmason.tools]\nshop = shop\n", "utf-8")

    box = discover()

    assert names(box) == ["up"]


def test_the_manifest_says_what_a_class_needs(db):
    form = json.loads((db / "_toolmason.json").read_text("utf-8"))

    assert form["classes"] == {"shop.db:Counter": [], "shop.db:Db": ["url"]}


# --- served over MCP --------------------------------------------------------------------------------

RESULTS = '''
    from dataclasses import dataclass

    from toolmason import tool


    @dataclass
    class Sum:
        result: int


    @tool
    def as_object() -> Sum:
        """Return an object with the field `result`."""
        return Sum(3)


    @tool
    def as_number() -> int:
        """Return a number."""
        return 3
'''


@pytest.mark.parametrize("change", ["", "\n# changed\n"], ids=["up to date", "changed"])
@pytest.mark.filterwarnings("ignore::toolmason.errors.StaleManifest")
async def test_a_field_named_result_is_not_taken_for_a_wrapper(make_package, change):
    folder = make_package(results=RESULTS)
    built = build("shop")
    write_file(built.path, built.data)
    forget("shop")
    (folder / "results.py").write_text((folder / "results.py").read_text("utf-8") + change, "utf-8")

    async with Toolbox(McpServer.of("remote", Toolbox.from_manifest("shop").prefixed("s_"))) as box:
        values = [(await box.call(name)).value for name in ("s_as_object", "s_as_number")]

    assert values == [{"result": 3}, 3]


async def test_a_server_lists_the_tools_of_a_manifest_without_importing_them(db):
    async with Toolbox(McpServer.of("remote", Toolbox.from_manifest("shop"))) as box:
        listed = [tool.name for tool in await box.list()]
        before = loaded()
        result = await box.call("address")

    assert listed == ["address", "up", "version"]
    assert before == []
    assert "needs constructor arguments (url)" in result.text


@pytest.mark.parametrize("given", [[1], 3, {1: "shop"}], ids=str)
def test_instances_are_a_mapping_of_classes(db, given):
    with pytest.raises(ConfigError, match=r"instances=.*must be a mapping from classes"):
        Toolbox.from_manifest("shop", instances=given)


def test_an_async_function_makes_no_instance(db):
    async def connect():
        return None

    with pytest.raises(ConfigError, match=r"instances\['shop\.db:Db'\] is an async function.*await connect\(\)"):
        Toolbox.from_manifest("shop", instances={PATH: connect})


async def test_a_function_that_returns_a_coroutine_makes_no_instance(db, recwarn):
    async def connect(url):
        return url

    result = await Toolbox.from_manifest("shop", instances={PATH: lambda: connect("db://a")}).call("address")

    assert "returned an object of class 'coroutine'" in result.error.message
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]
