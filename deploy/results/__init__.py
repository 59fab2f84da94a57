"""Released results: verification, tables, exports, decoding."""
