// Package serve is the xDS server. It serves one bundle of resources per service, shared by all
// Envoys of the service.
package serve

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strconv"
	"strings"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Type URLs, in the order in which the types must reach an Envoy.
const (
	ClusterType  = typePrefix + "envoy.config.cluster.v3.Cluster"
	EndpointType = typePrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	RouteType    = typePrefix + "envoy.config.route.v3.RouteConfiguration"
	typePrefix   = "type.googleapis.com/"
)

var typeOrder = []string{ClusterType, EndpointType, RouteType}

// item is one resource in encoded form. It is encoded once, shared by everything that serves it,
// and never changed. Its version is the hash of its content.
type item struct {
	name, version string
	packed        *anypb.Any
	targets       []target // clusters that it routes to
	delta, whole  []byte   // bytes before the content in a delta or a state-of-the-world response
}

// Set is all resources of one type. Its version, "<ruleset version>.<content hash>", identifies
// exactly this content.
type Set struct {
	Version string
	items   []*item  // sorted by name
	names   []string // of the items
}

// Bundle is what the Envoys of one service are served.
type Bundle map[string]Set // by type URL

// NewSet encodes the resources and computes the version of their content. When the content is that
// of `before`, the version stays too. An unchanged type is therefore sent to no Envoy, whatever the
// ruleset version. Empty and duplicate names are errors.
func NewSet[R proto.Message](ruleset uint64, resources []R, before Set) (Set, error) {
	items := make([]*item, 0, len(resources))
	for _, r := range resources {
		made, err := newItem(r)
		if err != nil {
			return Set{}, err
		}
		if old := find(before.items, made.name); old != nil && old.version == made.version {
			made = old // share the memory of equal content
		}
		items = append(items, made)
	}
	slices.SortFunc(items, byName)
	for i, made := range items {
		if made.name == "" || i > 0 && items[i-1].name == made.name {
			return Set{}, fmt.Errorf("resource name %q: must be non-empty and unique", made.name)
		}
	}
	return stamp(ruleset, items, before), nil
}

func newItem(r proto.Message) (*item, error) {
	name := nameOf(r)
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("resource %q: %w", name, err)
	}
	hash := sha256.New()
	hash.Write(encoded)
	made := &item{name: name, version: short(hash),
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

// stamp returns the set of the items, or `before` when it has the same content.
func stamp(ruleset uint64, items []*item, before Set) Set {
	hash := sha256.New()
	for _, i := range items {
		fmt.Fprintf(hash, "%d %s %s ", len(i.name), i.name, i.version)
	}
	content := short(hash)
	if _, had, _ := strings.Cut(before.Version, "."); had == content {
		return before
	}
	return Set{Version: strconv.FormatUint(ruleset, 10) + "." + content, items: items, names: namesOf(items)}
}

// Only returns the set of the resources with these names. It skips missing ones, which Consistent
// reports.
func (s Set) Only(ruleset uint64, names []string, before Set) Set {
	items := make([]*item, 0, len(names))
	for _, name := range names {
		if found := find(s.items, name); found != nil {
			items = append(items, found)
		}
	}
	slices.SortFunc(items, byName)
	return stamp(ruleset, slices.Compact(items), before)
}

// union returns the resources of both lists. Where both have a name, the resource of `over` is
// used.
func union(under, over []*item) []*item {
	all := map[string]*item{}
	for _, i := range slices.Concat(under, over) {
		all[i.name] = i
	}
	return slices.SortedFunc(maps.Values(all), byName)
}

func byName(a, b *item) int { return cmp.Compare(a.name, b.name) }

// find returns the resource with the name from the sorted items, or nil when there is none.
func find(items []*item, name string) *item {
	if i, ok := position(items, name); ok {
		return items[i]
	}
	return nil
}

func position(items []*item, name string) (int, bool) {
	return slices.BinarySearchFunc(items, name, func(i *item, name string) int { return cmp.Compare(i.name, name) })
}

// RulesetVersion returns the ruleset version that is part of an xDS version, or 0 when the relay
// did not make it.
func RulesetVersion(version string) uint64 {
	text, _, _ := strings.Cut(version, ".")
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// Packed returns the resources as they are sent, sorted by name.
func (s Set) Packed() (out []*anypb.Any) {
	for _, i := range s.items {
		out = append(out, i.packed)
	}
	return out
}

// With returns a copy of the bundle with one type's set replaced.
func (b Bundle) With(typeURL string, set Set) Bundle {
	out := maps.Clone(b)
	if out == nil {
		out = Bundle{}
	}
	out[typeURL] = set
	return out
}

// Same reports whether both bundles have the same content.
func (b Bundle) Same(other Bundle) bool {
	for _, t := range typeOrder {
		if b[t].Version != other[t].Version {
			return false
		}
	}
	return true
}
