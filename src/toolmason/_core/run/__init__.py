"""Run code on the event loop, in threads and in processes, until its deadline; write its log, spans and metrics."""
