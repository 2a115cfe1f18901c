"""The types of what ``__init__.py`` imports once it is asked for."""

from autotrace.bootstrap.door import start as start
from autotrace.bootstrap.door import stop as stop
from autotrace.bootstrap.prepare import StartError as StartError
from autotrace.cli.notebook import open as open

__version__: str
