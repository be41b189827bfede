"""What conditions a network badly, and which remedies help."""
