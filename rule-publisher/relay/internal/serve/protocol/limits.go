package protocol

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Limits of what one Envoy can make the relay store for the life of its stream, or write into
// acknowledgements.
const (
	typesPerStream = 16      // far above the three that are served, because an Envoy may ask for any type
	namesPerStream = 4 << 20 // bytes; the most that gRPC accepts in one request
	typeURLLimit   = 256     // bytes
	detailLimit    = 4096    // bytes of the detail of an answer
)

func tooManyTypes(typeURL string) error {
	return status.Errorf(codes.ResourceExhausted, "type_url: %.200q; a stream may ask for at most %d types",
		typeURL, typesPerStream)
}

// overfull returns an error when the names that the Envoy asks for, over all types, exceed
// namesPerStream.
func (s *Subscriptions) overfull() error {
	bytes := 0
	for _, sub := range s.subs {
		for _, name := range sub.names {
			bytes += len(name)
		}
	}
	if bytes > namesPerStream {
		return status.Errorf(codes.ResourceExhausted, "resource names: %d bytes are asked for; at most %d on one stream", bytes, namesPerStream)
	}
	return nil
}
