package control

import (
	"time"

	"spillway.dev/relay/internal/envoy"
	"spillway.dev/relay/internal/serve"
	"spillway.dev/relay/internal/serve/resources"
)

// settle is how long Envoys get to take in new clusters, with the first check of their endpoints,
// before routes name them. It is also how long they get to leave old clusters before these are
// removed. An Envoy that needs longer answers 503 on such a route in the meantime.
const settle = envoy.FirstCheck + 500*time.Millisecond

// pace is when a service's next changes may be served.
type pace struct {
	routes   time.Time // not before, because clusters that they may name are new
	clusters time.Time // not before, unless routes wait for them, because routes have just left some
}

// bridge is an intermediate version on the way to another. It contains everything that the other
// does.
type bridge struct{ version, leadsTo string }

// advance serves the next step towards the target. It returns when the following step is due, or
// zero when none is needed.
func (s *service) advance(cache *serve.Cache, now time.Time) (due time.Time, err error) {
	if s.served == nil {
		return time.Time{}, s.put(cache, s.target)
	}
	step, last := resources.NextStep(s.served, s.target)
	routes := step[resources.RouteType].Version != s.served[resources.RouteType].Version
	clusters := step[resources.ClusterType].Version != s.served[resources.ClusterType].Version
	switch {
	case step.Same(s.served):
		return time.Time{}, nil
	case routes && now.Before(s.pace.routes):
		return s.pace.routes, s.putMeanwhile(cache, now)
	case clusters && !routes && last && now.Before(s.pace.clusters):
		return s.pace.clusters, nil
	}
	before := s.served
	if err := s.put(cache, step); err != nil {
		return time.Time{}, err
	}
	s.bridged(before)
	if clusters {
		s.pace.routes = now.Add(settle)
	}
	if routes {
		s.pace.clusters = now.Add(settle)
	}
	if !last {
		due = now.Add(settle)
	}
	return due, nil
}

func (s *service) put(cache *serve.Cache, bundle resources.Bundle) error {
	put := cache.Put
	if s.elects != nil {
		put = cache.PutTrial
	}
	if err := put(s.name, bundle); err != nil {
		return err
	}
	s.served = bundle
	return nil
}

// putMeanwhile serves the part of the target that need not wait for the routes: endpoints change at
// once.
func (s *service) putMeanwhile(cache *serve.Cache, now time.Time) error {
	step := s.target.With(resources.RouteType, s.served[resources.RouteType])
	if now.Before(s.pace.clusters) || step.Same(s.served) || step.Consistent() != nil {
		return nil
	}
	return s.put(cache, step)
}

// bridged records those versions of the last step that belong neither to the previous bundle nor to
// the target. They are kept when the target is reached, because answers may come late.
func (s *service) bridged(before resources.Bundle) {
	for _, t := range types {
		if v := s.served[t].Version; v != before[t].Version && v != s.target[t].Version {
			s.bridges[t] = bridge{v, s.target[t].Version}
		}
	}
}
