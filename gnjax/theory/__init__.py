"""The theorems of both papers, one function for each theorem or equation."""
