package control

import (
	"context"
	"fmt"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"

	"spillway.dev/relay/internal/envoy"
	"spillway.dev/relay/internal/serve"
	"spillway.dev/relay/internal/table"
)

// service is one source service: what its Envoys have, and what they have accepted and refused.
type service struct {
	name    string
	served  serve.Bundle
	target  serve.Bundle
	good    serve.Bundle      // by type: the newest set that an Envoy of the service accepted
	refused map[string]string // by type: the version that an Envoy of the service refused
	adapted []string          // what table.Build last adapted
}

func newService(name string) *service {
	return &service{name: name, good: serve.Bundle{}, refused: map[string]string{}}
}

// build makes the service's bundle from its table and the backends that all services share.
func build(t table.Table, backends, before serve.Bundle) (serve.Bundle, error) {
	inbound, err := envoy.InboundRoutes(t)
	if err != nil {
		return nil, fmt.Errorf("inbound routes of %s: %w", t.Service, err)
	}
	outbound, err := envoy.OutboundRoutes(t)
	if err != nil {
		return nil, fmt.Errorf("outbound routes of %s: %w", t.Service, err)
	}
	routes, err := serve.NewSet(t.Version, []types.Resource{inbound, outbound}, before[serve.RouteType])
	if err != nil {
		return nil, err
	}
	return backends.With(serve.RouteType, routes), nil
}

// buildBackends makes the clusters and endpoints, which are the same for every source service.
func buildBackends(network *table.Network, version uint64, before serve.Bundle) (serve.Bundle, error) {
	clusters, assignments := envoy.Backends(network)
	clusterSet, err := serve.NewSet(version, clusters, before[serve.ClusterType])
	if err != nil {
		return nil, err
	}
	endpointSet, err := serve.NewSet(version, assignments, before[serve.EndpointType])
	if err != nil {
		return nil, err
	}
	return serve.Bundle{serve.ClusterType: clusterSet, serve.EndpointType: endpointSet}, nil
}

// withoutRefused replaces the sets of the bundle that an Envoy refused by the last that one
// accepted. When that does not fit together, everything goes back to the last accepted; when there
// is nothing to go back to, the bundle stays: nobody is sent the same refused version twice.
func (s *service) withoutRefused(bundle serve.Bundle) serve.Bundle {
	out, reverted := bundle, false
	for typeURL, version := range s.refused {
		good, ok := s.good[typeURL]
		if ok && bundle[typeURL].Version == version {
			out, reverted = out.With(typeURL, good), true
		}
	}
	if !reverted || out.Consistent() == nil {
		return out
	}
	for typeURL, good := range s.good {
		out = out.With(typeURL, good)
	}
	if out.Consistent() == nil {
		return out
	}
	return bundle
}

// advance serves the next step towards the target; `more` is true when another one is needed later.
func (s *service) advance(ctx context.Context, cache *serve.Cache) (more bool, err error) {
	step, last, err := serve.NextStep(s.served, s.target)
	if err != nil {
		return false, err
	}
	if s.served != nil && step.Same(s.served) {
		return !last, nil
	}
	if err := cache.Put(ctx, s.name, s.served, step); err != nil {
		return false, err
	}
	s.served = step
	return !last, nil
}

// answered notes an Envoy's answer; true when it changes what shall be served.
func (s *service) answered(a serve.Answer) bool {
	if a.Refused {
		changed := s.refused[a.TypeURL] != a.Version
		s.refused[a.TypeURL] = a.Version
		return changed
	}
	if set, ok := s.served[a.TypeURL]; ok && set.Version == a.Version && s.refused[a.TypeURL] != a.Version {
		s.good[a.TypeURL] = set
	}
	return false
}
