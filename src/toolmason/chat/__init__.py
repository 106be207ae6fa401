"""Chat: a loop in which a model calls tools, with memory, approval that can wait, and limits."""
