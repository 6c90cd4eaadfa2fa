"""Constants for senders of traces over OTLP/gRPC, tests and benchmarks."""

TRACE_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
# Without a subchannel pool of its own, gRPC would let all channels of a process share one
# connection.
OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)
