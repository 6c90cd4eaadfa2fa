package serve

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"spillway.dev/relay/internal/count"
)

// Limits of what one Envoy can make the relay store for the life of its stream, or write into
// acknowledgements.
const (
	typesPerStream = 16      // far above the three that are served, because an Envoy may ask for any type
	namesPerStream = 4 << 20 // bytes; the most that gRPC accepts in one request
	nodeLimit      = 512     // bytes of each name in a node
	typeURLLimit   = 256     // bytes
)

// overfull returns an error when the names that the Envoy asks for, over all types, exceed
// namesPerStream.
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

// refuse counts and logs the reason why a stream is ended, and returns the problem.
func (s *Streams) refuse(envoy string, reason count.Counter, problem error) error {
	s.Counters.Add(reason)
	s.Log.Warn("an xDS stream is refused", "node", envoy, "error", problem)
	return problem
}
