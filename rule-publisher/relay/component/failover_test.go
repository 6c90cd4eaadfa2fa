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
	// received is true when an application may have received the request. The request is then not
	// sent again, and calls are lost until the endpoint is ejected.
	received bool
}

// ejection bounds the calls that one ejection costs: three, and those that come while it travels
// from one of Envoy's threads to the others. That takes 2 ms as a rule and more on a busy machine,
// for which callers wait after every five lost calls.
const ejection = 20

var deaths = []death{
	{"connections refused", refusing, false},
	{"connections accepted and closed", func(t *testing.T) string { return dropping(t, false) }, true},
	{"connections accepted and reset", func(t *testing.T) string { return dropping(t, true) }, true},
	{"packets dropped", blackHole, false},
	{"application gone behind its proxy", func(t *testing.T) string { return callee(t, refusing(t)) }, false},
	{"proxy without routes", func(t *testing.T) string { return callee(t, "") }, false},
}

// TestFailsOverFromEveryDeath checks that, whatever way a destination dies in, Envoy sends its
// requests to the next cluster by round-trip time, although the weights say 100 % for the dead one.
// No call is lost that no application received. Of the others, only as many are lost as it takes to
// eject the endpoint.
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

// TestStillDeadAfterReadmission checks that a destination that is readmitted and still drops its
// requests is ejected again as fast.
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

// TestFailsOverTwice checks that the third cluster answers when two are dead at once.
func TestFailsOverTwice(t *testing.T) {
	p := uncheckedOf(t, refusing(t), refusing(t), backend(t, "far"))
	if calls := repeat(p, 100, "POST", "/items"); calls.lost > 0 || calls.answered["far"] != 100 {
		t.Errorf("%v, want all from far", calls)
	}
}

// TestRefusalsMoveNothing checks that an application's own answers, even 503, eject no endpoint and
// are not retried. An application that refuses under overload keeps its share.
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

// TestAttemptsAreCounted checks that the application behind the callee's proxy sees the number of
// the attempt.
func TestAttemptsAreCounted(t *testing.T) {
	p := uncheckedOf(t, backend(t, "north"), refusing(t), backend(t, "far"))
	if got := p.Call("outbound", "shop", "GET", "/items/attempt"); got.Body != "2" {
		t.Errorf("x-envoy-attempt-count %q after one failed attempt, want 2", got.Body)
	}
}

// uncheckedOf is callerOf without health checks, as in the time before a check has found what is
// dead. Requests find out themselves.
func uncheckedOf(t *testing.T, north, south, far string) *testkit.Envoy {
	t.Helper()
	return callerIn(t, threeClusters(), north, south, far, func(c *cluster.Cluster) { c.HealthChecks = nil })
}

// callerOf runs a caller of shop at the addresses ("" means that the cluster has none), with rules
// that send all its classes to south.
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

// outcome is the result of several calls in a row.
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
		time.Sleep(2 * time.Millisecond) // at most 500 calls/s
		got := p.Call("outbound", "shop", method, path)
		o.slowest = max(o.slowest, got.Took)
		if got.Status != http.StatusOK {
			o.lost++
			if o.lost%5 == 0 {
				time.Sleep(50 * time.Millisecond) // an ejection reaches Envoy's other threads, even on a busy machine
			}
			o.lastLost = time.Since(begin)
			continue
		}
		o.answered[got.Body]++
	}
	o.took = time.Since(begin)
	return o
}

// backend starts a server that answers with its name.
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

// refusing returns an address that refuses connections. The port is bound but nobody listens, so no
// other program can use it.
func refusing(t *testing.T) string {
	t.Helper()
	_, address := bound(t)
	return address
}

func bound(t *testing.T) (socket int, address string) {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	must(t, err)
	t.Cleanup(func() { syscall.Close(socket) })
	must(t, syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := syscall.Getsockname(socket)
	must(t, err)
	return socket, local(name.(*syscall.SockaddrInet4).Port)
}

// dropping accepts connections and ends them when the request has come, with FIN or with RST.
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

// blackHole listens with a full queue, so that the kernel drops every further SYN.
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
		default: // a single timeout may be due to a busy machine
			if timeouts++; timeouts == 2 {
				return address
			}
		}
	}
	t.Fatal("the queue of the listener does not fill up")
	return ""
}

// callee starts a pod's inbound proxy in front of an application. Without an application, it has no
// routes yet.
func callee(t *testing.T, application string) string {
	t.Helper()
	return calleeOf(t, application, "").Listener("inbound")
}

// calleeOf is callee with a transport socket for its listener; "" means none.
func calleeOf(t *testing.T, application, socket string) *testkit.Envoy {
	t.Helper()
	_, port, _ := strings.Cut(application, ":")
	routes, err := envoy.InboundRoutes(table.Table{Service: "shop"})
	must(t, err)
	return startProxy(t, "testdata/callee.yaml", map[string]any{"AppPort": port, "Routes": asJSON(t, routes), "Socket": socket})
}
