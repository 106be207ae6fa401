"""The engine: everything between a function and the result of a call. Private; `toolmason` exports its public part."""
