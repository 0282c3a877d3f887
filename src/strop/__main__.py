"""`python -m strop` is the command `strop`."""

from strop.cli.main import main

main()
