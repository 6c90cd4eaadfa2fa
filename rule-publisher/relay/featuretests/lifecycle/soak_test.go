package lifecycle

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/relay"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/testkit"
)

// soakVersions is the number of versions in the tests; SPILLWAY_SOAK_VERSIONS overrides it. A day
// has 5 760 (one in 15 s).
const soakVersions = 300

// few is the number of goroutines of one Envoy that is connecting or disconnecting.
const few = 8

// footprint is what must not grow: goroutines, and in MB the resident memory and the heap size at
// which the next garbage collection starts. That size is proportional to the live heap.
type footprint struct{ goroutines, nextGC, rss float64 }

// TestSoak publishes a day's worth of ruleset versions as fast as the relay takes them, and checks
// that its process does not grow. Some versions change weights, some change nothing, some are
// invalid, and Envoys refuse some. Meanwhile endpoints change, Envoys reconnect, and services come
// and go.
//
// Every service has been there before the first version. After 10 % of the versions, everything
// else that can happen has happened. From then on the footprint may vary, because garbage awaits
// collection up to GOGC and a stream's goroutines take time to end. From 10 % to 100 % it may grow
// by at most 15 % and 4 MB, and by `few` goroutines.
//
// This finds leaks: keeping the routes of each version, some KB, would cost tens of MB over a day's
// versions, and one goroutine left by each stream or version would add hundreds.
func TestSoak(t *testing.T) {
	versions := soakVersions
	if text := os.Getenv("SPILLWAY_SOAK_VERSIONS"); text != "" {
		number, err := strconv.Atoi(text)
		testkit.Must(t, err)
		versions = number
	}
	s := newSoak(t)
	var marks [3]footprint
	for version := 1; version <= versions; version++ {
		s.step(version)
		for i, at := range []int{versions / 10, versions / 2, versions} {
			if version == at {
				marks[i] = s.footprint()
				t.Logf("after %d versions: %.0f goroutines, heap target %.1f MB, resident %.1f MB", version, marks[i].goroutines, marks[i].nextGC, marks[i].rss)
			}
		}
	}
	limit := func(before float64) float64 { return before*1.15 + 4 }
	for _, later := range marks[1:] {
		if later.goroutines > marks[0].goroutines+few || later.nextGC > limit(marks[0].nextGC) || later.rss > limit(marks[0].rss) {
			t.Errorf("from %+v to %+v", marks[0], later)
		}
	}
}

type soak struct {
	t       *testing.T
	p       *harness.Publisher
	conf    relay.Config
	envoys  map[string]*soakEnvoy // by service
	strange int                   // the service that comes and goes
}

func newSoak(t *testing.T) *soak {
	server := harness.StartNATS(t, t.TempDir(), 0)
	conf := harness.Config(t, server.ClientURL())
	conf.XDSListen, conf.HealthListen = testkit.FreeAddress(t), testkit.FreeAddress(t)
	command, out := relayProcess(environment(conf)...)
	testkit.Must(t, command.Start())
	t.Cleanup(func() {
		command.Process.Kill() //nolint:errcheck // its end is all we want
		command.Wait()         //nolint:errcheck // killed
		if t.Failed() {
			t.Logf("the relay's log ends:\n%s", out.Bytes()[max(0, out.Len()-3000):])
		}
	})
	s := &soak{t: t, p: harness.NewPublisher(t, server), conf: conf, envoys: map[string]*soakEnvoy{}}
	testkit.Eventually(t, "the relay answers", func() bool { return s.status().Cluster != "" })
	for i := range 10 {
		s.connect([]string{"gate", "shop", "stock"}[i%3] + "/" + strconv.Itoa(i))
	}
	for i := range strangers {
		s.connect(stranger(i))
		if i > 0 {
			s.disconnect(stranger(i))
		}
	}
	return s
}

