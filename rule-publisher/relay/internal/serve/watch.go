package serve

import (
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// wholeWatch is a state-of-the-world stream's: it is told everything that it subscribes to whenever
// the set's version is not the one it has.
type wholeWatch struct {
	request *cache.Request
	sub     cache.Subscription
	out     chan cache.Response
}

func (w *wholeWatch) typeURL() string { return w.request.GetTypeUrl() }

func (w *wholeWatch) answer(set Set) bool {
	wanted := set.wanted(w.sub)
	had := w.sub.ReturnedResources()
	missing := func(name string) bool { _, ok := had[name]; return !ok }
	if w.request.GetVersionInfo() == set.Version && !slices.ContainsFunc(wanted, missing) {
		return false
	}
	response := &discovery.DiscoveryResponse{VersionInfo: set.Version, TypeUrl: w.typeURL(),
		Resources: make([]*anypb.Any, 0, len(wanted))}
	returned := make(map[string]string, len(wanted))
	for _, name := range wanted {
		response.Resources = append(response.Resources, set.items[name].GetResource())
		returned[name] = set.Version
	}
	return offer[cache.Response](w.out, &cache.PassthroughResponse{Request: w.request, DiscoveryResponse: response, ReturnedResources: returned})
}

// deltaWatch is told of resources whose content differs from what it was told last, and of removals.
type deltaWatch struct {
	request *cache.DeltaRequest
	sub     cache.Subscription
	out     chan cache.DeltaResponse
}

func (w *deltaWatch) typeURL() string { return w.request.GetTypeUrl() }

func (w *deltaWatch) answer(set Set) bool {
	wanted, had := set.wanted(w.sub), w.sub.ReturnedResources()
	response := &discovery.DeltaDiscoveryResponse{SystemVersionInfo: set.Version, TypeUrl: w.typeURL()}
	returned := make(map[string]string, len(wanted))
	for _, name := range wanted {
		r := set.items[name].Resource
		if version, ok := had[name]; !ok || version != r.GetVersion() {
			response.Resources = append(response.Resources, r)
		}
		returned[name] = r.GetVersion()
	}
	for name := range had {
		if _, still := returned[name]; !still && w.follows(name) {
			response.RemovedResources = append(response.RemovedResources, name)
		}
	}
	slices.Sort(response.RemovedResources)
	// The first wildcard request is answered also with nothing: Envoy waits for it at start. So is one
	// that says what the Envoy holds from before: what it answers tells a relay that has restarted what
	// is in force there.
	first := w.request.GetResponseNonce() == "" && (w.sub.IsWildcard() || len(w.request.GetInitialResourceVersions()) > 0)
	if len(response.Resources) == 0 && len(response.RemovedResources) == 0 && !first {
		return false
	}
	return offer[cache.DeltaResponse](w.out, &cache.DeltaPassthroughResponse{DeltaRequest: w.request, DeltaDiscoveryResponse: response, NextVersionMap: returned})
}

// offer never waits: a stream's channel has room for every type there is, and one that asks for more
// must not hold up the others.
func offer[R any](out chan R, response R) bool {
	select {
	case out <- response:
		return true
	default:
		return false
	}
}

func (w *deltaWatch) follows(name string) bool {
	_, named := w.sub.SubscribedResources()[name]
	return named || w.sub.IsWildcard()
}

// wanted are the names that the subscription asks for and the set has, in order.
func (s Set) wanted(sub cache.Subscription) []string {
	if sub.IsWildcard() {
		return s.Names()
	}
	out := make([]string, 0, len(sub.SubscribedResources()))
	for name := range sub.SubscribedResources() {
		if _, ok := s.items[name]; ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
