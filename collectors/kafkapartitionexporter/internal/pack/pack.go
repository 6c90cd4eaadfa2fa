// Package pack turns one encoded OTLP request into Kafka messages: one per partition, or more where
// one would exceed the limit. It works on the encoding, so spans are copied once and never decoded.
// Pure.
package pack

import (
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Limits defines the bounds of a message's encoded size in bytes, before compression.
type Limits struct {
	Target int // items that do not fit into this together are split over several messages
	Hard   int // one item alone may have up to this; a larger one is dropped
}

// Message is a whole OTLP request for one partition.
type Message struct {
	Partition int32
	Value     []byte
	Items     int // spans or data points
}

// Packed is the result of packing a request.
type Packed struct {
	Messages []Message // in order of their first item
	Splits   int       // messages beyond the first of a partition
	TooLarge int       // items that exceed Limits.Hard alone; no message contains them
}

// Signal holds the functions in which spans and metrics differ.
type Signal struct {
	// key returns the bytes that are hashed to choose an item's partition.
	key func(resource, item []byte) ([]byte, error)
	// count returns how many spans or data points an item carries.
	count func(item []byte) (int, error)
	// cut divides an item into parts of at most room.Target bytes each, tag included. A part that
	// cannot be divided further may have up to room.Hard bytes. `lost` counts what exceeds that.
	cut func(item field, room Limits) (parts []piece, lost int, err error)
}

// piece is an item, or a part of one, encoded as a field of its scope.
type piece struct {
	raw   []byte
	count int
}

// Request distributes an encoded request over the given number of partitions. An error means that
// it is not OTLP protobuf.
func (s Signal) Request(request []byte, partitions int, limits Limits) (Packed, error) {
	p := packer{limits: limits, open: make([]message, partitions), order: make(map[string]int)}
	resources, _, err := part(request, fieldResources)
	if err != nil {
		return Packed{}, fmt.Errorf("request: %w", err)
	}
	for _, resource := range resources {
		scopes, head, err := part(resource.content, fieldScopes)
		if err != nil {
			return Packed{}, fmt.Errorf("resource: %w", err)
		}
		for _, scope := range scopes {
			if err := s.scope(&p, head, scope.content); err != nil {
				return Packed{}, fmt.Errorf("scope: %w", err)
			}
		}
	}
	return p.finish(), nil
}

func (s Signal) scope(p *packer, resource, scope []byte) error {
	items, head, err := part(scope, fieldItems)
	if err != nil {
		return err
	}
	group := p.group(resource, head)
	for _, item := range items {
		key, err := s.key(resource, item.content)
		if err != nil {
			return err
		}
		pieces, lost, err := s.pieces(item, p.room(group))
		if err != nil {
			return err
		}
		p.packed.TooLarge += lost
		for _, piece := range pieces {
			p.add(Partition(key, len(p.open)), group, piece)
		}
	}
	return nil
}

func (s Signal) pieces(item field, room Limits) ([]piece, int, error) {
	if len(item.raw) > min(room.Target, room.Hard) {
		return s.cut(item, room)
	}
	count, err := s.count(item.content)
	return []piece{{item.raw, count}}, 0, err
}

// Partition returns the partition of a key. All collectors must agree, in every cluster and
// version, because the spans of one trace arrive through several of them.
func Partition(key []byte, partitions int) int {
	return int(xxhash.Sum64(key) % uint64(partitions))
}
