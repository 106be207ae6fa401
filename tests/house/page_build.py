"""Record which sources the committed files of the page were built from, so that users need no Node.

Usage: python tests/house/page_build.py --write, after the build; without it, check.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "web"
BUILT = ROOT / "src" / "toolmason" / "ui" / "static"
RECORD = BUILT / "build.json"
MAX_GZIPPED = 300_000


def source_files() -> list[Path]:
    """Return the files that decide what is built; tests and their set-up do not."""
    found = [path for path in (SOURCES / "src").rglob("*") if path.is_file() and ".test." not in path.name]
    return sorted([*found, *(SOURCES / name for name in ("index.html", "package-lock.json", "vite.config.ts"))])


def built_files() -> list[Path]:
    return sorted(path for path in BUILT.rglob("*") if path.is_file() and path != RECORD)


def digest(files: list[Path]) -> str:
    found = hashlib.sha256()
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        found.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def make_record() -> dict[str, str]:
    return {"sources": digest(source_files()), "built": digest(built_files())}


def gzipped_size() -> int:
    """Return the bytes that a browser loads, compressed. The licences of the libraries are for readers."""
    loaded = [path for path in built_files() if path.suffix != ".md"]
    return sum(len(gzip.compress(path.read_bytes(), 9, mtime=0)) for path in loaded)


def main() -> int:
    if "--write" in sys.argv:
        RECORD.write_text(json.dumps(make_record(), indent=1) + "\n", "utf-8")
        print(f"{len(built_files())} files, {gzipped_size():,} bytes gzipped, at most {MAX_GZIPPED:,}")
    if json.loads(RECORD.read_text("utf-8")) != make_record():
        print("The built files of the page are not those of web/. Run `make web`, and commit the result.")
        return 1
    return int(gzipped_size() > MAX_GZIPPED)


if __name__ == "__main__":
    raise SystemExit(main())
