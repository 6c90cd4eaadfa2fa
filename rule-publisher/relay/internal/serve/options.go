package serve

import (
	"google.golang.org/grpc"

	"spillway.dev/relay/internal/serve/protocol"
)

// writeBuffer is the size in bytes of the buffer of a connection that has something to send. A
// larger buffer would save system calls, but gRPC needs one even for a ping, and all Envoys are
// pinged at about the same time.
const writeBuffer = 4 << 10

// window is HTTP/2's own default: the bytes that an Envoy may send before they are read.
const window = 1<<16 - 1

// lean returns the options that keep the cost of each connection small. Most Envoys are silent most
// of the time, so buffers are small or shared, and sent resources are not copied.
func lean() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(protocol.NewCodec()),
		grpc.ReadBufferSize(0), // TLS has its own buffer
		grpc.WriteBufferSize(writeBuffer),
		// Requests are small. A fixed window also turns off gRPC's bandwidth estimation, which
		// sends a ping for each request. A header table is useless here, because a connection with
		// one stream has no earlier headers to compress against.
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(window),
		grpc.HeaderTableSize(0),
	}
}
