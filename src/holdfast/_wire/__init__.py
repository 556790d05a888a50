"""Pure codecs: operations to HTTP requests, HTTP replies to values or typed errors."""
