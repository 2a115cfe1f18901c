"""Write to W&B Weave over plain HTTP; the ``weave`` package is not needed."""