// step publishes one version, valid or not, and makes the changes that belong to it.
func (s *soak) step(version int) {
	share := uint32(version/2%9+1) * 1000 // every other version is a renewal
	s.p.Put(harness.Ruleset(uint64(version), time.Hour, share, 10000-share))
	testkit.Eventually(s.t, fmt.Sprintf("version %d is served", version), func() bool { return s.status().ServedVersion == uint64(version) })
	if version%7 == 0 {
		s.p.PutBytes([]byte(strings.Repeat("\xff", version)))
	}
	if version%10 == 0 { // a service appears, and the previous one leaves
		s.disconnect(stranger(s.strange))
		s.strange = (s.strange + 1) % strangers
		s.connect(stranger(s.strange))
	}
	if version%15 == 0 {
		s.disconnect("gate/0")
		s.connect("gate/0")
	}
	if version%20 == 0 {
		far := fmt.Sprintf("127.0.0.1:%d", 9103+version/20%50)
		testkit.Replace(s.t, s.conf.Endpoints, strings.Replace(harness.Endpoints, "127.0.0.1:9103", far, 1))
	}
}

func (s *soak) status() (page relay.StatusPage) {
	response, err := http.Get("http://" + s.conf.HealthListen + "/status")
	if err != nil {
		return page
	}
	defer response.Body.Close()
	testkit.Must(s.t, json.NewDecoder(response.Body).Decode(&page))
	return page
}

// footprint returns the lowest of several readings while nothing happens.
func (s *soak) footprint() (least footprint) {
	for i := range 5 {
		time.Sleep(300 * time.Millisecond)
		m := s.metrics()
		now := footprint{m["go_goroutines"], m["go_memstats_next_gc_bytes"] / 1e6, m["process_resident_memory_bytes"] / 1e6}
		if now.goroutines == 0 || now.nextGC == 0 || now.rss == 0 {
			s.t.Fatalf("metrics lack one of %+v", now)
		}
		if i == 0 {
			least = now
		}
		least = footprint{min(least.goroutines, now.goroutines), min(least.nextGC, now.nextGC), min(least.rss, now.rss)}
	}
	return least
}

func (s *soak) metrics() map[string]float64 {
	response, err := http.Get("http://" + s.conf.HealthListen + "/metrics")
	testkit.Must(s.t, err)
	defer response.Body.Close()
	out := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if name, text, ok := strings.Cut(lines.Text(), " "); ok {
			out[name], _ = strconv.ParseFloat(text, 64)
		}
	}
	return out
}

// soakEnvoy is a delta stream on its own connection. It refuses every 50th set of routes that it
// receives.
type soakEnvoy struct {
	conn   *grpc.ClientConn
	cancel context.CancelFunc
}

// strangers is the number of services that come and go in turn.
const strangers = 20

func stranger(i int) string { return fmt.Sprintf("service-%d/x", i) }

// connect connects an Envoy and waits until it has routes.
func (s *soak) connect(name string) {
	service, pod, _ := strings.Cut(name, "/")
	n := harness.Node(service, pod)
	conn, err := grpc.NewClient(s.conf.XDSListen, grpc.WithTransportCredentials(credentials.NewTLS(harness.Authority.ClientTLS(harness.Authority.Envoy("north", service)))))
	testkit.Must(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	testkit.Must(s.t, err)
	s.envoys[name] = &soakEnvoy{conn, cancel}
	s.t.Cleanup(func() { s.disconnect(name) })
	testkit.Must(s.t, stream.Send(&discovery.DeltaDiscoveryRequest{Node: n, TypeUrl: resources.ClusterType}))
	testkit.Must(s.t, stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resources.RouteType, ResourceNamesSubscribe: harness.RouteTables}))
	got := make(chan struct{}, 1)
	go func() {
		for routes := 0; ; {
			response, err := stream.Recv()
			if err != nil {
				return
			}
			answer := &discovery.DeltaDiscoveryRequest{TypeUrl: response.GetTypeUrl(), ResponseNonce: response.GetNonce()}
			if response.GetTypeUrl() == resources.RouteType {
				if routes++; routes%50 == 0 {
					answer.ErrorDetail = &rpcstatus.Status{Code: 13, Message: "the soak test refuses this"}
				}
				select {
				case got <- struct{}{}:
				default:
				}
			}
			stream.Send(answer) //nolint:errcheck // Recv tells
		}
	}()
	select {
	case <-got:
	case <-time.After(testkit.Patience):
		s.t.Fatalf("%s gets no routes", name)
	}
}

func (s *soak) disconnect(name string) {
	if e := s.envoys[name]; e != nil {
		e.cancel()
		e.conn.Close()
		delete(s.envoys, name)
	}
}
