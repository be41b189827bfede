"""One runnable module a sweep."""
