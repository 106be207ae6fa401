"""A program: importing it would run it."""

raise SystemExit("the program was run")
