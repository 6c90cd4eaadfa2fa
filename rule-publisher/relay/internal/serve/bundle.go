// Package serve is the xDS server: one bundle of resources per service, shared by all its Envoys.
package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
)

// Type URLs in the order in which they must reach an Envoy.
const (
	ClusterType  = resource.ClusterType
	EndpointType = resource.EndpointType
	RouteType    = resource.RouteType
)

var typeOrder = []string{ClusterType, EndpointType, RouteType}

// Set is all resources of one type with the version that names exactly this content:
// "<ruleset version>.<content hash>".
type Set struct {
	Version string
	items   map[string]types.Resource
}

// Bundle is what one service's Envoys are served.
type Bundle map[string]Set // by type URL

// NewSet names the resources' content. The version stays that of `before` when nothing changed, so
// that an unchanged type is sent to nobody, whatever the ruleset version.
func NewSet[R types.Resource](ruleset uint64, resources []R, before Set) (Set, error) {
	items := make(map[string]types.Resource, len(resources))
	for _, r := range resources {
		name := cache.GetResourceName(r)
		if _, twice := items[name]; twice || name == "" {
			return Set{}, fmt.Errorf("resource name %q: must be non-empty and unique", name)
		}
		items[name] = r
	}
	return stamp(ruleset, items, before)
}

func stamp(ruleset uint64, items map[string]types.Resource, before Set) (Set, error) {
	hash := sha256.New()
	for _, name := range sortedNames(items) {
		encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(items[name])
		if err != nil {
			return Set{}, fmt.Errorf("resource %q: %w", name, err)
		}
		fmt.Fprintf(hash, "%d %s %d ", len(name), name, len(encoded))
		hash.Write(encoded)
	}
	content := hex.EncodeToString(hash.Sum(nil)[:8])
	if _, had, _ := strings.Cut(before.Version, "."); had == content {
		return before, nil
	}
	return Set{Version: strconv.FormatUint(ruleset, 10) + "." + content, items: items}, nil
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

// Get a resource by name; nil when it is not there.
func (s Set) Get(name string) types.Resource { return s.items[name] }

func sortedNames(items map[string]types.Resource) []string {
	names := make([]string, 0, len(items))
	for name := range items {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// With is the bundle with one type's set replaced.
func (b Bundle) With(typeURL string, set Set) Bundle {
	out := Bundle{}
	for t, s := range b {
		out[t] = s
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

func (b Bundle) snapshot() *cache.Snapshot {
	snapshot := &cache.Snapshot{}
	for t, set := range b {
		items := make(map[string]types.ResourceWithTTL, len(set.items))
		for name, r := range set.items {
			items[name] = types.ResourceWithTTL{Resource: r}
		}
		snapshot.Resources[cache.GetResponseType(t)] = cache.Resources{Version: set.Version, Items: items}
	}
	return snapshot
}
