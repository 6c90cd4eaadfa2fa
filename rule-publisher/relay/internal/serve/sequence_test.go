package serve

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
)

// envoy is one Envoy's stream without a connection.
type envoy struct {
	*stream
	t     *testing.T
	inbox []*response // not answered yet
}

func newEnvoy(t *testing.T, delta bool, serves Bundle) *envoy {
	return &envoy{stream: &stream{delta: delta, service: &entry{bundle: serves}}, t: t}
}

// ask sends a request; what it answers is told.
func (e *envoy) ask(r request) (answer Answer, isNew bool) {
	e.t.Helper()
	sub, err := e.subscription(r)
	if err != nil {
		e.t.Fatal(err)
	}
	answer, isNew = e.answer(sub, r)
	e.take(sub, r, answer.Refused)
	return answer, isNew
}

// gets is everything that comes without an answer in between, each as "C a,b -c" (clusters), E, R.
func (e *envoy) gets() (out []string) {
	for r := e.next(); r != nil; r = e.next() {
		kind := map[string]string{ClusterType: "C", EndpointType: "E", RouteType: "R"}[r.typeURL]
		text := strings.TrimSpace(kind + " " + strings.Join(namesOf(r.items), ","))
		for _, name := range r.removed {
			text += " -" + name
		}
		out, e.inbox = append(out, text), append(e.inbox, r)
	}
	return out
}

// accepts everything that came; names are what state-of-the-world repeats.
func (e *envoy) accepts() {
	e.t.Helper()
	for _, r := range e.inbox {
		reply := request{typeURL: r.typeURL, nonce: r.nonce, version: r.version}
		if !e.delta {
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

// settled is an Envoy that has everything.
func settled(t *testing.T, delta bool, serves Bundle) *envoy {
	e := newEnvoy(t, delta, serves)
	for _, r := range []request{{typeURL: ClusterType}, {typeURL: EndpointType, names: slices.Clone(serves[EndpointType].names)},
		{typeURL: RouteType, names: []string{"out"}}} {
		e.ask(r)
		e.gets()
		e.accepts()
	}
	return e
}

// altered is the bundle with other content under the names given, of clusters only.
func altered(t *testing.T, b Bundle, salt string, names ...string) Bundle {
	t.Helper()
	var clusters []*cluster.Cluster
	for _, name := range b[ClusterType].names {
		c := &cluster.Cluster{Name: name}
		if slices.Contains(names, name) {
			c.AltStatName = salt
		}
		clusters = append(clusters, c)
	}
	set, err := NewSet(2, clusters, b[ClusterType])
	if err != nil {
		t.Fatal(err)
	}
	return b.With(ClusterType, set)
}

// Envoy waits for the endpoints of a changed cluster, be they the same: they follow it, in delta those
// alone. An endpoint response that is under way does not count: it was sent before.
func TestEndpointsFollowAChangedCluster(t *testing.T) {
	first := bundle(t, 1, "a", "b", "c")
	for delta, want := range map[bool][]string{true: {"C b", "E b"}, false: {"C a,b,c", "E a,b,c"}} {
		e := settled(t, delta, first)
		e.want(e.gets())
		e.service.serve(altered(t, first, "x", "b"))
		e.want(e.gets(), want...)
		e.service.serve(altered(t, first, "y", "b")) // nothing is answered yet
		e.want(e.gets())
		e.accepts()
		e.want(e.gets(), want...)
		e.accepts()
		e.want(e.gets())
	}
}

// An Envoy that comes back names the endpoints that it has before it hears that a cluster has changed.
func TestEndpointsFollowAChangedClusterToWhoComesBack(t *testing.T) {
	first := bundle(t, 1, "a", "b")
	held := func(typeURL string) map[string]string {
		out := map[string]string{}
		for _, i := range first[typeURL].items {
			out[i.name] = i.version
		}
		return out
	}
	e := newEnvoy(t, true, altered(t, first, "x", "b"))
	e.ask(request{typeURL: ClusterType, initial: held(ClusterType)})
	e.want(e.gets(), "C b")
	e.ask(request{typeURL: EndpointType, names: []string{"a", "b"}, initial: held(EndpointType)})
	e.want(e.gets(), "E b")
	e.accepts()
	e.want(e.gets())
}

// Clusters that an Envoy brought along from another relay go when it has accepted the routes that do
// not name them, and not while it refuses these.
func TestClustersLeaveAfterTheRoutes(t *testing.T) {
	e := newEnvoy(t, true, bundle(t, 1, "a"))
	e.ask(request{typeURL: ClusterType, initial: map[string]string{"old": "1"}})
	e.want(e.gets(), "C a")
	e.ask(request{typeURL: RouteType, names: []string{"out"}, initial: map[string]string{"out": "1"}})
	e.accepts()
	e.want(e.gets(), "R out")
	routes := e.inbox[0]
	e.inbox = nil
	e.ask(request{typeURL: RouteType, nonce: routes.nonce, failure: &statuspb.Status{Code: 13}})
	e.want(e.gets())
	other := bundle(t, 2, "b", "a")
	e.service.serve(other)
	e.want(e.gets(), "C b", "R out")
	e.accepts()
	e.want(e.gets(), "C -old")
	e.accepts()
	e.want(e.gets())
	e.service.serve(bundle(t, 3, "b")) // same routes: nothing to wait for
	e.want(e.gets(), "C -a")

	e = newEnvoy(t, true, bundle(t, 1, "a"))
	e.ask(request{typeURL: ClusterType, initial: map[string]string{"old": "1"}})
	e.want(e.gets(), "C a")
	e.accepts() // and it has no routes at all
	e.want(e.gets(), "C -old")
}

// A request that comes before the answer to a response is no answer: nothing more is sent, and the
// refusal that follows is told.
func TestRefusalAfterAnotherRequestIsTold(t *testing.T) {
	first := bundle(t, 1, "a", "b", "c")
	e := newEnvoy(t, true, first)
	e.ask(request{typeURL: EndpointType, names: []string{"a"}})
	e.want(e.gets(), "E a")
	e.ask(request{typeURL: EndpointType, names: []string{"b"}})
	e.want(e.gets())
	answer, isNew := e.ask(request{typeURL: EndpointType, nonce: e.inbox[0].nonce, names: []string{"c"}, failure: &statuspb.Status{Code: 13}})
	if !isNew || !answer.Refused || answer.Version != first[EndpointType].Version {
		t.Errorf("the refusal was told as %+v, %v", answer, isNew)
	}
	e.want(e.gets(), "E b,c")
}
