package serve

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	load "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/testkit"
)

// loads notes what it receives.
type loads struct {
	mu   sync.Mutex
	seen []string
}

func (l *loads) note(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, text)
}

func (l *loads) Reported(_ any, service, envoy string, stats []*endpoint.ClusterStats) error {
	l.note(fmt.Sprint(service, " ", envoy, " ", len(stats)))
	if len(stats) > 1 {
		return status.Error(codes.ResourceExhausted, "too much")
	}
	return nil
}

func (l *loads) Left(_ any, envoy string) { l.note("left " + envoy) }

func (l *loads) is(want ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprint(l.seen) == fmt.Sprint(want)
}

// reports opens a stream of reports whose first message is a node.
func (s *served) reports(node *core.Node) (load.LoadReportingService_StreamLoadStatsClient, *loads) {
	s.t.Helper()
	return s.reporting(&load.LoadStatsRequest{Node: node})
}

// reporting opens a stream of reports with the certificate of an Envoy of the service gate.
func (s *served) reporting(first *load.LoadStatsRequest) (load.LoadReportingService_StreamLoadStatsClient, *loads) {
	s.t.Helper()
	found := &loads{}
	s.streams.Loads = found
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(credentials.NewTLS(authority.ClientTLS(authority.Envoy("north", "gate")))))
	testkit.Must(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*testkit.Patience)
	s.t.Cleanup(cancel)
	stream, err := load.NewLoadReportingServiceClient(conn).StreamLoadStats(ctx)
	testkit.Must(s.t, err)
	testkit.Must(s.t, stream.Send(first))
	return stream, found
}

func report(clusters int) *load.LoadStatsRequest {
	r := &load.LoadStatsRequest{Node: gate("a")}
	for range clusters {
		r.ClusterStats = append(r.ClusterStats, &endpoint.ClusterStats{ClusterName: "shop|south"})
	}
	return r
}

// TestAnEnvoyIsToldToReport checks that the answer to an Envoy's node asks for all clusters every
// two seconds, that reports count for its service, and that the end of its stream is noticed. It is
// not an xDS stream, so the Envoy is not connected by it.
func TestAnEnvoyIsToldToReport(t *testing.T) {
	s := serving(t)
	stream, found := s.reports(gate("a"))
	answer, err := stream.Recv()
	testkit.Must(t, err)
	if !answer.GetSendAllClusters() || answer.GetLoadReportingInterval().AsDuration() != reportEvery {
		t.Errorf("%v", answer)
	}
	testkit.Must(t, stream.Send(report(1)))
	testkit.Eventually(t, "the report is taken", func() bool { return found.is("gate north/gate/a 1") })
	if n := s.streams.Connected()["gate"]; n != 0 || s.streams.Counters.Get(count.StreamsOpened) != 0 {
		t.Errorf("%d connected", n)
	}
	testkit.Must(t, stream.CloseSend())
	testkit.Eventually(t, "the Envoy left", func() bool { return found.is("gate north/gate/a 1", "left north/gate/a") })
	if n := s.streams.Counters.Get(count.LoadReportsTaken); n != 1 {
		t.Errorf("%d reports, want 1", n)
	}
}

// TestAnEnvoyThatReconnectsReportsAtOnce checks that the first message of a stream counts as a report
// when it has statistics, as that of an Envoy that has reported to another relay before.
func TestAnEnvoyThatReconnectsReportsAtOnce(t *testing.T) {
	s := serving(t)
	stream, found := s.reporting(report(1))
	_, err := stream.Recv()
	testkit.Must(t, err)
	testkit.Eventually(t, "the report is taken", func() bool { return found.is("gate north/gate/a 1") })
}

// TestOnlyItsOwnEnvoysReport checks that a stream of reports is refused like one of xDS: for another
// service than the certificate's, another cluster, or a changed node.
func TestOnlyItsOwnEnvoysReport(t *testing.T) {
	for want, node := range map[string]*core.Node{
		"PermissionDenied": {Id: "north/cart/a", Cluster: "cart", Locality: &core.Locality{Zone: "north"}},
		"InvalidArgument":  gate(strings.Repeat("x", 600)),
	} {
		s := serving(t)
		stream, found := s.reports(node)
		if _, err := stream.Recv(); status.Code(err).String() != want {
			t.Errorf("%v, want %s", err, want)
		}
		testkit.Eventually(t, "it is closed", func() bool { return found.is("left ") })
	}
	s := serving(t)
	stream, _ := s.reports(gate("a"))
	_, err := stream.Recv()
	testkit.Must(t, err)
	testkit.Must(t, stream.Send(&load.LoadStatsRequest{Node: gate("b")}))
	if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied || s.streams.Counters.Get(count.StreamsRefusedIdentity) != 1 {
		t.Errorf("%v, want PermissionDenied", err)
	}
}

// TestAReportThatIsTooLargeEndsItsStream checks that the error of a report ends only its stream, and
// is counted.
func TestAReportThatIsTooLargeEndsItsStream(t *testing.T) {
	s := serving(t)
	stream, _ := s.reports(gate("a"))
	_, err := stream.Recv()
	testkit.Must(t, err)
	testkit.Must(t, stream.Send(report(2)))
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted || s.streams.Counters.Get(count.StreamsRefusedRequest) != 1 {
		t.Errorf("%v, want ResourceExhausted", err)
	}
}

// TestReportsThatComeTooSoonAreIgnored checks that an Envoy cannot keep the relay busy with reports.
func TestReportsThatComeTooSoonAreIgnored(t *testing.T) {
	s := serving(t)
	stream, found := s.reports(gate("a"))
	_, err := stream.Recv()
	testkit.Must(t, err)
	for range 100 {
		testkit.Must(t, stream.Send(report(0)))
	}
	time.Sleep(reportSooner + 100*time.Millisecond)
	testkit.Must(t, stream.Send(report(1)))
	testkit.Eventually(t, "the last is taken", func() bool { return found.is("gate north/gate/a 0", "gate north/gate/a 1") })
}

// TestADrainEndsReports checks that a relay that leaves ends streams of reports too, also of an Envoy
// whose xDS stream is at another relay.
func TestADrainEndsReports(t *testing.T) {
	s := serving(t)
	stream, found := s.reports(gate("a"))
	_, err := stream.Recv()
	testkit.Must(t, err)
	s.Drain(0)
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("%v, want Unavailable", err)
	}
	testkit.Eventually(t, "the Envoy left", func() bool { return found.is("left north/gate/a") })
}
