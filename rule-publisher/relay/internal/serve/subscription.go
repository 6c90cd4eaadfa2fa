package serve

import (
	"slices"
	"time"
)

// everything is the name that means all of a type.
const everything = "*"

// subscription is what one stream asks for of one type, and what it was told. There are three for
// each Envoy: slices that most Envoys of a service have alike are the set's own, and never changed.
type subscription struct {
	typeURL string
	names   []string // asked for by name, in order
	held    []*item  // what it was told last, in order of name
	version string   // state-of-the-world: of what it has
	seen    string   // version of the set that it has nothing more to hear of

	delta    bool
	begun    bool // a request was taken
	unnamed  bool // no name was ever said, which means everything
	wildcard bool // everything
	open     bool // it waits; false from a response to its answer
	owed     bool // it must be answered, be it with nothing
	leaving  bool // it holds clusters that are to go

	sent     sent // the newest response
	answered told // the newest answer, to tell each once
}

type sent struct {
	nonce, version string
	at             time.Time
}

type told struct {
	version, detail string
	refused         bool
}

func newSubscription(r request, delta bool) *subscription {
	return &subscription{typeURL: r.typeURL, delta: delta, unnamed: true, wildcard: len(r.names) == 0}
}

// take a request; `refused` when it refuses the newest response.
func (s *subscription) take(r request, refused bool) {
	switch {
	case s.delta:
		s.takeDelta(r)
	case !s.open && s.sent.nonce != "" && r.nonce != s.sent.nonce:
		// The newest response has no answer yet, and this is none.
	default:
		s.replace(r.names)
		s.version, s.seen, s.open = r.version, "", true
		if refused || r.version == s.sent.version {
			// A refused version counts as delivered: the same again would be refused again, for ever.
			s.version = s.sent.version
		}
	}
}

// takeDelta takes what a request changes, also when it comes before the answer to the newest response:
// that answer, and no other, lets the next response go.
func (s *subscription) takeDelta(r request) {
	s.change(r.names, r.dropped)
	if !s.begun {
		s.hold(r.initial)
	}
	// The first wildcard request is answered also with nothing: Envoy waits for it at start. So is one
	// that says what the Envoy holds from before: what it answers tells a relay that has restarted what
	// is in force there.
	s.owed = s.owed || !s.begun && (s.wildcard || len(r.initial) > 0) || slices.Contains(r.names, everything)
	s.open = s.open || s.sent.nonce == "" || r.nonce == s.sent.nonce
	s.begun = true
}

// due is the response that the set asks for; nil when there is nothing to say. Clusters that are to go
// are told of by leave.
func (s *subscription) due(set Set) *response {
	if !s.open || !s.owed && s.seen == set.Version {
		return nil
	}
	s.seen = set.Version
	wanted := s.wanted(set)
	out := &response{delta: s.delta, typeURL: s.typeURL, version: set.Version, items: wanted, changed: s.changed(wanted)}
	held := wanted
	if s.delta {
		out.items = out.changed
		gone := s.gone(wanted)
		if s.leaving = s.typeURL == ClusterType && len(gone) > 0; s.leaving {
			held = union(gone, wanted)
		} else {
			out.removed = namesOf(gone)
		}
	}
	if !s.owed && len(out.changed)+len(out.removed) == 0 && (s.delta || s.version == set.Version) {
		return nil
	}
	s.held, s.open, s.owed = held, false, false
	return out
}

// leave is the response that removes the clusters that are to go; nil when there are none.
func (s *subscription) leave(set Set) *response {
	wanted := s.wanted(set)
	gone := s.gone(wanted)
	if !s.open || len(gone) == 0 {
		return nil
	}
	s.held, s.open, s.leaving = wanted, false, false
	return &response{delta: true, typeURL: s.typeURL, version: set.Version, removed: namesOf(gone)}
}

// wanted of the set, in order of name.
func (s *subscription) wanted(set Set) []*item {
	if !s.wildcard && !slices.Equal(s.names, set.names) {
		return named(set.items, s.names)
	}
	if !s.wildcard {
		s.names = set.names // equal names are kept once
	}
	return set.items
}

func (s *subscription) changed(wanted []*item) (out []*item) {
	for _, i := range wanted {
		if before := find(s.held, i.name); before == nil || before.version != i.version {
			out = append(out, i)
		}
	}
	return out
}

// gone is what it was told of, and asks for, and is no longer there.
func (s *subscription) gone(wanted []*item) (out []*item) {
	for _, i := range s.held {
		_, asked := slices.BinarySearch(s.names, i.name)
		if find(wanted, i.name) == nil && (asked || s.wildcard) {
			out = append(out, i)
		}
	}
	return out
}

func namesOf(items []*item) (out []string) {
	for _, i := range items {
		out = append(out, i.name)
	}
	return out
}

// named are those of the names, in order.
func named(items []*item, names []string) (out []*item) {
	for _, i := range items {
		if _, ok := slices.BinarySearch(names, i.name); ok {
			out = append(out, i)
		}
	}
	return out
}
