"""Hold the tools, prompts and resources of a toolbox by name. Does not connect to servers or call tools."""
