"""Show the page on which people read rollouts: a server over run folders, and the page as one file."""
