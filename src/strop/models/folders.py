"""Folders that models are written into; loads nothing heavy, so that a wrong one is refused at once."""

from pathlib import Path

from strop.errors import ModelError


def check_export_folder(folder: Path) -> None:
    """Raises ModelError where the folder holds something already, or is a file."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelError(f"the export folder must be new or empty, got {folder}", "Name another folder, or remove it.")
