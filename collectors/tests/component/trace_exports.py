"""What every sender of traces over OTLP/gRPC needs, test or benchmark."""

TRACE_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
# Without a pool of its own, gRPC would let all channels of a process share one connection.
OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)
