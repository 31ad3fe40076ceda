"""`python -m clew.cli`, where no `clew` is on the PATH."""

from clew.cli import main

main()
