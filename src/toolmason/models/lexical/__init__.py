"""Text matching without a model: similarity, a search index, and extraction of values."""
