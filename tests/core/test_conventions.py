"""The names of spans and metrics are those of the conventions, and one table has all of them."""

import importlib
import pkgutil
import re
from types import SimpleNamespace

from opentelemetry.semconv import attributes as stable
from opentelemetry.semconv._incubating import attributes as incubating
from opentelemetry.semconv._incubating import metrics as incubating_metrics
from opentelemetry.semconv.schemas import Schemas

from otel_checks import Validator, find_problems
from toolmason._core.run.conventions import ATTRIBUTES, SCHEMA_URL
from toolmason._core.run.metrics import METRICS, measure

OWN = ("toolmason.", "spring.ai.")


def constants_of(package):
    """Return the string constants of all modules of a package."""
    modules = (
        importlib.import_module(f"{package.__name__}.{info.name}") for info in pkgutil.iter_modules(package.__path__)
    )
    return {
        value for module in modules for name, value in vars(module).items() if name.isupper() and type(value) is str
    }


def test_every_attribute_that_is_not_the_packages_own_is_one_of_the_conventions():
    known = constants_of(stable) | constants_of(incubating)

    assert [name for name in ATTRIBUTES if not name.startswith(OWN) and name not in known] == []


def test_every_metric_that_is_not_the_packages_own_is_one_of_the_conventions():
    known = constants_of(incubating_metrics)

    assert [name for name in METRICS if not name.startswith(OWN) and name not in known] == []


def test_the_version_of_the_conventions_is_one_that_exists():
    assert SCHEMA_URL in {schema.value for schema in Schemas}


def test_own_names_are_lower_case_words_with_dots():
    names = [name for name in (*ATTRIBUTES, *METRICS) if name.startswith("toolmason.")]

    assert [name for name in names if not re.fullmatch(r"toolmason(\.[a-z_]+)+", name)] == []


def test_the_validator_finds_an_unknown_name_a_wrong_type_and_a_bool_for_a_number():
    problems = find_problems({"gen_ai.tool.nam": "x", "gen_ai.tool.name": 1, "server.port": True, "error.type": "ok"})

    assert len(problems) == 3


def test_the_validator_sees_a_wrong_metric_and_a_wrong_span():
    validator, scope = Validator(), SimpleNamespace(name="toolmason")

    validator.on_measurement(SimpleNamespace(name="toolmason.other", instrumentation_scope=scope), {"tool": "x"})
    status, attributes = SimpleNamespace(description="bad key"), {}
    validator.on_end(
        SimpleNamespace(name="call x", instrumentation_scope=scope, attributes=attributes, events=(), status=status)
    )

    assert len(validator.take()) == 4
    assert (validator.spans, validator.values, validator.take()) == (1, 1, [])


def test_without_a_meter_provider_nothing_is_measured(monkeypatch):
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", None)

    measure("no such metric", 1, {})
