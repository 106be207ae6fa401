"""The page of telemetry has every attribute and every metric of the table, and no other."""

from house.source import ROOT
from toolmason.observe import ATTRIBUTES, METRICS

PAGE = ROOT / "docs" / "reference" / "telemetry.md"


def rows():
    cells = [line.strip("| ").split(" | ") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_the_page_has_every_name_with_its_type_and_its_meaning():
    attributes = {name: [attribute.type.__name__, attribute.meaning] for name, attribute in ATTRIBUTES.items()}
    metrics = {
        name: [metric.instrument.replace("_", " "), f"`{metric.unit}`", metric.meaning]
        for name, metric in METRICS.items()
    }

    assert rows() == attributes | metrics
