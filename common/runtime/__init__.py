"""How any process runs: settings, logs, clock, files, TLS, RPC."""
