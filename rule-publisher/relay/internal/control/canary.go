package control

import (
	"maps"
	"slices"
	"time"

	"spillway.dev/relay/internal/table"
)

// dissolveIn is how long Envoys of a trial that has ended are led back step by step. After that
// they get at once what all others have.
const dissolveIn = time.Minute

// groups are the Envoys that take part in a trial. Every service with an elected Envoy has a second
// group, which is served separately. It begins with what the service is served, and ends when it is
// served the same again.
type groups struct {
	// open is the trial that elects the members; nil: there are no groups.
	open *table.Trial
	// closing is set while the groups follow their services again, until they are dissolved.
	closing bool
	closeBy time.Time
	of      map[string]*service // by name of the service
}

// regroup makes the groups agree with the newest ruleset. A trial that elects the same Envoys as
// the open one continues with its groups. Another one waits until these are dissolved.
func (l *Loop) regroup(now time.Time) {
	g := &l.groups
	on := l.trial.On(now) && !l.rules.Expired(now)
	switch {
	case on && (g.open == nil || g.open.Share == l.trial.Share):
		g.open, g.closing = l.trial, false
		for _, s := range l.services {
			if slices.ContainsFunc(slices.Collect(maps.Keys(s.envoys)), g.open.Elects) {
				l.split(s)
			}
		}
		for _, group := range g.of {
			l.retarget(group, now)
		}
	case g.open != nil && !g.closing:
		g.closing, g.closeBy = true, now.Add(dissolveIn)
	}
}

// split returns the group of the service's elected Envoys, and makes it if there is none.
func (l *Loop) split(s *service) *service {
	g := &l.groups
	if group := g.of[s.name]; group != nil {
		return group
	}
	group := s.fork(g.open.Elects)
	for name, p := range s.envoys {
		if g.open.Elects(name) {
			group.envoys[name] = p
			delete(s.envoys, name)
		}
	}
	g.of[s.name] = group
	l.ports.Cache.Split(s.name, s.served, g.open.Elects)
	return group
}

// member returns the service, or its group on trial, that the Envoy belongs to; nil when the
// service is unknown.
func (l *Loop) member(name, envoy string) *service {
	if group := l.groups.of[name]; group != nil && l.groups.open.Elects(envoy) {
		return group
	}
	return l.services[name]
}

// dissolved merges every group of a closing trial that is served what its service is served. It
// reports whether the last group has been merged.
func (l *Loop) dissolved(now time.Time) bool {
	g := &l.groups
	if !g.closing {
		return false
	}
	for name, group := range g.of {
		s := l.services[name]
		if !group.served.Same(s.served) && now.Before(g.closeBy) {
			continue
		}
		maps.Copy(s.envoys, group.envoys)
		s.left = latest(s.left, group.left)
		// The group may have been sent its clusters later than the others.
		s.pace = pace{latest(s.pace.routes, group.pace.routes), latest(s.pace.clusters, group.pace.clusters)}
		l.ports.Cache.Join(name)
		delete(g.of, name)
		l.confirm(s)
	}
	if len(g.of) > 0 {
		return false
	}
	g.open, g.closing = nil, false
	return true
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// fork returns a copy of the service for the Envoys that are elected, without Envoys. What Envoys
// of the service accepted and refused holds for it too.
func (s *service) fork(elects func(envoy string) bool) *service {
	group := *s
	group.elects, group.envoys = elects, map[string]*proxy{}
	group.called, group.bridges = maps.Clone(s.called), maps.Clone(s.bridges)
	group.accepted, group.refused = maps.Clone(s.accepted), maps.Clone(s.refused)
	for typeURL, sets := range group.accepted {
		group.accepted[typeURL] = slices.Clone(sets)
	}
	for typeURL, versions := range group.refused {
		group.refused[typeURL] = slices.Clone(versions)
	}
	return &group
}

// follow makes the group want, and get next, what the service does.
func (s *service) follow(of *service) {
	s.table, s.policy, s.network, s.wanted, s.target = of.table, of.policy, of.network, of.wanted, of.target
}
