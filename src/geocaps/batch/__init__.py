"""What ``encode_files`` is made of: items (what to encode), rows, shards of rows, engines, and the output formats."""
