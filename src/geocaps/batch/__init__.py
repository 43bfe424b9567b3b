"""Parts of ``encode_files``: sources, shards of rows, engines, and the output formats."""
