package main

import (
	"slices"
	"sync/atomic"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// framing is the number of bytes that gRPC puts before each message.
const framing = 5

// response holds what a simulated Envoy needs from a response of either variant: what to
// acknowledge, and the clusters whose endpoints it asks for. A thousand Envoys share this process's
// cores with the relay, and would mostly measure themselves if each decoded every route.
type response struct {
	version, typeURL, nonce string
	clusters                []string
}

// codec reads responses and counts their bytes on the wire, before TLS.
type codec struct {
	encoding.CodecV2
	bytes *atomic.Int64
	delta bool
}

func newCodec(bytes *atomic.Int64, delta bool) codec {
	return codec{encoding.GetCodecV2(proto.Name), bytes, delta}
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*response)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	c.bytes.Add(int64(data.Len() + framing))
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	var resources [][]byte
	err := fields(whole.ReadOnlyData(), func(field protowire.Number, value []byte) {
		switch field { // both variants have the same numbers
		case 1:
			r.version = string(value)
		case 2:
			resources = append(resources, value)
		case 4:
			r.typeURL = string(value)
		case 5:
			r.nonce = string(value)
		}
	})
	for _, packed := range resources {
		if err == nil && r.typeURL == resource.ClusterType {
			r.clusters = append(r.clusters, c.name(packed))
		}
	}
	return err
}

// name returns the name of a cluster. In delta it is that of the Resource; otherwise it is that of
// the Cluster inside the Any.
func (c codec) name(packed []byte) string {
	path := []protowire.Number{2, 1}
	if c.delta {
		path = []protowire.Number{3}
	}
	for _, wanted := range path {
		var found []byte
		fields(packed, func(field protowire.Number, value []byte) { //nolint:errcheck // it has no name then, and no endpoints
			if field == wanted {
				found = value
			}
		})
		packed = found
	}
	return string(slices.Clone(packed))
}

// fields calls `each` for every length-delimited field of a message.
func fields(message []byte, each func(protowire.Number, []byte)) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(field, kind, message[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message[n:])
			each(field, value)
		}
		message = message[n+size:]
	}
	return nil
}
