package resources

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
)

// Field numbers of a resource in envoy.service.discovery.v3 and in google.protobuf.Any.
const (
	responseResources = 2 // in both response types
	resourceVersion   = 1
	resourceAny       = 2
	resourceName      = 3
	anyTypeURL        = 1
	anyValue          = 2
)

// Encoded returns the bytes of the resource in a delta or a state-of-the-world response. All
// responses share them, so the caller must not change them.
func (i *Item) Encoded(delta bool) (head, content []byte) {
	if delta {
		return i.delta, i.packed.GetValue()
	}
	return i.whole, i.packed.GetValue()
}

// deltaHead returns the bytes that precede the resource's content in a delta response.
func deltaHead(i *Item) []byte {
	var fields []byte
	fields = protowire.AppendTag(fields, resourceVersion, protowire.BytesType)
	fields = protowire.AppendString(fields, i.Version)
	fields = protowire.AppendTag(fields, resourceName, protowire.BytesType)
	fields = protowire.AppendString(fields, i.Name)
	inner := protowire.SizeTag(resourceAny) + protowire.SizeBytes(sizeAny(i.packed))
	head := protowire.AppendTag(nil, responseResources, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(fields)+inner))
	return appendAny(append(head, fields...), resourceAny, i.packed)
}

// wholeHead returns the bytes that precede the resource's content in a state-of-the-world response.
func wholeHead(i *Item) []byte { return appendAny(nil, responseResources, i.packed) }

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
