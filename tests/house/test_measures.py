"""The bounds of the house hold; `make house` prints the table."""

from house.duplicates import duplicate_pairs
from house.measures import measures


def test_every_bound_holds():
    broken = [row for row in measures() if not row.holds]

    assert [f"{row.name}: {row.value}, at most {row.bound}: {row.where}" for row in broken] == []


def test_a_repeated_run_of_lines_is_seen(tmp_path):
    body = "".join(f"    value_{n} = compute(given[{n}], other={n}) or default\n" for n in range(7))
    (tmp_path / "one.py").write_text(f"def first(given):\n{body}", "utf-8")
    (tmp_path / "two.py").write_text(f"def second(given):\n{body.replace('value', 'item')}", "utf-8")

    assert len(duplicate_pairs(tmp_path)) == 1
