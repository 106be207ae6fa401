"""JSON arguments become Python values, or a list of every problem."""
