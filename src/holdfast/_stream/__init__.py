"""What is known of a task, put together from what an agent sends. Nothing here does I/O."""
