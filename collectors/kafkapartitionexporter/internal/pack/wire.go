package pack

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers that ExportTraceServiceRequest and ExportMetricsServiceRequest share, level by
// level. Source: opentelemetry-proto, trace/v1/trace.proto and metrics/v1/metrics.proto.
const (
	fieldResources = 1 // in the request: repeated ResourceSpans or ResourceMetrics
	fieldScopes    = 2 // in these: repeated ScopeSpans or ScopeMetrics; field 1 is the resource
	fieldItems     = 2 // in these: repeated Span or Metric; field 1 is the scope
	fieldResource  = 1
)

// field is one field of an encoded protobuf message.
type field struct {
	number  protowire.Number
	raw     []byte // tag and value, as encoded
	content []byte // the value without its length; nil when it is not length-delimited
}

// next splits off the first field of a message.
func next(message []byte) (field, []byte, error) {
	number, kind, tag := protowire.ConsumeTag(message)
	if tag < 0 {
		return field{}, nil, fmt.Errorf("protobuf tag: %w", protowire.ParseError(tag))
	}
	size := protowire.ConsumeFieldValue(number, kind, message[tag:])
	if size < 0 {
		return field{}, nil, fmt.Errorf("protobuf field %d: %w", number, protowire.ParseError(size))
	}
	found := field{number: number, raw: message[:tag+size]}
	if kind == protowire.BytesType {
		found.content, _ = protowire.ConsumeBytes(message[tag:])
	}
	return found, message[tag+size:], nil
}

// part separates the length-delimited fields of one number from all other fields.
func part(message []byte, number protowire.Number) (children []field, rest []byte, err error) {
	for len(message) > 0 {
		var found field
		if found, message, err = next(message); err != nil {
			return nil, nil, err
		}
		if found.number == number && found.content != nil {
			children = append(children, found)
		} else {
			rest = append(rest, found.raw...)
		}
	}
	return children, rest, nil
}

// first returns the content of the first length-delimited field with the number. It is nil if the
// message has no such field.
func first(message []byte, number protowire.Number) ([]byte, error) {
	for len(message) > 0 {
		found, rest, err := next(message)
		if err != nil {
			return nil, err
		}
		if found.number == number && found.content != nil {
			return found.content, nil
		}
		message = rest
	}
	return nil, nil
}

// appendBytes appends a length-delimited field.
func appendBytes(to []byte, number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), content)
}
