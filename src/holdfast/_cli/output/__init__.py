"""What commands print: text, JSON, and progress."""
