package serve

import (
	"maps"
	"slices"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
)

const everything = "*"

// request is what both variants of the protocol say.
type request struct {
	delta          bool
	raw            []byte     // until it is decoded
	node           *core.Node // only the first one of a stream must have it
	typeURL, nonce string
	failure        *statuspb.Status
	names          []string          // asked for: all of them, or (delta) those added
	dropped        []string          // delta: asked for no longer
	version        string            // state-of-the-world: what the Envoy says it has
	initial        map[string]string // delta: what it holds from before, by name
}

// subscription is what one stream asks for of one type, and what it was told. There are three for
// each Envoy: slices that most Envoys of a service have alike are the set's own, and never changed.
type subscription struct {
	typeURL  string
	delta    bool
	unnamed  bool     // no name was ever said, which means everything
	wildcard bool     // everything
	names    []string // asked for by name, in order
	held     []*item  // what it was told last, in order of name
	version  string   // state-of-the-world: of what it has
	open     bool     // it waits; false from a response to its answer
	owed     bool     // it must be answered, be it with nothing
	seen     string   // version of the set that it has nothing more to hear of

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
	s := &subscription{typeURL: r.typeURL, delta: delta, unnamed: true, wildcard: len(r.names) == 0}
	for _, name := range slices.Sorted(maps.Keys(r.initial)) {
		s.held = append(s.held, &item{name: name, version: r.initial[name]})
	}
	return s
}

// take a request; `refused` when it refuses the newest response.
func (s *subscription) take(r request, refused bool) {
	switch {
	case s.delta:
		s.change(r.names, r.dropped)
		// The first wildcard request is answered also with nothing: Envoy waits for it at start. So is one
		// that says what the Envoy holds from before: what it answers tells a relay that has restarted what
		// is in force there.
		s.owed = r.nonce == "" && (s.wildcard || len(r.initial) > 0)
	case !s.open && s.sent.nonce != "" && r.nonce != s.sent.nonce:
		return // the newest response has no answer yet, and this is none
	default:
		s.replace(r.names)
		s.version, s.seen = r.version, ""
		if refused || r.version == s.sent.version {
			// A refused version counts as delivered: the same again would be refused again, for ever.
			s.version = s.sent.version
		}
	}
	s.open = true
}

// change what is asked for, in delta. As long as no name was said, everything is meant.
func (s *subscription) change(added, dropped []string) {
	if s.unnamed && len(added) == 0 || len(added)+len(dropped) == 0 {
		return
	}
	s.unnamed, s.seen = false, ""
	names := map[string]bool{}
	for _, name := range slices.Concat(s.names, added) {
		names[name] = true
	}
	held := slices.Clone(s.held)
	for _, name := range dropped {
		held = slices.DeleteFunc(held, func(i *item) bool { return i.name == name })
		if names[name] && s.wildcard && name != everything {
			// It is still meant by the wildcard, and must be told of again.
			held = append(held, &item{name: name})
		}
		delete(names, name)
	}
	s.wildcard = (s.wildcard || names[everything]) && !slices.Contains(dropped, everything)
	delete(names, everything)
	slices.SortFunc(held, byName)
	s.names, s.held = slices.Sorted(maps.Keys(names)), held
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

// due is the response that the set asks for; nil when there is nothing to say.
func (s *subscription) due(set Set) *response {
	if !s.open || !s.owed && s.seen == set.Version {
		return nil
	}
	s.seen = set.Version
	out := &response{delta: s.delta, typeURL: s.typeURL, version: set.Version}
	wanted := s.wanted(set)
	if s.delta {
		out.items, out.removed = s.changed(wanted), s.removed(wanted)
		if len(out.items)+len(out.removed) == 0 && !s.owed {
			return nil
		}
	} else {
		isNew := func(i *item) bool { return find(s.held, i.name) == nil }
		if s.version == set.Version && !slices.ContainsFunc(wanted, isNew) {
			return nil
		}
		out.items = wanted
	}
	s.held, s.open, s.owed = wanted, false, false
	return out
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

// removed are the names that it was told of, and asks for, and are no longer there.
func (s *subscription) removed(wanted []*item) (out []string) {
	for _, i := range s.held {
		_, asked := slices.BinarySearch(s.names, i.name)
		if find(wanted, i.name) == nil && (asked || s.wildcard) {
			out = append(out, i.name)
		}
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
