package protocol

import (
	"slices"
	"time"

	"spillway.dev/relay/internal/serve/resources"
)

// everything is the wildcard name, which stands for all resources of a type.
const everything = "*"

// subscription is what one stream asks for of one type, and what it was sent. There are three for
// each Envoy. Slices that most Envoys of a service have in common are shared with the Set and never
// changed.
type subscription struct {
	typeURL string
	names   []string        // asked for by name, sorted
	held    resources.Items // what was sent last, sorted by name
	version string          // state-of-the-world: the version that the Envoy has
	seen    string          // version of the set after which nothing more is due

	delta    bool
	begun    bool // a request was taken
	unnamed  bool // no name was ever sent, which means everything
	wildcard bool // everything is asked for
	open     bool // a response may be sent; false from a response to its answer
	owed     bool // a response is due even if it is empty
	leaving  bool // it holds clusters that are to be removed

	sent     sent     // the newest response
	answered reported // the newest answer, to report each once
}

// sent identifies a response and when it was sent.
type sent struct {
	nonce, version string
	at             time.Time
}

// reported is an answer as it was reported.
type reported struct {
	version, detail string
	refused         bool
}

func newSubscription(r Request, delta bool) *subscription {
	return &subscription{typeURL: r.typeURL, delta: delta, unnamed: true, wildcard: len(r.names) == 0}
}

// take applies a request. `refused` is true when the request refuses the newest response.
func (s *subscription) take(r Request, refused bool) {
	switch {
	case s.delta:
		s.takeDelta(r)
	case !s.open && s.sent.nonce != "" && r.nonce != s.sent.nonce:
		// The newest response has not been answered yet, and this request does not answer it.
	default:
		s.replace(r.names)
		s.version, s.seen, s.open = r.version, "", true
		if refused || r.version == s.sent.version {
			// A refused version counts as delivered. Otherwise it would be sent and refused for
			// ever.
			s.version = s.sent.version
		}
	}
}

// takeDelta applies the changes of a request, even one that comes before the answer to the newest
// response. Only that answer lets the next response go out.
func (s *subscription) takeDelta(r Request) {
	s.change(r.names, r.dropped)
	if !s.begun {
		s.hold(r.initial)
	}
	// The first wildcard request gets a response even if it is empty, because Envoy waits for it
	// when it starts. So does a first request that says what the Envoy holds: its answer tells a
	// restarted relay what is in force there.
	s.owed = s.owed || !s.begun && (s.wildcard || len(r.initial) > 0) || slices.Contains(r.names, everything)
	s.open = s.open || s.sent.nonce == "" || r.nonce == s.sent.nonce
	s.begun = true
}

// due returns the response that the set requires, or nil when there is nothing to send. Clusters to
// be removed are left to leave.
func (s *subscription) due(set resources.Set) *Response {
	if !s.open || !s.owed && s.seen == set.Version {
		return nil
	}
	s.seen = set.Version
	wanted := s.wanted(set)
	out := &Response{delta: s.delta, typeURL: s.typeURL, version: set.Version, items: wanted, changed: s.changed(wanted)}
	held := wanted
	if s.delta {
		out.items = out.changed
		gone := s.gone(wanted)
		if s.leaving = s.typeURL == resources.ClusterType && len(gone) > 0; s.leaving {
			held = gone.Union(wanted)
		} else {
			out.removed = gone.Names()
		}
	}
	if !s.owed && len(out.changed)+len(out.removed) == 0 && (s.delta || s.version == set.Version) {
		return nil
	}
	s.held, s.open, s.owed = held, false, false
	return out
}

// leave returns the response that removes clusters, or nil when there are none to remove.
func (s *subscription) leave(set resources.Set) *Response {
	wanted := s.wanted(set)
	gone := s.gone(wanted)
	if !s.open || len(gone) == 0 {
		return nil
	}
	s.held, s.open, s.leaving = wanted, false, false
	return &Response{delta: true, typeURL: s.typeURL, version: set.Version, removed: gone.Names()}
}

// wanted returns the items of the set that are asked for, sorted by name.
func (s *subscription) wanted(set resources.Set) resources.Items {
	if !s.wildcard && !slices.Equal(s.names, set.Names()) {
		return set.Items().Named(s.names)
	}
	if !s.wildcard {
		s.names = set.Names() // share the memory of equal names
	}
	return set.Items()
}

// changed returns the wanted items that the Envoy does not hold in this version.
func (s *subscription) changed(wanted resources.Items) (out resources.Items) {
	for _, i := range wanted {
		if before := s.held.Find(i.Name); before == nil || before.Version != i.Version {
			out = append(out, i)
		}
	}
	return out
}

// gone returns the items that were sent, are still asked for, and no longer exist.
func (s *subscription) gone(wanted resources.Items) (out resources.Items) {
	for _, i := range s.held {
		_, asked := slices.BinarySearch(s.names, i.Name)
		if wanted.Find(i.Name) == nil && (asked || s.wildcard) {
			out = append(out, i)
		}
	}
	return out
}
