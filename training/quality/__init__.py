"""Looks at the pixels of what the demo model draws: `make demo-quality`."""
