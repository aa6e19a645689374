"""Node classes: their schemas, and what they lower to."""
