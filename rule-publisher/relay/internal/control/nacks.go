package control

import (
	"slices"
	"time"

	"spillway.dev/relay/internal/serve"
	"spillway.dev/relay/internal/serve/resources"
)

const (
	// acceptedKept sets of a type: the newest that an Envoy accepted, and the one that a service goes back
	// to when another Envoy refuses the newest.
	acceptedKept = 2
	// refusedKept versions of a type: an Envoy that refuses everything is to fill nothing.
	refusedKept = 8
	// away is how long an Envoy that left is waited for. It may come back and refuse what all
	// others accept.
	away = time.Minute
)

// types lists the resource types in the order in which they reach an Envoy.
var types = []string{resources.ClusterType, resources.EndpointType, resources.RouteType}

// answered records an Envoy's answer. It returns true when the answer changes what shall be served.
func (s *service) answered(a serve.Answer, now time.Time) bool {
	if a.Refused {
		return s.refuse(a.TypeURL, a.Version)
	}
	if p := s.envoys[a.Envoy]; p != nil && a.TypeURL == resources.RouteType {
		p.holds = a.Version
	}
	if set, ok := s.served[a.TypeURL]; ok && set.Version == a.Version && !s.isRefused(a.TypeURL, a.Version) {
		others := slices.DeleteFunc(s.accepted[a.TypeURL], func(other resources.Set) bool { return other.Version == a.Version })
		s.accepted[a.TypeURL] = append([]resources.Set{set}, others[:min(len(others), acceptedKept-1)]...)
	}
	s.tidy(now)
	return false
}

// refuse records a refused version, whoever accepted it before. An Envoy that refuses an
// intermediate step would also refuse what the step leads to, so that version counts as refused too
// and its routes do not follow.
func (s *service) refuse(typeURL, version string) (changed bool) {
	changed = s.note(typeURL, version)
	if b, ok := s.bridges[typeURL]; ok && b.version == version {
		changed = s.note(typeURL, b.leadsTo) || changed
	}
	return changed
}

// note adds the version to those refused and removes it from those accepted. It returns false when
// the version was refused already.
func (s *service) note(typeURL, version string) (isNew bool) {
	if s.isRefused(typeURL, version) {
		return false
	}
	known := append(s.refused[typeURL], version)
	s.refused[typeURL] = slices.Clone(known[max(0, len(known)-refusedKept):])
	s.accepted[typeURL] = slices.DeleteFunc(s.accepted[typeURL], func(set resources.Set) bool { return set.Version == version })
	return true
}

func (s *service) isRefused(typeURL, version string) bool {
	return slices.Contains(s.refused[typeURL], version)
}

// tidy drops the older accepted routes as soon as every Envoy has accepted the newest, because
// routes are most of what is kept for a service.
func (s *service) tidy(now time.Time) {
	routes := s.accepted[resources.RouteType]
	if len(routes) < acceptedKept || now.Sub(s.left) < away {
		return
	}
	for _, p := range s.envoys {
		if p.holds != routes[0].Version {
			return
		}
	}
	s.accepted[resources.RouteType] = slices.Clone(routes[:1])
}

// withoutRefused returns the bundle with each refused set replaced by the newest one that some
// Envoy accepted and none refused. It goes as far back in each type as is needed for a consistent
// bundle. Where there is nothing to go back to, what is served stays: first the routes, then the
// clusters too.
func (s *service) withoutRefused(bundle resources.Bundle) resources.Bundle {
	if !slices.ContainsFunc(types, func(t string) bool { return s.isRefused(t, bundle[t].Version) }) {
		return bundle
	}
	routes, clusters, endpoints := s.options(resources.RouteType, bundle), s.options(resources.ClusterType, bundle), s.options(resources.EndpointType, bundle)
	if out := fitting(routes, clusters, endpoints); out != nil {
		return out
	}
	now := func(typeURL string) resources.Set { return s.served[typeURL] }
	endpoints = append(endpoints, now(resources.EndpointType))
	if out := fitting(append(routes, now(resources.RouteType)), clusters, endpoints); out != nil {
		return out
	}
	return fitting([]resources.Set{now(resources.RouteType)}, []resources.Set{now(resources.ClusterType)}, endpoints)
}

// options returns the sets of one type that no Envoy refused, the best first.
func (s *service) options(typeURL string, bundle resources.Bundle) (out []resources.Set) {
	if !s.isRefused(typeURL, bundle[typeURL].Version) {
		out = append(out, bundle[typeURL])
	}
	return append(out, s.accepted[typeURL]...)
}

// fitting returns the first bundle that is consistent, or nil when none is.
func fitting(routes, clusters, endpoints []resources.Set) resources.Bundle {
	for _, r := range routes {
		for _, c := range clusters {
			for _, e := range endpoints {
				out := resources.Bundle{resources.RouteType: r, resources.ClusterType: c, resources.EndpointType: e}
				if out.Consistent() == nil {
					return out
				}
			}
		}
	}
	return nil
}
