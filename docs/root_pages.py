"""Add the Markdown files of the repository's root, and examples, to the site. Run by mkdocs."""

import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT: Final = Path(__file__).parents[1]
_PAGES: Final = {
    "README.md": "index.md",
    "SECURITY.md": "SECURITY.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "deploy/load/every_key.toml": "deploy/load/every_key.toml",
    "examples/subset_selection.py": "examples/subset_selection.py",
    "examples/subset_selection_audit.py": "examples/subset_selection_audit.py",
}
"""Each file outside docs/, and its page."""
_TO_ROOT: Final = re.compile(rf"\]\(\.\./((?:\.\./)*(?:{'|'.join(map(re.escape, _PAGES))}))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the decisions in the navigation, by their numbers."""
    folder = Path(config.docs_dir) / "decisions"
    records = sorted(path.name for path in folder.glob("0*.md"))
    [*_, last] = config.nav or []
    last["Project"].append({"Decisions": [f"decisions/{name}" for name in ("index.md", *records)]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file. Links from the root into docs/ lose that folder."""
    for name, page in _PAGES.items():
        text = (_ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(
            File.generated(config, page, content=text.replace("](README.md", "](index.md"))
        )
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links from docs/ to the root's files stay within the site."""
    del page, config, files
    return _TO_ROOT.sub(r"](\1", markdown).replace("](README.md", "](index.md")
