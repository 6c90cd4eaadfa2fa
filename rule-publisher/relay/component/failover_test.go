package component

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/envoy"
	"spillway.dev/relay/internal/table"
	"spillway.dev/relay/internal/testkit"
)

var shopClasses = []*spillwayv1.TrafficClass{
	{Service: "shop", Method: "GET", PathTemplate: "/items/{id}"},
	{Service: "shop", Method: "POST", PathTemplate: "/items"},
}

// death is a way in which the destination stops answering.
type death struct {
	name string
	// die returns the address of a destination that is dead in this way.
	die func(t *testing.T) string
	// received tells that an application may have received the request: then it is not sent again, and
	// calls are lost until the endpoint is ejected.
	received bool
}

// ejection costs three calls, and those that come while it travels from one of Envoy's threads to the
// others: 2 ms as a rule, more on a busy machine, for which callers wait after every five.
const ejection = 20

var deaths = []death{
	{"connections refused", refusing, false},
	{"connections accepted and closed", func(t *testing.T) string { return dropping(t, false) }, true},
	{"connections accepted and reset", func(t *testing.T) string { return dropping(t, true) }, true},
	{"packets dropped", blackHole, false},
	{"application gone behind its proxy", func(t *testing.T) string { return callee(t, refusing(t)) }, false},
	{"proxy without routes", func(t *testing.T) string { return callee(t, "") }, false},
}

// Whatever way a destination dies in, its requests go to the next cluster by round-trip time inside
// Envoy although the weights say 100 % there: none is lost that no application received, and of the
// others only those that it takes to eject the endpoint.
func TestFailsOverFromEveryDeath(t *testing.T) {
	for _, death := range deaths {
		for method, path := range map[string]string{"GET": "/items/7", "POST": "/items"} {
			t.Run(death.name+"/"+method, func(t *testing.T) {
				p := uncheckedOf(t, backend(t, "north"), death.die(t), backend(t, "far"))
				calls := repeat(p, 200, method, path)
				t.Log(calls)
				if calls.lost > 0 && !death.received || calls.lost > ejection {
					t.Errorf("%d calls were lost", calls.lost)
				}
				if calls.answered["north"] != 200-calls.lost {
					t.Errorf("answered by %v, want north, the nearest other", calls.answered)
				}
			})
		}
	}
}

// A destination that is let in again and still drops what it gets is ejected again as fast.
func TestStillDeadAfterReadmission(t *testing.T) {
	p := uncheckedOf(t, backend(t, "north"), dropping(t, true), backend(t, "far"))
	lost := 0
	eventually(t, "the destination is ejected a second time", func() bool {
		lost += repeat(p, 10, "POST", "/items").lost
		return strings.Contains(p.Get("/stats?filter=south.outlier_detection.ejections_enforced_total"), ": 2")
	})
	if lost += repeat(p, 100, "POST", "/items").lost; lost > 2*ejection {
		t.Errorf("%d calls were lost in two ejections", lost)
	}
}

// Two clusters dead at once: the third answers.
func TestFailsOverTwice(t *testing.T) {
	p := uncheckedOf(t, refusing(t), refusing(t), backend(t, "far"))
	if calls := repeat(p, 100, "POST", "/items"); calls.lost > 0 || calls.answered["far"] != 100 {
		t.Errorf("%v, want all from far", calls)
	}
}

// An application's own answers, be they 503, eject nobody and are not repeated: the one that refuses
// under overload keeps its share.
func TestRefusalsMoveNothing(t *testing.T) {
	p := callerOf(t, backend(t, "north"), backend(t, "south"), backend(t, "far"))
	for range 50 {
		if got := p.Call("outbound", "shop", "GET", "/overloaded"); got.Status != 503 || got.Body != "north" {
			t.Fatalf("the catch-all gave %d %s", got.Status, got.Body)
		}
		if got := p.Call("outbound", "shop", "GET", "/items/overloaded"); got.Status != 503 || got.Body != "south" {
			t.Fatalf("the class gave %d %s", got.Status, got.Body)
		}
	}
	if calls := repeat(p, 50, "GET", "/items/7"); calls.answered["south"] != 50 {
		t.Errorf("%v, want all from south", calls)
	}
}

// The application behind the callee's proxy sees the number of the attempt.
func TestAttemptsAreCounted(t *testing.T) {
	p := uncheckedOf(t, backend(t, "north"), refusing(t), backend(t, "far"))
	if got := p.Call("outbound", "shop", "GET", "/items/attempt"); got.Body != "2" {
		t.Errorf("x-envoy-attempt-count %q after one failed attempt, want 2", got.Body)
	}
}

// uncheckedOf is callerOf in the time until a check has found what is dead: requests find out themselves.
func uncheckedOf(t *testing.T, north, south, far string) *testkit.Envoy {
	t.Helper()
	return callerIn(t, threeClusters(), north, south, far, func(c *cluster.Cluster) { c.HealthChecks = nil })
}

// callerOf shop at the addresses ("": not there), with rules that send all its classes to south.
func callerOf(t *testing.T, north, south, far string) *testkit.Envoy {
	t.Helper()
	return callerIn(t, threeClusters(), north, south, far)
}

