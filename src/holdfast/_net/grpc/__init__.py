"""gRPC over real sockets, with grpcio: needs an extra, and is imported by the first such call."""
