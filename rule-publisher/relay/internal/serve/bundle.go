// Package serve is the xDS server: one bundle of resources per service, shared by all its Envoys.
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

// Type URLs in the order in which they must reach an Envoy.
const (
	ClusterType  = typePrefix + "envoy.config.cluster.v3.Cluster"
	EndpointType = typePrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	RouteType    = typePrefix + "envoy.config.route.v3.RouteConfiguration"
	typePrefix   = "type.googleapis.com/"
)

var typeOrder = []string{ClusterType, EndpointType, RouteType}

// item is one resource as it goes out: encoded once, shared by everything that serves it, and never
// changed. Its version is the hash of its content.
type item struct {
	name, version string
	packed        *anypb.Any
	targets       []target // clusters that it routes to
	delta, whole  []byte   // what goes before the content in a response of either variant
}

// Set is all resources of one type with the version that names exactly this content:
// "<ruleset version>.<content hash>".
type Set struct {
	Version string
	items   []*item  // in order of name
	names   []string // of the items
}

// Bundle is what one service's Envoys are served.
type Bundle map[string]Set // by type URL

// NewSet names the resources' content. The version stays that of `before` when nothing changed, so
// that an unchanged type is sent to nobody, whatever the ruleset version.
func NewSet[R proto.Message](ruleset uint64, resources []R, before Set) (Set, error) {
	items := make([]*item, 0, len(resources))
	for _, r := range resources {
		made, err := newItem(r)
		if err != nil {
			return Set{}, err
		}
		if old := find(before.items, made.name); old != nil && old.version == made.version {
			made = old // equal content is kept once
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

// nameOf a resource is its `name`, but for endpoint assignments.
func nameOf(r proto.Message) string {
	switch named := r.(type) {
	case interface{ GetName() string }:
		return named.GetName()
	case interface{ GetClusterName() string }:
		return named.GetClusterName()
	}
	return ""
}

func short(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)[:8]) }

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

// Only the resources of these names; of those that are missing Consistent tells.
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

// union has the resources of both, those of `over` where both have one.
func union(under, over []*item) []*item {
	all := map[string]*item{}
	for _, i := range slices.Concat(under, over) {
		all[i.name] = i
	}
	return slices.SortedFunc(maps.Values(all), byName)
}

func byName(a, b *item) int { return cmp.Compare(a.name, b.name) }

// find the resource of the name among those in order; nil when there is none.
func find(items []*item, name string) *item {
	if i, ok := position(items, name); ok {
		return items[i]
	}
	return nil
}

func position(items []*item, name string) (int, bool) {
	return slices.BinarySearchFunc(items, name, func(i *item, name string) int { return cmp.Compare(i.name, name) })
}

// RulesetVersion of an xDS version; 0 when it is none of ours.
func RulesetVersion(version string) uint64 {
	text, _, _ := strings.Cut(version, ".")
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// Packed are the resources as they go out, in order of name.
func (s Set) Packed() (out []*anypb.Any) {
	for _, i := range s.items {
		out = append(out, i.packed)
	}
	return out
}

// With is the bundle with one type's set replaced.
func (b Bundle) With(typeURL string, set Set) Bundle {
	out := maps.Clone(b)
	if out == nil {
		out = Bundle{}
	}
	out[typeURL] = set
	return out
}

// Same tells whether both bundles have the same content.
func (b Bundle) Same(other Bundle) bool {
	for _, t := range typeOrder {
		if b[t].Version != other[t].Version {
			return false
		}
	}
	return true
}
