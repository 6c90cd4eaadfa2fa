package resources

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Item is one resource in encoded form. It is encoded once, shared by everything that serves it,
// and never changed. Its version is the hash of its content.
type Item struct {
	Name, Version string
	packed        *anypb.Any
	targets       []target // clusters that it routes to
	delta, whole  []byte   // bytes before the content in a delta or a state-of-the-world response
}

func newItem(r proto.Message) (*Item, error) {
	name := nameOf(r)
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("resource %q: %w", name, err)
	}
	hash := sha256.New()
	hash.Write(encoded)
	made := &Item{Name: name, Version: short(hash),
		packed: &anypb.Any{TypeUrl: typePrefix + string(r.ProtoReflect().Descriptor().FullName()), Value: encoded}}
	made.delta, made.whole = deltaHead(made), wholeHead(made)
	if config, ok := r.(*route.RouteConfiguration); ok {
		made.targets = targets(config)
	}
	return made, nil
}

// nameOf returns a resource's `name` field, or `cluster_name` for endpoint assignments.
func nameOf(r proto.Message) string {
	switch named := r.(type) {
	case interface{ GetName() string }:
		return named.GetName()
	case interface{ GetClusterName() string }:
		return named.GetClusterName()
	}
	return ""
}

// short returns the first 16 hex digits of the hash.
func short(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)[:8]) }

// Items are resources of one type, sorted by name.
type Items []*Item

// Sort sorts the resources by name, in place.
func (i Items) Sort() {
	slices.SortFunc(i, func(a, b *Item) int { return cmp.Compare(a.Name, b.Name) })
}

// Union returns the resources of both lists. Where both have a name, the resource of `over` is
// used.
func (i Items) Union(over Items) Items {
	all := map[string]*Item{}
	for _, item := range slices.Concat(i, over) {
		all[item.Name] = item
	}
	out := Items(slices.Collect(maps.Values(all)))
	out.Sort()
	return out
}

// Find returns the resource with the name, or nil when there is none.
func (i Items) Find(name string) *Item {
	if at, ok := i.Index(name); ok {
		return i[at]
	}
	return nil
}

// Index returns the position of the resource with the name.
func (i Items) Index(name string) (at int, ok bool) {
	return slices.BinarySearchFunc(i, name, func(item *Item, name string) int { return cmp.Compare(item.Name, name) })
}

// Names returns the names of the resources.
func (i Items) Names() (out []string) {
	for _, item := range i {
		out = append(out, item.Name)
	}
	return out
}

// Named returns the resources whose names are in the sorted names.
func (i Items) Named(names []string) (out Items) {
	for _, item := range i {
		if _, ok := slices.BinarySearch(names, item.Name); ok {
			out = append(out, item)
		}
	}
	return out
}
