package protocol

import (
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"spillway.dev/relay/internal/serve/resources"
)

// Field numbers of the response types of envoy.service.discovery.v3.
const (
	responseVersion = 1 // the first three are in both
	responseTypeURL = 4
	responseNonce   = 5
	responseRemoved = 6 // delta only
)

// codec is gRPC's protobuf codec, except that it passes the encoded resources of a response to the
// connection without a copy per Envoy. With many Envoys connected, such copies would be most of a
// relay's memory.
type codec struct{ encoding.CodecV2 }

// NewCodec returns the codec that the server must use: it reads a Request or a
// Report, and writes a Response.
func NewCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Response is a response of either variant, with resources that are already encoded.
type Response struct {
	delta                   bool
	version, typeURL, nonce string
	items                   resources.Items
	removed                 []string        // delta only
	changed                 resources.Items // those of `items` that the Envoy does not hold; not sent
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*Response); ok {
		return r.encode(), nil
	}
	return c.CodecV2.Marshal(v)
}

func (r *Response) encode() mem.BufferSlice {
	var head []byte
	field := func(number protowire.Number, value string) {
		head = protowire.AppendString(protowire.AppendTag(head, number, protowire.BytesType), value)
	}
	field(responseVersion, r.version)
	field(responseTypeURL, r.typeURL)
	field(responseNonce, r.nonce)
	for _, name := range r.removed {
		field(responseRemoved, name)
	}
	out := make(mem.BufferSlice, 0, 1+2*len(r.items))
	out = append(out, mem.SliceBuffer(head))
	for _, i := range r.items {
		before, content := i.Encoded(r.delta)
		out = append(out, mem.SliceBuffer(before), mem.SliceBuffer(content))
	}
	return out
}

// Unmarshal implements encoding.CodecV2. It stores the bytes of a request or report without
// decoding them.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch r := v.(type) {
	case *Request:
		r.raw = data.Materialize()
		return nil
	case *Report:
		r.raw = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
