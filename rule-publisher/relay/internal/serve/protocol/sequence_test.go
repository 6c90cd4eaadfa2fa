package protocol

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/serve/resources/resourcestest"
)

// envoy is the stream of one Envoy, without a connection.
type envoy struct {
	*Subscriptions
	t      *testing.T
	serves resources.Bundle
	inbox  []*Response // responses not answered yet
}

func newEnvoy(t *testing.T, delta bool, serves resources.Bundle) *envoy {
	return &envoy{Subscriptions: &Subscriptions{Delta: delta}, t: t, serves: serves}
}

// ask sends a request and returns the answer that the relay reads from it.
func (e *envoy) ask(r Request) (answer Answer, isNew bool) {
	e.t.Helper()
	answer, isNew, err := e.Take(r)
	if err != nil {
		e.t.Fatal(err)
	}
	return answer, isNew
}

// gets returns every response that is due before the Envoy answers. Each is written as "C a,b -c"
// for clusters, with E for endpoints and R for routes; -c means that c is removed.
func (e *envoy) gets() (out []string) {
	for r := e.Next(e.serves); r != nil; r = e.Next(e.serves) {
		kind := map[string]string{resources.ClusterType: "C", resources.EndpointType: "E", resources.RouteType: "R"}[r.typeURL]
		text := strings.TrimSpace(kind + " " + strings.Join(r.items.Names(), ","))
		for _, name := range r.removed {
			text += " -" + name
		}
		out, e.inbox = append(out, text), append(e.inbox, r)
	}
	return out
}

// accepts answers every received response with an ACK. A state-of-the-world ACK repeats the names.
func (e *envoy) accepts() {
	e.t.Helper()
	for _, r := range e.inbox {
		reply := Request{typeURL: r.typeURL, nonce: r.nonce, version: r.version}
		if !e.Delta {
			reply.names = slices.Clone(e.of(r.typeURL).names)
		}
		e.ask(reply)
	}
	e.inbox = nil
}

func (e *envoy) want(got []string, want ...string) {
	e.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		e.t.Errorf("got %q, want %q", got, want)
	}
}

// settled returns an Envoy that has received and accepted everything.
func settled(t *testing.T, delta bool, serves resources.Bundle) *envoy {
	e := newEnvoy(t, delta, serves)
	for _, r := range []Request{{typeURL: resources.ClusterType}, {typeURL: resources.EndpointType, names: slices.Clone(serves[resources.EndpointType].Names())},
		{typeURL: resources.RouteType, names: []string{"out"}}} {
		e.ask(r)
		e.gets()
		e.accepts()
	}
	return e
}

// altered returns the bundle with changed content in the named clusters. Endpoints and routes stay.
func altered(t *testing.T, b resources.Bundle, salt string, names ...string) resources.Bundle {
	t.Helper()
	var clusters []*cluster.Cluster
	for _, name := range b[resources.ClusterType].Names() {
		c := &cluster.Cluster{Name: name}
		if slices.Contains(names, name) {
			c.AltStatName = salt
		}
		clusters = append(clusters, c)
	}
	set, err := resources.NewSet(2, clusters, b[resources.ClusterType])
	if err != nil {
		t.Fatal(err)
	}
	return b.With(resources.ClusterType, set)
}

// TestEndpointsFollowAChangedCluster checks that a changed cluster is followed by its endpoints,
// for which Envoy waits, even when these are the same. In delta only its own endpoints follow. An
// endpoint response that was sent before the change does not count.
func TestEndpointsFollowAChangedCluster(t *testing.T) {
	first := resourcestest.Bundle(t, 1, "a", "b", "c")
	for delta, want := range map[bool][]string{true: {"C b", "E b"}, false: {"C a,b,c", "E a,b,c"}} {
		e := settled(t, delta, first)
		e.want(e.gets())
		e.serves = altered(t, first, "x", "b")
		e.want(e.gets(), want...)
		e.serves = altered(t, first, "y", "b") // nothing has been answered yet
		e.want(e.gets())
		e.accepts()
		e.want(e.gets(), want...)
		e.accepts()
		e.want(e.gets())
	}
}

// TestEndpointsFollowAChangedClusterToWhoComesBack checks the same for a reconnecting Envoy, which
// names the endpoints that it holds before it learns that a cluster has changed.
func TestEndpointsFollowAChangedClusterToWhoComesBack(t *testing.T) {
	first := resourcestest.Bundle(t, 1, "a", "b")
	held := func(typeURL string) map[string]string {
		out := map[string]string{}
		for _, i := range first[typeURL].Items() {
			out[i.Name] = i.Version
		}
		return out
	}
	e := newEnvoy(t, true, altered(t, first, "x", "b"))
	e.ask(Request{typeURL: resources.ClusterType, initial: held(resources.ClusterType)})
	e.want(e.gets(), "C b")
	e.ask(Request{typeURL: resources.EndpointType, names: []string{"a", "b"}, initial: held(resources.EndpointType)})
	e.want(e.gets(), "E b")
	e.accepts()
	e.want(e.gets())
}

// TestClustersLeaveAfterTheRoutes checks that clusters which an Envoy has from another relay are
// removed once it has accepted the routes that do not name them. They stay while it refuses these
// routes.
func TestClustersLeaveAfterTheRoutes(t *testing.T) {
	e := newEnvoy(t, true, resourcestest.Bundle(t, 1, "a"))
	e.ask(Request{typeURL: resources.ClusterType, initial: map[string]string{"old": "1"}})
	e.want(e.gets(), "C a")
	e.ask(Request{typeURL: resources.RouteType, names: []string{"out"}, initial: map[string]string{"out": "1"}})
	e.accepts()
	e.want(e.gets(), "R out")
	routes := e.inbox[0]
	e.inbox = nil
	e.ask(Request{typeURL: resources.RouteType, nonce: routes.nonce, failure: &statuspb.Status{Code: 13}})
	e.want(e.gets())
	other := resourcestest.Bundle(t, 2, "b", "a")
	e.serves = other
	e.want(e.gets(), "C b", "R out")
	e.accepts()
	e.want(e.gets(), "C -old")
	e.accepts()
	e.want(e.gets())
	e.serves = resourcestest.Bundle(t, 3, "b") // same routes: nothing to wait for
	e.want(e.gets(), "C -a")

	e = newEnvoy(t, true, resourcestest.Bundle(t, 1, "a"))
	e.ask(Request{typeURL: resources.ClusterType, initial: map[string]string{"old": "1"}})
	e.want(e.gets(), "C a")
	e.accepts() // this Envoy has no routes at all
	e.want(e.gets(), "C -old")
}

// TestRefusalAfterAnotherRequestIsTold checks that a request sent before the answer to a response
// does not count as that answer: nothing more is sent, and the refusal that follows is reported.
func TestRefusalAfterAnotherRequestIsTold(t *testing.T) {
	first := resourcestest.Bundle(t, 1, "a", "b", "c")
	e := newEnvoy(t, true, first)
	e.ask(Request{typeURL: resources.EndpointType, names: []string{"a"}})
	e.want(e.gets(), "E a")
	e.ask(Request{typeURL: resources.EndpointType, names: []string{"b"}})
	e.want(e.gets())
	answer, isNew := e.ask(Request{typeURL: resources.EndpointType, nonce: e.inbox[0].nonce, names: []string{"c"}, failure: &statuspb.Status{Code: 13}})
	if !isNew || !answer.Refused || answer.Version != first[resources.EndpointType].Version {
		t.Errorf("the refusal was told as %+v, %v", answer, isNew)
	}
	e.want(e.gets(), "E b,c")
}
