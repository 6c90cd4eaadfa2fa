// Package serve is the xDS server: one bundle of resources per service, shared by all its Envoys.
package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strconv"
	"strings"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Type URLs in the order in which they must reach an Envoy.
const (
	ClusterType  = resource.ClusterType
	EndpointType = resource.EndpointType
	RouteType    = resource.RouteType
)

var typeOrder = []string{ClusterType, EndpointType, RouteType}

// item is one resource as it goes out: encoded once, shared by everything that serves it, and never
// changed. Its Version is the hash of its content.
type item struct {
	*discovery.Resource
	targets []target // clusters that it routes to
}

// Set is all resources of one type with the version that names exactly this content:
// "<ruleset version>.<content hash>".
type Set struct {
	Version string
	items   map[string]item
}

// Bundle is what one service's Envoys are served.
type Bundle map[string]Set // by type URL

// NewSet names the resources' content. The version stays that of `before` when nothing changed, so
// that an unchanged type is sent to nobody, whatever the ruleset version.
func NewSet[R types.Resource](ruleset uint64, resources []R, before Set) (Set, error) {
	items := make(map[string]item, len(resources))
	for _, r := range resources {
		made, err := newItem(r)
		if err != nil {
			return Set{}, err
		}
		name := made.GetName()
		if _, twice := items[name]; twice || name == "" {
			return Set{}, fmt.Errorf("resource name %q: must be non-empty and unique", name)
		}
		if old := before.items[name]; old.GetVersion() == made.GetVersion() {
			made = old // equal content is kept once
		}
		items[name] = made
	}
	return stamp(ruleset, items, before), nil
}

func newItem(r types.Resource) (item, error) {
	name := cache.GetResourceName(r)
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return item{}, fmt.Errorf("resource %q: %w", name, err)
	}
	hash := sha256.New()
	hash.Write(encoded)
	typeURL := resource.APITypePrefix + string(r.ProtoReflect().Descriptor().FullName())
	made := item{Resource: &discovery.Resource{Name: name, Version: short(hash),
		Resource: &anypb.Any{TypeUrl: typeURL, Value: encoded}}}
	if config, ok := r.(*route.RouteConfiguration); ok {
		made.targets = targets(config)
	}
	return made, nil
}

func short(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)[:8]) }

func stamp(ruleset uint64, items map[string]item, before Set) Set {
	hash := sha256.New()
	for _, name := range sortedNames(items) {
		fmt.Fprintf(hash, "%d %s %s ", len(name), name, items[name].GetVersion())
	}
	content := short(hash)
	if _, had, _ := strings.Cut(before.Version, "."); had == content {
		return before
	}
	return Set{Version: strconv.FormatUint(ruleset, 10) + "." + content, items: items}
}

// Only the resources of these names; each must be there.
func (s Set) Only(ruleset uint64, names []string, before Set) Set {
	items := make(map[string]item, len(names))
	for _, name := range names {
		items[name] = s.items[name]
	}
	return stamp(ruleset, items, before)
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

// Names of the resources in order.
func (s Set) Names() []string { return sortedNames(s.items) }

// Packed are the resources as they go out, in order of name.
func (s Set) Packed() (out []*anypb.Any) {
	for _, name := range s.Names() {
		out = append(out, s.items[name].GetResource())
	}
	return out
}

func sortedNames(items map[string]item) []string {
	return slices.Sorted(maps.Keys(items))
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
