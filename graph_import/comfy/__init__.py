"""ComfyUI's prompts: reading, validating and lowering them."""
