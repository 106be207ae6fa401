"""A package that fails, with a module below it that nobody reaches."""

import no_such_module_at_all  # noqa: F401 - that is the point
