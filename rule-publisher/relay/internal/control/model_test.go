package control

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"spillway.dev/relay/internal/serve/resources"
)

// answers is how the Envoys of one service have answered since the service became known.
type answers struct {
	of       *service
	refused  map[string]bool            // versions of any type: they share no names
	accepted map[string][]resources.Set // by type, newest first: all that were accepted, also those refused later
}

// of returns the answers of the service. A service that was forgotten and comes back is a new one.
func (m *model) of(name string, s *service) *answers {
	if m.answers[name] == nil || m.answers[name].of != s {
		m.answers[name] = &answers{of: s, refused: map[string]bool{}, accepted: map[string][]resources.Set{}}
	}
	return m.answers[name]
}

// note records an answer to a set that is served.
func (h *answers) note(typeURL string, set resources.Set, refusal bool) {
	key := func(version string) string { return typeURL + version }
	if !refusal {
		h.accepted[typeURL] = append([]resources.Set{set}, h.accepted[typeURL]...)
		return
	}
	h.refused[key(set.Version)] = true
	if b := h.of.bridges[typeURL]; b.version == set.Version {
		h.refused[key(b.leadsTo)] = true
	}
}

func (h *answers) isRefused(bundle resources.Bundle) bool {
	return slices.ContainsFunc(types, func(t string) bool { return h.refused[t+bundle[t].Version] })
}

// check compares what is served with the answers, once everything has settled.
func (h *answers) check(wanted, served resources.Bundle) error {
	if !h.isRefused(wanted) && !served.Same(wanted) {
		return fmt.Errorf("%v is served, not the newest %v, which nobody refused", served, wanted)
	}
	routes := served[resources.RouteType].Version
	known := routes == wanted[resources.RouteType].Version ||
		slices.ContainsFunc(h.accepted[resources.RouteType], func(set resources.Set) bool { return set.Version == routes })
	if better := h.fitting(wanted); better != nil && (h.isRefused(served) || !known) {
		return fmt.Errorf("%v is served, which was refused or never accepted, and not %v", served, better)
	}
	return nil
}

// fitting returns a consistent bundle of the wanted and the newest accepted sets, without any that
// was refused.
func (h *answers) fitting(wanted resources.Bundle) resources.Bundle {
	options := func(t string) (out []resources.Set) {
		if !h.refused[t+wanted[t].Version] {
			out = append(out, wanted[t])
		}
		if len(h.accepted[t]) > 0 && !h.refused[t+h.accepted[t][0].Version] {
			out = append(out, h.accepted[t][0])
		}
		return out
	}
	for _, r := range options(resources.RouteType) {
		for _, c := range options(resources.ClusterType) {
			for _, e := range options(resources.EndpointType) {
				bundle := resources.Bundle{resources.RouteType: r, resources.ClusterType: c, resources.EndpointType: e}
				if bundle.Consistent() == nil {
					return bundle
				}
			}
		}
	}
	return nil
}

// watched is what one service's Envoys were sent, and when.
type watched struct {
	of    *service
	last  resources.Bundle
	since map[string]time.Time // clusters that were sent; zero: from the start
	named map[string]time.Time // clusters that routes named, and until when; zero: still
}

// watch checks each service after an event. What is served must be consistent, routes may name only
// clusters that were sent long enough ago, and clusters must stay long enough after the routes have
// left them.
func (m *model) watch(b *bed) error {
	for name, s := range b.services {
		if s.served == nil {
			continue
		}
		if err := s.served.Consistent(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		w := m.watched[name]
		if w == nil || w.of != s {
			w = &watched{of: s, since: map[string]time.Time{}, named: map[string]time.Time{}}
			m.watched[name] = w
		}
		if err := w.see(b.t, s.served); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (w *watched) see(t *testing.T, served resources.Bundle) error {
	first, now := w.last == nil, time.Now()
	if !first && served.Same(w.last) {
		return nil
	}
	w.last = served
	out, named := clustersOf(t, served)
	for name := range named {
		if since, ok := w.since[name]; !first && (!ok || now.Sub(since) < settle) {
			if until, before := w.named[name]; !before || !until.IsZero() {
				return fmt.Errorf("routes name %s, which is out for %s", name, now.Sub(since))
			}
		}
		w.named[name] = time.Time{}
	}
	for name, until := range w.named {
		if !named[name] && until.IsZero() {
			w.named[name] = now
		}
	}
	for name := range w.since {
		if until := w.named[name]; !out[name] && now.Sub(until) < settle {
			return fmt.Errorf("%s goes %s after the routes that named it", name, now.Sub(until))
		}
	}
	maps.DeleteFunc(w.since, func(name string, _ time.Time) bool { return !out[name] })
	for name := range out {
		if _, ok := w.since[name]; !ok && first {
			w.since[name] = time.Time{}
		} else if !ok {
			w.since[name] = now
		}
	}
	return nil
}

// clustersOf returns the clusters that a bundle has, and those that its routes name.
func clustersOf(t *testing.T, bundle resources.Bundle) (out, named map[string]bool) {
	out, named = map[string]bool{}, map[string]bool{}
	for _, packed := range bundle[resources.ClusterType].Packed() {
		config := &cluster.Cluster{}
		if err := packed.UnmarshalTo(config); err != nil {
			t.Fatal(err)
		}
		out[config.GetName()] = true
	}
	for _, w := range weighted(t, bundle[resources.RouteType]) {
		named[w.GetName()] = true
	}
	return out, named
}

// weighted yields the weighted clusters of all routes, each with its route.
func weighted(t *testing.T, routes resources.Set) iter.Seq2[*route.Route, *route.WeightedCluster_ClusterWeight] {
	return func(yield func(*route.Route, *route.WeightedCluster_ClusterWeight) bool) {
		for _, packed := range routes.Packed() {
			config := &route.RouteConfiguration{}
			if err := packed.UnmarshalTo(config); err != nil {
				t.Fatal(err)
			}
			for _, host := range config.GetVirtualHosts() {
				for _, r := range host.GetRoutes() {
					for _, w := range r.GetRoute().GetWeightedClusters().GetClusters() {
						if !yield(r, w) {
							return
						}
					}
				}
			}
		}
	}
}
