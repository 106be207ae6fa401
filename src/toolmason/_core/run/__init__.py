"""Where code runs, and until when: event loop, threads, processes, deadlines, semaphores. Knows no tool names."""
