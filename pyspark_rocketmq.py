"""How Spark finds the source: it imports every top-level module called pyspark_* and registers
its `DefaultSource`. A module that fails to import would switch this off for all others, so nothing
here may raise.

The source itself is not written yet (see CHANGELOG.md); until then there is nothing to register.
"""
