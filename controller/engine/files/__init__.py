"""The engine's values as files: snapshots, plans and queues in JSON and YAML, and back.

Files are read as strictly as those of `carina allocate`: an unknown field, a wrong value or an
object that is given twice is an error that names the file, the document and the field.
"""
