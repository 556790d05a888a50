"""gRPC over real sockets, with grpcio. Needs the extra ``grpc``; imported by the first such call."""
