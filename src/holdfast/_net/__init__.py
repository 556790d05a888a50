"""HTTP engines, gRPC channels, and the sockets, TLS settings and proxies that they use."""
