"""The tools, prompts and resources that a toolbox holds, by name. Does not import, connect or call."""