func callerIn(t *testing.T, topology *spillwayv1.Topology, north, south, far string, change ...func(*cluster.Cluster)) *testkit.Envoy {
	t.Helper()
	endpoints := &spillwayv1.Endpoints{Cluster: "north"}
	for cluster, address := range map[string]string{"north": north, "south": south, "far": far} {
		if address != "" {
			endpoints.Services = append(endpoints.Services,
				&spillwayv1.ServiceEndpoints{Service: "shop", Cluster: cluster, Addresses: []string{address}})
		}
	}
	network, err := table.NewNetwork("north", topology, endpoints, nil)
	must(t, err)
	now := time.Now()
	ruleset := &spillwayv1.Ruleset{Version: 1, ExpiresAt: timestamppb.New(now.Add(time.Hour)), TrafficClasses: shopClasses}
	for _, class := range shopClasses {
		ruleset.Rules = append(ruleset.Rules, &spillwayv1.Rule{SourceCluster: "north", SourceService: "gate", TrafficClass: class,
			Destinations: []*spillwayv1.Destination{{Cluster: "south", Weight: 10000}}})
	}
	rules, err := table.ParseRules(ruleset, "north")
	must(t, err)
	return caller(t, network, rules, table.Build("gate", network, rules, now), change...)
}

func threeClusters() *spillwayv1.Topology {
	return &spillwayv1.Topology{
		Clusters: []*spillwayv1.Cluster{{Name: "north"}, {Name: "south"}, {Name: "far"}},
		Links: []*spillwayv1.Link{{SourceCluster: "north", DestinationCluster: "south", RttMs: 20},
			{SourceCluster: "north", DestinationCluster: "far", RttMs: 80}}}
}

// outcome of calls in a row.
type outcome struct {
	answered       map[string]int
	lost           int
	took, lastLost time.Duration // from the first call on
	slowest        time.Duration
}

func (o outcome) String() string {
	return fmt.Sprintf("answered %v, lost %d (the last after %s), slowest %s, all in %s", o.answered, o.lost,
		o.lastLost.Round(time.Millisecond), o.slowest.Round(time.Millisecond), o.took.Round(time.Millisecond))
}

func repeat(p *testkit.Envoy, n int, method, path string) outcome {
	o := outcome{answered: map[string]int{}}
	begin := time.Now()
	for range n {
		time.Sleep(2 * time.Millisecond) // 500 calls/s at most
		got := p.Call("outbound", "shop", method, path)
		o.slowest = max(o.slowest, got.Took)
		if got.Status != http.StatusOK {
			o.lost++
			if o.lost%5 == 0 {
				time.Sleep(50 * time.Millisecond) // what is ejected reaches Envoy's other threads, on a busy machine too
			}
			o.lastLost = time.Since(begin)
			continue
		}
		o.answered[got.Body]++
	}
	o.took = time.Since(begin)
	return o
}

// backend answers with its name.
func backend(t *testing.T, name string) (address string) {
	t.Helper()
	_, port := testkit.StartBackend(t, name, 0)
	return local(port)
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	return listener
}

// refusing: nothing listens there, and nothing will: the port is bound.
func refusing(t *testing.T) string {
	t.Helper()
	_, address := bound(t)
	return address
}

func bound(t *testing.T) (socket int, address string) {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	must(t, err)
	t.Cleanup(func() { syscall.Close(socket) }) //nolint:errcheck // at the end
	must(t, syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := syscall.Getsockname(socket)
	must(t, err)
	return socket, local(name.(*syscall.SockaddrInet4).Port)
}

// dropping takes connections and ends them when the request has come, with FIN or with RST.
func dropping(t *testing.T, reset bool) string {
	t.Helper()
	listener := listen(t)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				conn.Read(make([]byte, 1)) //nolint:errcheck // dropped anyway
				if reset {
					conn.(*net.TCPConn).SetLinger(0) //nolint:errcheck // dropped anyway
				}
				conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

// blackHole listens with a queue that is full: the kernel drops every further SYN.
func blackHole(t *testing.T) string {
	t.Helper()
	socket, address := bound(t)
	must(t, syscall.Listen(socket, 0))
	timeouts := 0
	for range 10 {
		conn, err := net.DialTimeout("tcp", address, 500*time.Millisecond)
		var failed net.Error
		switch {
		case err == nil:
			t.Cleanup(func() { conn.Close() })
			timeouts = 0
		case !errors.As(err, &failed) || !failed.Timeout():
			t.Fatal(err)
		default: // one may be a busy machine's
			if timeouts++; timeouts == 2 {
				return address
			}
		}
	}
	t.Fatal("the queue of the listener does not fill up")
	return ""
}

// callee is a pod's inbound proxy before an application; no application: before it has any routes.
func callee(t *testing.T, application string) string {
	t.Helper()
	return calleeOf(t, application, "").Listener("inbound")
}

// calleeOf is callee with a transport socket for its listener; "": none.
func calleeOf(t *testing.T, application, socket string) *testkit.Envoy {
	t.Helper()
	_, port, _ := strings.Cut(application, ":")
	routes, err := envoy.InboundRoutes(table.Table{Service: "shop"})
	must(t, err)
	return startProxy(t, "testdata/callee.yaml", map[string]any{"AppPort": port, "Routes": asJSON(t, routes), "Socket": socket})
}
