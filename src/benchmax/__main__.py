"""`python -m benchmax`: the command line where no script is installed."""

from benchmax.cli import main

main()
