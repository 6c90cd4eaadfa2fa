package control

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/serve/resources"
)

// forgetAfter is how long a service without a connected Envoy is kept. It is longer than Envoys
// take to reconnect, so that the refusals and last good routes of their service are still known
// then.
const forgetAfter = 5 * time.Minute

func (l *Loop) connected(name, envoy string) {
	now, before := time.Now(), len(l.services)+len(l.groups.of)
	s := l.services[name]
	if s == nil {
		s = newService(name)
		l.services[name] = s
		l.retarget(s, now)
	}
	if open := l.groups.open; open != nil && !l.groups.closing && open.Elects(envoy) && l.groups.of[name] == nil {
		l.retarget(l.split(s), now)
	}
	group := l.member(name, envoy)
	if group.envoys[envoy] == nil {
		group.envoys[envoy] = &proxy{}
	}
	group.envoys[envoy].streams++
	if len(l.services)+len(l.groups.of) > before {
		l.advance(now)
		l.publishStatus(now)
	}
}

func (l *Loop) disconnected(name, envoy string) {
	s := l.member(name, envoy)
	if s == nil || s.envoys[envoy] == nil {
		return
	}
	if s.envoys[envoy].streams--; s.envoys[envoy].streams == 0 {
		delete(s.envoys, envoy)
		s.left = time.Now()
	}
}

// forget removes the services that have had no connected Envoy for long.
func (l *Loop) forget(now time.Time) {
	for name, s := range l.services {
		s.tidy(now)
		if len(s.envoys) == 0 && l.groups.of[name] == nil && now.Sub(s.left) >= l.forgetAfter {
			delete(l.services, name)
			l.ports.Cache.Drop(name)
		}
	}
	l.publishStatus(now)
}

// confirm reports that the ruleset version is in force at those Envoys of the service that hold the
// wanted routes. An Envoy whose routes did not change is sent nothing, so the relay reports in its
// place: its earlier answer holds for this version too.
func (l *Loop) confirm(s *service) {
	wanted := s.wanted[resources.RouteType].Version
	if s.served[resources.RouteType].Version != wanted {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.envoys)) {
		p := s.envoys[name]
		if p.holds != wanted || p.inForce == l.serving {
			continue
		}
		p.inForce = l.serving
		if since := resources.RulesetVersion(wanted); since != l.serving && l.serving != 0 {
			l.ports.Acknowledge(&spillwayv1.Acknowledgement{
				Cluster: l.cluster, Service: s.name, Envoy: name, RulesetVersion: l.serving, TypeUrl: resources.RouteType,
				Outcome: spillwayv1.Outcome_OUTCOME_ACK, At: timestamppb.Now(),
				Detail: fmt.Sprintf("unchanged since version %d, which this Envoy accepted", since),
			})
		}
	}
}

// InForce returns, for each service with connected Envoys, the lowest ruleset version in force at
// one of them. 0 means local-first, or an Envoy that has not accepted any routes yet. The map is
// nil when the loop has ended.
func (l *Loop) InForce() map[string]uint64 {
	answer := make(chan map[string]uint64, 1)
	l.post(func() { answer <- l.inForce() })
	select {
	case out := <-answer:
		return out
	case <-l.done:
		return nil
	}
}

func (l *Loop) inForce() map[string]uint64 {
	out := map[string]uint64{}
	for s := range l.every() {
		for _, p := range s.envoys {
			if lowest, ok := out[s.name]; !ok || p.inForce < lowest {
				out[s.name] = p.inForce
			}
		}
	}
	return out
}
