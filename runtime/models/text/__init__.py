"""Text encoders by their parts: tokenizers, the transformers behind them, and what joins both."""
