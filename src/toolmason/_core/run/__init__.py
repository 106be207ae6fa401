"""Run code on the event loop, in threads and in processes, until its deadline. Knows no tool names."""
