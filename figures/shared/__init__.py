"""What figures share: series from tables, phrases of captions, panels and style."""
