package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/identity"
	"spillway.dev/relay/internal/identity/identitytest"
	"spillway.dev/relay/internal/serve/protocol"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/serve/resources/resourcestest"
	"spillway.dev/relay/internal/testkit"
)

var authority = identitytest.NewAuthority()

// served is a running Server that is also its own Observer.
type served struct {
	*Server
	t       *testing.T
	cache   *Cache
	address string

	mu              sync.Mutex
	connected, gone int
}

func (s *served) Connected(_, _ string)    { s.mu.Lock(); defer s.mu.Unlock(); s.connected++ }
func (s *served) Disconnected(_, _ string) { s.mu.Lock(); defer s.mu.Unlock(); s.gone++ }
func (s *served) Answered(Answer)          {}

func (s *served) left() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone == s.connected && s.gone > 0
}

func serving(t *testing.T) *served {
	t.Helper()
	files, err := authority.WriteServer(t.TempDir(), authority.Relay("north"))
	testkit.Must(t, err)
	keeper, err := identity.NewKeeper(files)
	testkit.Must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	s := &served{t: t, cache: NewCache(), address: listener.Addr().String()}
	streams := &Streams{Cluster: "north", Identity: identitytest.Identity, Observer: s, Counters: &count.Counters{},
		Log: slog.New(slog.DiscardHandler), PushToAck: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x"})}
	s.Server = NewServer(s.cache, streams, keeper.TLS(), func(net.Addr, error) {})
	go s.Serve(listener) //nolint:errcheck // ended by the test
	t.Cleanup(func() { s.Drain(0) })
	return s
}

// open opens a delta stream as an Envoy of the service gate.
func (s *served) open() discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	s.t.Helper()
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(credentials.NewTLS(authority.ClientTLS(authority.Envoy("north", "gate")))),
		grpc.WithInitialWindowSize(1<<16-1), grpc.WithInitialConnWindowSize(1<<16-1))
	testkit.Must(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*testkit.Patience)
	s.t.Cleanup(cancel)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	testkit.Must(s.t, err)
	return stream
}

func gate(id string) *core.Node {
	return &core.Node{Id: "north/gate/" + id, Cluster: "gate", Locality: &core.Locality{Zone: "north"}}
}

// stuck reports whether a goroutine other than the handler is blocked in the second send on the only
// stream.
func (s *served) stuck() bool {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	for st := range s.streams.open {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.sending != nil && nonce(s.t, st.sending) == "2"
	}
	return false
}

func nonce(t *testing.T, r *protocol.Response) string {
	t.Helper()
	encoded, err := protocol.NewCodec().Marshal(r)
	testkit.Must(t, err)
	out := &discovery.DeltaDiscoveryResponse{}
	testkit.Must(t, proto.Unmarshal(encoded.Materialize(), out))
	return out.GetNonce()
}

// TestWhoReadsNothingIsNotWaitedFor checks that an Envoy that reads nothing and breaks the protocol
// is removed as fast as any other.
func TestWhoReadsNothingIsNotWaitedFor(t *testing.T) {
	s := serving(t)
	c := s.open()
	for _, typeURL := range []string{resources.ClusterType, resources.EndpointType} {
		testkit.Must(t, c.Send(&discovery.DeltaDiscoveryRequest{Node: gate("a"), TypeUrl: typeURL}))
	}
	// The last request makes the Envoy a placed one.
	testkit.Must(t, c.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resources.RouteType, InitialResourceVersions: map[string]string{"out": "1"}}))
	testkit.Eventually(t, "everything is asked for", func() bool { return s.streams.Placed()["gate"] == 1 })
	large := resourcestest.Bundle(t, 1, "a")
	set, err := resources.NewSet(1, []*cluster.Cluster{{Name: "a", AltStatName: strings.Repeat("x", 1<<20)}}, resources.Set{})
	testkit.Must(t, err)
	testkit.Must(t, s.cache.Put("gate", large.With(resources.ClusterType, set)))
	testkit.Eventually(t, "the second response waits for the first", s.stuck)
	testkit.Must(t, c.Send(&discovery.DeltaDiscoveryRequest{}))
	testkit.Eventually(t, "the Envoy is gone", s.left)
}

// TestLimitsOfAStream checks that what one Envoy can make the relay store is limited, also across
// several requests. An Envoy that asks for more is counted, and the error names the limit.
func TestLimitsOfAStream(t *testing.T) {
	long := strings.Repeat("x", 600)
	names := func(prefix string) (out []string) { // 3 MB
		for i := range 5000 {
			out = append(out, fmt.Sprint(prefix, i, long))
		}
		return out
	}
	for want, requests := range map[string][]*discovery.DeltaDiscoveryRequest{
		"node: a name of 611 bytes":    {{Node: gate(long), TypeUrl: resources.ClusterType}},
		"type_url: 600 bytes; must be": {{Node: gate("a"), TypeUrl: long}},
		"type_url: 0 bytes; must be":   {{Node: gate("a")}},
		"at most 4194304 on one stream": {{Node: gate("a"), TypeUrl: resources.EndpointType, ResourceNamesSubscribe: names("a")},
			{TypeUrl: resources.EndpointType, ResourceNamesSubscribe: names("b")}},
		"at most 4194304 on one stream, over all types": {{Node: gate("a"), TypeUrl: resources.EndpointType, ResourceNamesSubscribe: names("a")},
			{TypeUrl: "another", ResourceNamesSubscribe: names("b")}},
	} {
		s := serving(t)
		c := s.open()
		for _, r := range requests {
			testkit.Must(t, c.Send(r))
		}
		_, err := c.Recv()
		reason, _, _ := strings.Cut(want, ", over")
		if code := status.Code(err); code != codes.InvalidArgument && code != codes.ResourceExhausted || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v, want %q", err, want)
		}
		if counted := s.streams.Counters.Get(count.StreamsRefusedNode) + s.streams.Counters.Get(count.StreamsRefusedRequest); counted != 1 {
			t.Errorf("%s: %d counted", want, counted)
		}
	}
}
