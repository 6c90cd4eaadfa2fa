package serve

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
)

// Field numbers of envoy.service.discovery.v3 and google.protobuf.Any.
const (
	responseVersion   = 1 // the first four are in both response types
	responseResources = 2
	responseTypeURL   = 4
	responseNonce     = 5
	responseRemoved   = 6 // delta only
	resourceVersion   = 1
	resourceAny       = 2
	resourceName      = 3
	anyTypeURL        = 1
	anyValue          = 2
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
		grpc.ForceServerCodecV2(newCodec()),
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

// codec is gRPC's protobuf codec, except that it passes the encoded resources of a response to the
// connection without a copy per Envoy. With many Envoys connected, such copies would be most of a
// relay's memory.
type codec struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// response is a response of either variant, with resources that are already encoded.
type response struct {
	delta                   bool
	version, typeURL, nonce string
	items                   []*item
	removed                 []string // delta only
	changed                 []*item  // those of `items` that the Envoy does not hold; not sent
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*response); ok {
		return r.encode(), nil
	}
	return c.CodecV2.Marshal(v)
}

func (r *response) encode() mem.BufferSlice {
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
		before := i.whole
		if r.delta {
			before = i.delta
		}
		out = append(out, mem.SliceBuffer(before), mem.SliceBuffer(i.packed.GetValue()))
	}
	return out
}

// Unmarshal implements encoding.CodecV2. It stores a request's bytes without decoding them.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*request); ok {
		r.raw = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// deltaHead returns the bytes that precede the resource's content in a delta response.
func deltaHead(i *item) []byte {
	var fields []byte
	fields = protowire.AppendTag(fields, resourceVersion, protowire.BytesType)
	fields = protowire.AppendString(fields, i.version)
	fields = protowire.AppendTag(fields, resourceName, protowire.BytesType)
	fields = protowire.AppendString(fields, i.name)
	inner := protowire.SizeTag(resourceAny) + protowire.SizeBytes(sizeAny(i.packed))
	head := protowire.AppendTag(nil, responseResources, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(fields)+inner))
	return appendAny(append(head, fields...), resourceAny, i.packed)
}

// wholeHead returns the bytes that precede the resource's content in a state-of-the-world response.
func wholeHead(i *item) []byte { return appendAny(nil, responseResources, i.packed) }

// appendAny appends an Any field up to, but not including, the bytes of its value.
func appendAny(head []byte, field protowire.Number, packed *anypb.Any) []byte {
	head = protowire.AppendTag(head, field, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(sizeAny(packed)))
	head = protowire.AppendTag(head, anyTypeURL, protowire.BytesType)
	head = protowire.AppendString(head, packed.GetTypeUrl())
	head = protowire.AppendTag(head, anyValue, protowire.BytesType)
	return protowire.AppendVarint(head, uint64(len(packed.GetValue())))
}

func sizeAny(packed *anypb.Any) int {
	return protowire.SizeTag(anyTypeURL) + protowire.SizeBytes(len(packed.GetTypeUrl())) +
		protowire.SizeTag(anyValue) + protowire.SizeBytes(len(packed.GetValue()))
}
