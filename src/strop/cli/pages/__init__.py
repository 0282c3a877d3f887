"""The generated pages of the documentation on algorithms: docstrings and settings, put side by side.

docstrings.py   what a source file says of itself, read without importing it, as Markdown
algorithm.py    the page of one named algorithm
__main__.py     writes them all: `python -m strop.cli.pages docs/algorithms`
"""
