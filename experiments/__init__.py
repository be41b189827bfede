"""One runnable module for each sweep."""
