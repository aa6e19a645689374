"""The brain: a pure state machine. No asyncio, sockets, clock, files or torch in here."""
