package control

import (
	"time"

	"spillway.dev/relay/internal/envoy"
	"spillway.dev/relay/internal/serve"
)

// settle is how long Envoys get to take in new clusters before routes name them, with the first check of their
// endpoints, and to leave old ones before they go. An Envoy that needs longer answers 503 on that route meanwhile.
const settle = envoy.FirstCheck + 500*time.Millisecond

// pace is when a service's next changes may go out.
type pace struct {
	routes   time.Time // not before: clusters that they may name are new
	clusters time.Time // not before, where routes do not wait for them: routes have just left some
}

// bridge is a version on the way to another. It holds all that the other does.
type bridge struct{ version, leadsTo string }

// advance serves the next step towards the target. It returns when the one after that is due; zero
// when the target is reached.
func (s *service) advance(cache *serve.Cache, now time.Time) (due time.Time, err error) {
	if s.served == nil {
		return time.Time{}, s.put(cache, s.target)
	}
	step, last := serve.NextStep(s.served, s.target)
	routes := step[serve.RouteType].Version != s.served[serve.RouteType].Version
	clusters := step[serve.ClusterType].Version != s.served[serve.ClusterType].Version
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

func (s *service) put(cache *serve.Cache, bundle serve.Bundle) error {
	if err := cache.Put(s.name, bundle); err != nil {
		return err
	}
	s.served = bundle
	return nil
}

// putMeanwhile serves what of the target does not wait for the routes' time: endpoints change at once.
func (s *service) putMeanwhile(cache *serve.Cache, now time.Time) error {
	step := s.target.With(serve.RouteType, s.served[serve.RouteType])
	if now.Before(s.pace.clusters) || step.Same(s.served) || step.Consistent() != nil {
		return nil
	}
	return s.put(cache, step)
}

// bridged notes the versions of the last step that are neither what was before nor what is wanted. They
// stay when the target is reached: answers may come late.
func (s *service) bridged(before serve.Bundle) {
	for _, t := range types {
		if v := s.served[t].Version; v != before[t].Version && v != s.target[t].Version {
			s.bridges[t] = bridge{v, s.target[t].Version}
		}
	}
}
