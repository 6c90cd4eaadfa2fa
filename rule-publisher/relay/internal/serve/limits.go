package serve

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"spillway.dev/relay/internal/count"
)

// What one Envoy may have the relay keep for as long as its stream, and write into acknowledgements.
const (
	typesPerStream = 16      // far above the three that are served: an Envoy may ask for what it likes
	namesPerStream = 4 << 20 // bytes: what gRPC lets through in one request
	nodeLimit      = 512     // bytes of each name of a node
	typeURLLimit   = 256     // bytes
)

// overfull is an error when the Envoy asks for more names, over all types, than are kept.
func (st *stream) overfull() error {
	bytes := 0
	for _, sub := range st.subs {
		for _, name := range sub.names {
			bytes += len(name)
		}
	}
	if bytes > namesPerStream {
		return status.Errorf(codes.ResourceExhausted, "resource names: %d bytes are asked for; at most %d on one stream", bytes, namesPerStream)
	}
	return nil
}

// refuse counts and logs why a stream is ended.
func (s *Streams) refuse(envoy string, reason count.Counter, problem error) error {
	s.Counters.Add(reason)
	s.Log.Warn("an xDS stream is refused", "node", envoy, "error", problem)
	return problem
}
