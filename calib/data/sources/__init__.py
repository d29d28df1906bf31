"""Where samples come from: one module for each kind of source."""

__all__: list[str] = []
