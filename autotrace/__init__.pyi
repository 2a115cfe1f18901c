from autotrace.query.runs import open as open

__version__: str
