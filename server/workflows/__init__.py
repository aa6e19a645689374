"""Registered workflows: files of the owner's in Python, and ComfyUI graphs with parameters."""
