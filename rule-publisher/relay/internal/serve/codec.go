package serve

import (
	"unique"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
)

// Field numbers of envoy.service.discovery.v3 and google.protobuf.Any.
const (
	responseVersion   = 1 // these four of both response types
	responseResources = 2
	responseTypeURL   = 4
	responseNonce     = 5
	responseRemoved   = 6 // of delta
	resourceVersion   = 1
	resourceAny       = 2
	resourceName      = 3
	anyTypeURL        = 1
	anyValue          = 2
	deltaRequestNode  = 1
	requestNode       = 2
	nodeID            = 1 // of envoy.config.core.v3.Node
	nodeCluster       = 2
	nodeLocality      = 4
)

// writeBuffer is per connection that has something to send. Larger ones save calls of the kernel, but
// gRPC takes one even for a ping, and all Envoys are pinged at about the same time.
const writeBuffer = 4 << 10

// lean options keep what each connection costs small: most Envoys are silent most of the time, so
// buffers are small or shared, and what is sent is not copied.
func lean() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.ReadBufferSize(0), // TLS has a buffer of its own
		grpc.WriteBufferSize(writeBuffer),
		grpc.SharedWriteBuffer(true),
	}
}

// codec is gRPC's own for protobuf, but the encoded resources of a response go to the connection as
// they are, without a copy per Envoy: with many Envoys behind, copies are most of a relay's memory.
type codec struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

// response is one of either variant, with resources that are encoded already.
type response struct {
	delta                   bool
	version, typeURL, nonce string
	items                   []*item
	removed                 []string // delta only
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

// Unmarshal implements encoding.CodecV2. Of a request only what lasts is read: a real Envoy's node
// names hundreds of extensions that nobody here needs and that the library would keep for as long as
// the stream lasts, and all Envoys ask for the same resources.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch request := v.(type) {
	case *discovery.DeltaDiscoveryRequest:
		if err := c.CodecV2.Unmarshal(slim(data, deltaRequestNode), v); err != nil {
			return err
		}
		share(request.GetResourceNamesSubscribe())
		return nil
	case *discovery.DiscoveryRequest:
		if err := c.CodecV2.Unmarshal(slim(data, requestNode), v); err != nil {
			return err
		}
		share(request.GetResourceNames())
		return nil
	default:
		return c.CodecV2.Unmarshal(data, v)
	}
}

// slim is the request with a node that says only who and where it is. Bytes that are no protobuf are
// left as they are, for the decoder to refuse.
func slim(data mem.BufferSlice, node protowire.Number) mem.BufferSlice {
	whole := data.Materialize()
	out, ok := filter(whole, func(field protowire.Number, value []byte) ([]byte, bool) {
		if field != node {
			return value, true
		}
		kept, ok := filter(value, func(field protowire.Number, value []byte) ([]byte, bool) {
			return value, field == nodeID || field == nodeCluster || field == nodeLocality
		})
		if !ok {
			return value, true
		}
		return kept, true
	})
	if !ok {
		out = whole
	}
	return mem.BufferSlice{mem.SliceBuffer(out)}
}

// filter the length-delimited fields of a message; fields of other types stay.
func filter(message []byte, keep func(protowire.Number, []byte) ([]byte, bool)) (out []byte, ok bool) {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, false
		}
		size := protowire.ConsumeFieldValue(field, kind, message[n:])
		if size < 0 {
			return nil, false
		}
		if kind != protowire.BytesType {
			out = append(out, message[:n+size]...)
		} else if value, _ := protowire.ConsumeBytes(message[n:]); value != nil {
			if value, kept := keep(field, value); kept {
				out = protowire.AppendBytes(protowire.AppendTag(out, field, kind), value)
			}
		}
		message = message[n+size:]
	}
	return out, true
}

func share(names []string) {
	for i, name := range names {
		names[i] = unique.Make(name).Value()
	}
}

// deltaHead is what a delta response has before the resource's content.
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

// wholeHead is what a state-of-the-world response has before the resource's content.
func wholeHead(i *item) []byte { return appendAny(nil, responseResources, i.packed) }

// appendAny as a field, up to its value's bytes.
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
