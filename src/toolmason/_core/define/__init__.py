"""Make a `Tool` from a function or a schema: signature, docstring, schema, inputs. Runs nothing."""
