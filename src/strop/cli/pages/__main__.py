"""`python -m strop.cli.pages FOLDER` writes the page of every named algorithm there; `make docs` calls it."""

import sys
from pathlib import Path

from strop.cli.pages.algorithm import algorithm_page
from strop.config.bundles import BUNDLES


def write_pages(folder: Path) -> None:
    """Writes one page a bundle and takes away pages of bundles that are no more."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in BUNDLES:
        (folder / f"{name}.md").write_text(algorithm_page(name), encoding="utf-8")
    for page in folder.glob("*.md"):
        if page.stem not in BUNDLES:
            page.unlink()


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
