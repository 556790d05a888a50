"""Push notification configurations, and their receiver."""
