"""`python -m bertvision`."""

from bertvision.cli import main

main()
