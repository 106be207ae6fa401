"""`toolmason build PACKAGE`: write the manifest of a package, or check that it is up to date."""

from __future__ import annotations

import click

from toolmason._text import pluralize
from toolmason.build.compare.drift import Drift, find_drift
from toolmason.build.manifest.package_manifest import ManifestFile, build_target, locate_package, write_file
from toolmason.cli.main import DRIFT, NOT_FOUND, examples
from toolmason.cli.output import echo, print_json, print_rows
from toolmason.cli.targets import fail, is_importable
from toolmason.errors import ConfigError


@click.command("build", epilog=examples("build my_tools", "build src/my_tools --check"))
@click.argument("package")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if the manifest is out of date.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Modules to skip, such as 'shop.tests.*'.")
@click.option("--json", "as_json", is_flag=True, help="Print a report as JSON.")
def command(package: str, exclude: tuple[str, ...], *, check: bool, as_json: bool) -> None:
    """Write the manifest of PACKAGE, a name or a folder, into the package."""
    try:
        name, folder = locate_package(package)
    except ConfigError as error:
        fail(str(error), NOT_FOUND)
    if not is_importable(name, folder):
        fail(f"Package {package!r} not found. Check the spelling, or run from the project's folder.", NOT_FOUND)
    built = build_target(package, exclude)
    drift = find_drift(built)
    if not check:
        write_file(built.path, built.data)
    if as_json:
        print_json(_make_report(built, drift, check=check))
    else:
        _print(built, drift, check=check)
    if check and drift:
        raise click.exceptions.Exit(DRIFT)


def _make_report(built: ManifestFile, drift: list[Drift], *, check: bool) -> dict[str, object]:
    content = built.content
    return {
        "package": content["package"],
        "file": str(built.path),
        "tools": len(content["tools"]),
        "prompts": len(content["prompts"]),
        "modules": len(content["modules"]),
        "notes": built.notes,
        "written": not check and bool(drift),
        "changes": [change.to_dict() for change in drift],
    }


def _print(built: ManifestFile, drift: list[Drift], *, check: bool) -> None:
    for note in built.notes:
        echo(f"Note: {note}", err=True)
    size = f"{pluralize(len(built.content['tools']), 'tool')} from {pluralize(len(built.content['modules']), 'module')}"
    if not drift:
        echo(f"{built.path.name} of {built.content['package']} is up to date: {size}.")
    elif not check:
        echo(f"Wrote {built.path.name} of {built.content['package']}: {size}.")
    else:
        print_rows(("Name", "Change"), [(change.name, change.message) for change in drift])
        echo(f"The manifest is out of date. Run `toolmason build {built.content['package']}`.", err=True)
