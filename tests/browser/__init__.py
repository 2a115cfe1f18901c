"""The page, driven in a browser: `make view`."""
