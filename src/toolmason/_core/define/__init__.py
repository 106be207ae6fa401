"""A function or a schema becomes a `Tool`: signature, docstring, schema, inputs. Runs nothing."""
