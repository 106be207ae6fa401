"""Text matching without a model: similarity, search index, extraction of values from text."""
