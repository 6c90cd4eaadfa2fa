package protocol

import (
	"maps"
	"slices"

	"spillway.dev/relay/internal/serve/resources"
)

// hold records the resources that the Envoy says it has from an earlier stream, by name and
// version.
func (s *subscription) hold(initial map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(initial)) {
		s.held = append(s.held, &resources.Item{Name: name, Version: initial[name]})
	}
}

// change applies the names that a delta request adds and drops. As long as the Envoy has never sent
// a name, it is subscribed to everything. A name that is added again is sent again, because the
// Envoy may have forgotten what it received; the protocol requires that.
func (s *subscription) change(added, dropped []string) {
	if s.unnamed && len(added) == 0 || len(added)+len(dropped) == 0 {
		return
	}
	s.unnamed, s.seen = false, ""
	s.forget(added)
	names := map[string]bool{}
	for _, name := range slices.Concat(s.names, added) {
		names[name] = true
	}
	without := map[string]bool{}
	for _, name := range dropped {
		without[name] = true
	}
	held := slices.DeleteFunc(slices.Clone(s.held), func(i *resources.Item) bool { return without[i.Name] })
	for name := range without {
		if names[name] && s.wildcard && name != everything {
			// The wildcard still covers the name, so the resource must be sent again.
			held = append(held, &resources.Item{Name: name})
		}
		delete(names, name)
	}
	s.wildcard = (s.wildcard || names[everything]) && !without[everything]
	delete(names, everything)
	held.Sort()
	s.names, s.held = slices.Sorted(maps.Keys(names)), held
}

// forget marks the named resources as not sent, so that they are sent again.
func (s *subscription) forget(names []string) {
	if slices.Contains(names, everything) {
		names = s.held.Names()
	}
	held := s.held
	for _, name := range names {
		i, ok := held.Index(name)
		if !ok {
			continue
		}
		if &held[0] == &s.held[0] {
			held = slices.Clone(held)
		}
		held[i], s.seen = &resources.Item{Name: name}, ""
	}
	s.held = held
}

// replace sets the names of a state-of-the-world subscription. A resource that was dropped and is
// asked for again is sent again.
func (s *subscription) replace(names []string) {
	if s.unnamed && len(names) == 0 {
		return
	}
	s.unnamed, s.wildcard = false, slices.Contains(names, everything)
	names = slices.DeleteFunc(names, func(name string) bool { return name == everything })
	slices.Sort(names)
	if names = slices.Compact(names); slices.Equal(names, s.names) {
		return
	}
	s.names = names
	if !s.wildcard {
		s.held = s.held.Named(names)
	}
}
