"""The blocks of the docs that need an engine run with one. The other tests leave them out."""

import pytest

from docs.snippets import blocks_of, run_page
from docs.test_snippets import PAGES, folder  # noqa: F401 - a fixture
from house.source import ROOT

pytestmark = [pytest.mark.scale, pytest.mark.xdist_group("temporal")]
WITH_ENGINES = [page for page in PAGES if any(block.engine for block in blocks_of(page.read_text("utf-8")))]


@pytest.mark.parametrize("page", WITH_ENGINES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_page_runs_with_its_engines(page, folder, forks, server, postgres):  # noqa: F811 - the fixture
    addresses = {
        "temporal": ("localhost:7233", server.address),
        "postgres": ("postgresql://app@db.internal/agents", postgres.url),
    }

    run_page(page, folder, forks, addresses)


def test_there_are_pages_with_engines():
    engines = {block.engine for page in WITH_ENGINES for block in blocks_of(page.read_text("utf-8"))}

    assert engines == {"", "temporal", "postgres"}
