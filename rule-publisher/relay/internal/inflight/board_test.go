package inflight

import (
	"fmt"
	"math"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/table"
	"spillway.dev/relay/internal/testkit"
)

var (
	start = time.Unix(1_800_000_000, 0)
	south = table.Place{Service: "shop", Cluster: "south"}
	north = table.Place{Service: "shop", Cluster: "north"}
)

// board returns a board of a network with the services in north and south.
func board(t *testing.T, services ...string) *Board {
	t.Helper()
	topology := &spillwayv1.Topology{Clusters: []*spillwayv1.Cluster{{Name: "north"}, {Name: "south"}},
		Links: []*spillwayv1.Link{{SourceCluster: "north", DestinationCluster: "south", RttMs: 20}}}
	declared := &spillwayv1.Endpoints{Cluster: "north"}
	for _, service := range services {
		for _, cluster := range []string{"north", "south"} {
			declared.Services = append(declared.Services, &spillwayv1.ServiceEndpoints{Service: service, Cluster: cluster, Addresses: []string{"10.0.0.1:80"}})
		}
	}
	network, err := table.NewNetwork("north", topology, declared, nil)
	testkit.Must(t, err)
	return NewBoard(network)
}

// stats returns the statistics of one of Envoy's clusters, whose calls are in flight to a cluster.
func stats(name, cluster string, inProgress uint64) *endpoint.ClusterStats {
	return &endpoint.ClusterStats{ClusterName: name, UpstreamLocalityStats: []*endpoint.UpstreamLocalityStats{
		{Locality: &core.Locality{Zone: cluster}, TotalRequestsInProgress: inProgress}}}
}

func put(t *testing.T, b *Board, stream any, envoy string, at time.Time, clusters ...*endpoint.ClusterStats) {
	t.Helper()
	testkit.Must(t, b.put(stream, "gate", "north/gate/"+envoy, clusters, at))
}

func gate(t *testing.T, b *Board, at time.Time, envoys uint32, calls map[table.Place]uint64) {
	t.Helper()
	sum := b.Sums(at)["gate"]
	if sum.Envoys != envoys || fmt.Sprint(sum.Calls) != fmt.Sprint(calls) {
		t.Errorf("%d Envoys, %v; want %d, %v", sum.Envoys, sum.Calls, envoys, calls)
	}
}

// TestCallsCountWhereTheyWereSent checks that the calls of all Envoys of a service add up by
// destination, over the clusters of Envoy that lead there, and also after failover.
func TestCallsCountWhereTheyWereSent(t *testing.T) {
	b := board(t, "shop")
	put(t, b, 1, "a", start, stats("shop|south", "south", 2), stats("shop|south|!far", "south", 3), stats("shop|north", "south", 1))
	put(t, b, 2, "b", start, stats("shop|north", "north", 4))
	put(t, b, 3, "c", start)
	testkit.Must(t, b.put(4, "cart", "north/cart/a", []*endpoint.ClusterStats{stats("shop|south", "south", 9)}, start))
	gate(t, b, start, 3, map[table.Place]uint64{south: 6, north: 4})
	if cart := b.Sums(start)["cart"]; cart.Envoys != 1 || cart.Calls[south] != 9 {
		t.Errorf("%v of cart", cart)
	}
}

// TestAnEnvoyThatReportsAgainReplacesItsReport checks that calls that have ended are forgotten.
func TestAnEnvoyThatReportsAgainReplacesItsReport(t *testing.T) {
	b := board(t, "shop")
	put(t, b, 1, "a", start, stats("shop|south", "south", 2), stats("shop|north", "north", 7))
	put(t, b, 1, "a", start.Add(2*time.Second), stats("shop|south", "south", 5))
	gate(t, b, start.Add(2*time.Second), 1, map[table.Place]uint64{south: 5})
	put(t, b, 1, "a", start.Add(4*time.Second))
	gate(t, b, start.Add(4*time.Second), 1, map[table.Place]uint64{})
}

// TestAnEnvoyThatIsGoneOrSilentIsForgotten checks that an Envoy counts until its stream ends or its
// report is too old. A service without reports is unknown: it is not among the sums.
func TestAnEnvoyThatIsGoneOrSilentIsForgotten(t *testing.T) {
	b := board(t, "shop")
	put(t, b, 1, "a", start, stats("shop|south", "south", 2))
	put(t, b, 2, "b", start.Add(5*time.Second), stats("shop|south", "south", 3))
	gate(t, b, start.Add(ReportFor), 1, map[table.Place]uint64{south: 3})
	b.Left(2, "north/gate/b")
	if sums := b.Sums(start.Add(ReportFor)); len(sums) != 0 {
		t.Errorf("%v, want none", sums)
	}
	b.Left(1, "north/gate/a")
	if len(b.reports) != 0 {
		t.Errorf("%d reports are kept", len(b.reports))
	}
}

// TestAnEnvoyThatRestartsCountsOnce checks that a new stream replaces the report of the old one, and
// that the end of the old stream does not remove it.
func TestAnEnvoyThatRestartsCountsOnce(t *testing.T) {
	b := board(t, "shop")
	put(t, b, 1, "a", start, stats("shop|south", "south", 2))
	put(t, b, 2, "a", start.Add(time.Second), stats("shop|south", "south", 1))
	b.Left(1, "north/gate/a")
	gate(t, b, start.Add(time.Second), 1, map[table.Place]uint64{south: 1})
}

// TestHugeNumbersAreBounded checks that the numbers of one Envoy are bounded and do not overflow.
func TestHugeNumbersAreBounded(t *testing.T) {
	b := board(t, "shop")
	huge := stats("shop|south", "south", math.MaxUint64)
	put(t, b, 1, "a", start, huge, huge, huge)
	put(t, b, 2, "b", start, stats("shop|south", "south", 3))
	gate(t, b, start, 2, map[table.Place]uint64{south: mostCalls + 3})
}

// TestUnknownPlacesAreLeftOut checks that an Envoy cannot make the relay store names: only places of
// the network count.
func TestUnknownPlacesAreLeftOut(t *testing.T) {
	b := board(t, "shop")
	put(t, b, 1, "a", start, stats("spillway-app", "", 5), stats("shop", "south", 5), stats("nobody|south", "south", 5),
		stats("shop|south", "nowhere", 5), stats("shop|south", "", 5), stats("|", "|", 5), nil)
	gate(t, b, start, 1, map[table.Place]uint64{})
}

// TestTooManyDestinationsAreRefused checks the bound of one Envoy's report, which leaves the last
// good one in place.
func TestTooManyDestinationsAreRefused(t *testing.T) {
	var services []string
	var all []*endpoint.ClusterStats
	for i := range mostPlaces + 1 {
		services = append(services, fmt.Sprint("s", i))
		all = append(all, stats(fmt.Sprintf("s%d|south", i), "south", 1))
	}
	b := board(t, services...)
	put(t, b, 1, "a", start, all[:mostPlaces]...)
	if err := b.put(1, "gate", "north/gate/a", all, start); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v, want ResourceExhausted", err)
	}
	if got := len(b.Sums(start)["gate"].Calls); got != mostPlaces {
		t.Errorf("%d destinations, want %d", got, mostPlaces)
	}
}
