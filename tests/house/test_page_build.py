"""The files of the page that are in the wheel belong to the sources in `web/`, and are small."""

import json

from house.page_build import BUILT, MAX_GZIPPED, RECORD, built_files, gzipped_size, make_record


def test_the_built_files_belong_to_the_sources():
    assert json.loads(RECORD.read_text("utf-8")) == make_record(), "Run `make web`, and commit the result."


def test_the_page_is_below_300_kilobytes_compressed():
    assert 50_000 < gzipped_size() < MAX_GZIPPED


def test_the_page_loads_nothing_from_elsewhere():
    page = (BUILT / "index.html").read_text("utf-8")
    styles = "".join(path.read_text("utf-8") for path in built_files() if path.suffix == ".css")

    assert 'src="/assets/' in page
    assert "//" not in page.replace("<!doctype", "")
    assert "@import" not in styles
    assert "url(" not in styles
