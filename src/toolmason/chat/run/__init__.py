"""One run of a chat: its plan, its turns and calls, and how it is resumed."""
