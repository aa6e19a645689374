"""Graph to Graph: what no output needs goes, what is equal is shared."""
