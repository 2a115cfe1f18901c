"""Each program has one project write a file with its own code: ``python -m tests.foreign.makers.NAME FOLDER``, in an
environment that has the project. What they wrote once is in ``tests/foreign/files``; where the project is installed,
the tests have it written anew."""
