"""Hooks of mkdocs: the pages that are made from the source, and links that leave `docs/`."""

import ast
import posixpath
import re
import tomllib
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Source"]
PAGES_OF_ROOT = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "VERSIONING.md": "project/versioning.md",
    "SECURITY.md": "project/security.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "RELEASING.md": "project/releasing.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "training/README.md": "project/training.md",
}
"""Pages outside of `docs/`, and where the site has them."""
GROUPS = {
    "tools": (
        "Tools",
        "tool Tool ToolDefinition ToolOptions Param prompt resource tools_from discover scan supported_for",
    ),
    "values": ("Injected values", "ToolContext Inject Depends ProjectDir"),
    "toolbox": ("Toolbox", "Toolbox Config"),
    "policy": ("Policy", "Limits Rate Retry Parallel Sequential Allow Deny Edit Abort ToolError"),
    "results": (
        "Calls and results",
        "ToolCall ToolResult ToolReturn Text Image Audio ResourceLink EmbeddedResource Message",
    ),
    "chat": ("Chat and models", "Chat model SqliteMemory WindowMemory WebSearch RemoteMcp"),
    "mcp": ("MCP", "McpServer serve asgi_app"),
}
"""Pages of the names in `toolmason` itself."""
MODULES = (
    "chat",
    "models",
    "mcp",
    "errors",
    "testing",
    "observe",
    "extend",
    "converters",
    "openapi",
    "adapters",
    "scale",
    "providers",
)
"""Modules with public names, in the order of the navigation."""
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)(?P<path>[^)#\s]+)")
BADGE = re.compile(r"^\[!\[.*\n", re.MULTILINE)
"""Badges come from other hosts; the site loads nothing from there."""
FENCE_OF_ENGINE = re.compile(r"^(\s*```python) \w+$", re.MULTILINE)


def on_config(config):
    """Add the generated pages to the navigation."""
    rules = sorted(path.name for path in (ROOT / "docs/reference/rules").glob("TM*.md"))
    generated = {
        "Names": [f"reference/api/{name}.md" for name in [*GROUPS, *(f"toolmason.{name}" for name in MODULES)]],
        "Rules": ["reference/rules/README.md", *(f"reference/rules/{name}" for name in rules)],
        "Project": [page for page in PAGES_OF_ROOT.values() if page.startswith("project/")],
    }
    _fill(config.nav, generated)
    config.repo_url, config.repo_name = REPOSITORY, REPOSITORY.partition("//")[2].partition("/")[2]
    return config


def on_files(files, config):
    """Add the pages of the root folder, and one page for each group of public names."""
    pages = {site_path: (ROOT / path).read_text("utf-8") for path, site_path in PAGES_OF_ROOT.items()}
    for name, text in {**pages, **_make_reference()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown, page, files: Files, **_):
    """Point links to pages of the site at them, and other files at the repository."""
    origin = {site_path: path for path, site_path in PAGES_OF_ROOT.items()}
    source = origin.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def repoint(found):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found["path"]))
        if target in PAGES_OF_ROOT:
            uri = PAGES_OF_ROOT[target]
        elif target.startswith("docs/") and files.get_file_from_path(target.removeprefix("docs/")):
            uri = target.removeprefix("docs/")
        elif (ROOT / target).exists():
            kind = "tree" if (ROOT / target).is_dir() else "blob"
            return f"{REPOSITORY}/{kind}/main/{target}"
        else:
            return found["path"]
        return posixpath.relpath(uri, posixpath.dirname(page.file.src_uri))

    return FENCE_OF_ENGINE.sub(r"\1", LINK.sub(repoint, BADGE.sub("", markdown)))


def _fill(nav, generated):
    for entry in nav:
        for title, below in entry.items() if isinstance(entry, dict) else ():
            if title in generated:
                entry[title] = generated[title]
            elif isinstance(below, list):
                _fill(below, generated)


def _make_reference():
    pages = {}
    grouped = [name for _, names in GROUPS.values() for name in names.split()]
    public = [name for name in _read_names("") if name != "errors"]
    if sorted(grouped) != sorted(public):
        raise PluginError(f"website/hooks.py: GROUPS differs from toolmason.__all__: {set(grouped) ^ set(public)}")
    for path, (title, names) in GROUPS.items():
        pages[f"reference/api/{path}.md"] = _make_page(title, "toolmason", names.split())
    for module in MODULES:
        name = f"toolmason.{module}"
        pages[f"reference/api/{name}.md"] = _make_page(f"`{name}`", name, _read_names(module))
    return pages


def _make_page(title, module, names):
    return "\n\n".join([f"# {title}", f"Import from `{module}`.", *(f"::: {module}.{name}" for name in names)])


def _read_names(module):
    """Return `__all__` of a module, without an import."""
    base = ROOT / "src/toolmason" / module
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    raise PluginError(f"{path.relative_to(ROOT)} has no __all__.")
