"""`python -m a2c`."""

from a2c.cli import main

main()
