package protocol

import (
	"slices"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"spillway.dev/relay/internal/serve/resources"
)

// set returns a set of clusters. `salt` changes the content under the same names.
func set(t *testing.T, version uint64, salt string, names ...string) resources.Set {
	t.Helper()
	var clusters []*cluster.Cluster
	for _, name := range names {
		clusters = append(clusters, &cluster.Cluster{Name: name, AltStatName: salt})
	}
	out, err := resources.NewSet(version, clusters, resources.Set{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// checkDue checks the response that is due.
func (s *subscription) checkDue(t *testing.T, set resources.Set, items, removed []string) {
	t.Helper()
	out := s.due(set)
	if items == nil && removed == nil {
		if out != nil {
			t.Fatalf("%v is due, want nothing", out)
		}
		return
	}
	if out == nil {
		t.Fatal("nothing is due")
	}
	var names []string
	for _, i := range out.items {
		names = append(names, i.Name)
	}
	if !slices.Equal(names, items) || !slices.Equal(out.removed, removed) || out.version != set.Version {
		t.Fatalf("%v without %v of %s are due, want %v without %v", names, out.removed, out.version, items, removed)
	}
	s.sent = sent{nonce: "n" + set.Version, version: set.Version}
	if s.due(set) != nil {
		t.Fatal("due again without an answer")
	}
}

func (s *subscription) accept() {
	s.take(Request{nonce: s.sent.nonce, version: s.sent.version, names: s.asked()}, false)
}

// asked returns the names that a state-of-the-world request repeats.
func (s *subscription) asked() []string {
	if s.delta {
		return nil
	}
	return slices.Clone(s.names)
}

func subscribed(delta bool, r Request) *subscription {
	s := newSubscription(r, delta)
	s.take(r, false)
	return s
}

// TestDeltaSubscription checks delta subscriptions. Changes and removals are sent once, and what an
// Envoy held before is not sent again. What it drops and asks for again is sent again. The first
// request for everything gets a response even if it is empty.
func TestDeltaSubscription(t *testing.T) {
	first, second := set(t, 1, "", "a", "b"), set(t, 2, "", "b", "c")
	s := subscribed(true, Request{})
	s.checkDue(t, first, []string{"a", "b"}, nil)
	s.checkDue(t, second, nil, nil) // one response at a time
	s.accept()
	s.checkDue(t, second, []string{"c"}, []string{"a"})
	s.accept()
	s.checkDue(t, second, nil, nil)

	if out := subscribed(true, Request{}).due(resources.Set{}); out == nil || len(out.items) != 0 {
		t.Errorf("%v, want an empty answer to the first request for everything", out)
	}

	s = subscribed(true, Request{names: []string{"b"}, initial: map[string]string{"b": first.Items().Find("b").Version}})
	s.checkDue(t, first, []string{}, []string{}) // a request that says what it holds gets a response
	s.accept()
	s.take(Request{dropped: []string{"b"}}, false)
	s.checkDue(t, second, nil, nil)
	s.take(Request{names: []string{"b", "nowhere"}}, false)
	s.checkDue(t, second, []string{"b"}, nil)
	s.accept()
	s.checkDue(t, first, nil, nil) // the same content under another version
	s.checkDue(t, set(t, 3, "", "a"), []string{}, []string{"b"})

	s = subscribed(true, Request{names: []string{"*", "a"}})
	s.checkDue(t, first, []string{"a", "b"}, nil)
	s.accept()
	s.take(Request{dropped: []string{"a"}}, false) // the wildcard still covers it: sent again
	s.checkDue(t, first, []string{"a"}, nil)
}

// TestDeltaSubscriptionAskedAgain checks that an Envoy that asks again for a resource it was sent
// gets it again, also with the wildcard.
func TestDeltaSubscriptionAskedAgain(t *testing.T) {
	all := set(t, 1, "", "a", "b", "c")
	s := subscribed(true, Request{names: []string{"a", "b"}})
	s.checkDue(t, all, []string{"a", "b"}, nil)
	s.accept()
	s.take(Request{names: []string{"b", "c"}}, false)
	s.checkDue(t, all, []string{"b", "c"}, nil)
	s.accept()
	s.checkDue(t, all, nil, nil)
	s = subscribed(true, Request{})
	s.checkDue(t, all, []string{"a", "b", "c"}, nil)
	s.accept()
	s.take(Request{names: []string{everything}}, false)
	s.checkDue(t, all, []string{"a", "b", "c"}, nil)
	if slices.ContainsFunc(all.Items(), func(i *resources.Item) bool { return i.Version == "" }) {
		t.Error("the set itself was changed")
	}
}

// TestWholeSubscription checks state-of-the-world subscriptions. Everything asked for is sent at
// each change, also when it was dropped in between. A refused version is not sent twice. An answer
// to an older response lets no response out.
func TestWholeSubscription(t *testing.T) {
	first, second := set(t, 1, "", "a", "b", "c"), set(t, 2, "new", "a", "b", "c")
	s := subscribed(false, Request{names: []string{"b", "a"}})
	s.checkDue(t, first, []string{"a", "b"}, nil)
	s.take(Request{nonce: "of an older one", names: s.asked()}, false)
	s.checkDue(t, second, nil, nil)
	s.accept()
	s.checkDue(t, first, nil, nil)
	s.checkDue(t, second, []string{"a", "b"}, nil)
	s.take(Request{nonce: s.sent.nonce, version: first.Version, names: s.asked(), failure: &statuspb.Status{Code: 13}}, true)
	s.checkDue(t, second, nil, nil)
	s.take(Request{nonce: s.sent.nonce, version: second.Version, names: []string{"a"}}, false)
	s.checkDue(t, second, nil, nil)
	s.take(Request{nonce: s.sent.nonce, version: second.Version, names: []string{"a", "b"}}, false)
	s.checkDue(t, second, []string{"a", "b"}, nil)
}

// TestSubscriptionsShare checks that what Envoys ask for and hold is stored once for all that have
// the same.
func TestSubscriptionsShare(t *testing.T) {
	all := set(t, 1, "", "a", "b")
	for _, delta := range []bool{true, false} {
		s := subscribed(delta, Request{names: []string{"b", "a"}})
		s.checkDue(t, all, []string{"a", "b"}, nil)
		if &s.held[0] != &all.Items()[0] || &s.names[0] != &all.Names()[0] {
			t.Errorf("delta %v: a copy is kept", delta)
		}
	}
}
