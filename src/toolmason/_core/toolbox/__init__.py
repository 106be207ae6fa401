"""Public `Toolbox`. The only package of the core that imports all the others."""
