"""The runtime of every process: settings, logs, clock, files, TLS, RPC."""
