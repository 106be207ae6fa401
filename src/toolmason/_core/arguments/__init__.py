"""Convert JSON arguments to Python values, or report every problem."""
