"""Let a model write programs that call tools, in a sandbox: the settings, the signatures, and the interpreter."""
