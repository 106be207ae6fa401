"""Tables that processes share: the interface of a store, and its two implementations, SQLite and PostgreSQL."""
