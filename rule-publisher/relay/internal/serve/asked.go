package serve

import (
	"maps"
	"slices"
)

// hold what the Envoy says that it has from before.
func (s *subscription) hold(initial map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(initial)) {
		s.held = append(s.held, &item{name: name, version: initial[name]})
	}
}

// change what is asked for, in delta. As long as no name was said, everything is meant. Who asks for
// what it asks for already may have forgotten what it was told: the protocol has it sent again.
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
	held := slices.DeleteFunc(slices.Clone(s.held), func(i *item) bool { return without[i.name] })
	for name := range without {
		if names[name] && s.wildcard && name != everything {
			// It is still meant by the wildcard, and must be told of again.
			held = append(held, &item{name: name})
		}
		delete(names, name)
	}
	s.wildcard = (s.wildcard || names[everything]) && !without[everything]
	delete(names, everything)
	slices.SortFunc(held, byName)
	s.names, s.held = slices.Sorted(maps.Keys(names)), held
}

// forget that it was told of the names, which then are sent again.
func (s *subscription) forget(names []string) {
	if slices.Contains(names, everything) {
		names = namesOf(s.held)
	}
	held := s.held
	for _, name := range names {
		i, ok := position(held, name)
		if !ok {
			continue
		}
		if &held[0] == &s.held[0] {
			held = slices.Clone(held)
		}
		held[i], s.seen = &item{name: name}, ""
	}
	s.held = held
}

// replace what is asked for, in state-of-the-world. What was let go and is asked for again is sent again.
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
		s.held = named(s.held, names)
	}
}
