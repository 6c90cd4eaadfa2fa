// Package resources is what is served: encoded resources with versions of their content, the
// bundle of a service, and the steps from one consistent bundle to the next. It has plain values
// only, and nothing of requests, streams or locks.
package resources

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

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

// Types has the type URLs in that order.
var Types = []string{ClusterType, EndpointType, RouteType}

// Set is all resources of one type. Its version, "<ruleset version>.<content hash>", identifies
// exactly this content.
type Set struct {
	Version string
	items   Items
	names   []string // of the items
}

// Bundle is what the Envoys of one service are served.
type Bundle map[string]Set // by type URL

// NewSet encodes the resources and computes the version of their content. When the content is that
// of `before`, the version stays too. An unchanged type is therefore sent to no Envoy, whatever the
// ruleset version. Empty and duplicate names are errors.
func NewSet[R proto.Message](ruleset uint64, resources []R, before Set) (Set, error) {
	items := make(Items, 0, len(resources))
	for _, r := range resources {
		made, err := newItem(r)
		if err != nil {
			return Set{}, err
		}
		if old := before.items.Find(made.Name); old != nil && old.Version == made.Version {
			made = old // share the memory of equal content
		}
		items = append(items, made)
	}
	items.Sort()
	for i, made := range items {
		if made.Name == "" || i > 0 && items[i-1].Name == made.Name {
			return Set{}, fmt.Errorf("resource name %q: must be non-empty and unique", made.Name)
		}
	}
	return stamp(ruleset, items, before), nil
}

// stamp returns the set of the items, or `before` when it has the same content.
func stamp(ruleset uint64, items Items, before Set) Set {
	hash := sha256.New()
	for _, i := range items {
		fmt.Fprintf(hash, "%d %s %s ", len(i.Name), i.Name, i.Version)
	}
	content := short(hash)
	if _, had, _ := strings.Cut(before.Version, "."); had == content {
		return before
	}
	return Set{Version: strconv.FormatUint(ruleset, 10) + "." + content, items: items, names: items.Names()}
}

// Only returns the set of the resources with these names. It skips missing ones, which Consistent
// reports.
func (s Set) Only(ruleset uint64, names []string, before Set) Set {
	items := make(Items, 0, len(names))
	for _, name := range names {
		if found := s.items.Find(name); found != nil {
			items = append(items, found)
		}
	}
	items.Sort()
	return stamp(ruleset, slices.Compact(items), before)
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

// Items returns the resources. The caller must not change the list.
func (s Set) Items() Items { return s.items }

// Names returns the names of the resources, sorted. The caller must not change the list.
func (s Set) Names() []string { return s.names }

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
	for _, t := range Types {
		if b[t].Version != other[t].Version {
			return false
		}
	}
	return true
}
