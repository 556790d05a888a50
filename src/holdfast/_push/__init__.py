"""The receiver of push notifications."""
