package harness

import (
	"context"
	"crypto/tls"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/anypb"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/identity/identitytest"
	"spillway.dev/relay/internal/testkit"
)

// Update is one response of either protocol variant.
type Update struct {
	TypeURL, Version, Nonce string
	Resources               []*anypb.Any
	Removed                 []string
	Versions                map[string]string // of the resources; delta only
}

// Client is one Envoy's ADS stream, in one of the two variants.
type Client interface {
	Subscribe(typeURL string, resources ...string)
	Answer(u Update, refusal string) // "" accepts
	Holds(u Update)                  // the next subscription claims that this was accepted before
	Updates() <-chan Update
	Failed() <-chan error
}

var variants = map[string]func(*testing.T, *Dialer, *core.Node) Client{"sotw": NewSotw, "delta": NewDelta}

// Node returns the node of an Envoy of the service in north.
func Node(service, pod string) *core.Node {
	return &core.Node{Id: "north/" + service + "/" + pod, Cluster: service, Locality: &core.Locality{Zone: "north"}}
}

// Dialer says where a client connects and with which certificate.
type Dialer struct {
	Address string
	tls     *tls.Config // nil: the certificate that the node should have
}

func (d *Dialer) dial(t *testing.T, node *core.Node) discovery.AggregatedDiscoveryServiceClient {
	t.Helper()
	config := d.tls
	if config == nil {
		config = Authority.ClientTLS(Authority.Envoy(node.GetLocality().GetZone(), node.GetCluster()))
	}
	conn, err := grpc.NewClient(d.Address, grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	testkit.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	return discovery.NewAggregatedDiscoveryServiceClient(conn)
}

// As makes the client use this certificate and trust its authority.
func (d *Dialer) As(signer *identitytest.Authority, pair identitytest.Pair) *Dialer {
	return &Dialer{d.Address, signer.ClientTLS(pair)}
}

// At returns a dialer to the relay.
func At(r *Relay) *Dialer { return &Dialer{Address: r.XDSAddr()} }

// received has the responses of a stream, and the error that ended it.
type received struct {
	out  chan Update
	errs chan error
}

// receive calls next until it fails, and passes on what it returns.
func receive(next func() (Update, error)) received {
	r := received{make(chan Update, 100), make(chan error, 1)}
	go func() {
		for {
			u, err := next()
			if err != nil {
				r.errs <- err
				return
			}
			r.out <- u
		}
	}()
	return r
}

// Updates returns the responses.
func (r received) Updates() <-chan Update { return r.out }

// Failed returns the error that ended the stream.
func (r received) Failed() <-chan error { return r.errs }

// SotwClient is the state-of-the-world variant.
type SotwClient struct {
	t        *testing.T
	stream   discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node     *core.Node
	names    map[string][]string
	accepted map[string]string
	received
}

// NewSotw opens a stream of the state-of-the-world variant.
func NewSotw(t *testing.T, d *Dialer, node *core.Node) Client {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := d.dial(t, node).StreamAggregatedResources(ctx)
	testkit.Must(t, err)
	return &SotwClient{t, stream, node, map[string][]string{}, map[string]string{}, receive(func() (Update, error) {
		r, err := stream.Recv()
		return Update{r.GetTypeUrl(), r.GetVersionInfo(), r.GetNonce(), r.GetResources(), nil, nil}, err
	})}
}

// Subscribe asks for the resources of the type; for all of them without names.
func (c *SotwClient) Subscribe(typeURL string, resources ...string) {
	c.names[typeURL] = resources
	testkit.Must(c.t, c.stream.Send(&discovery.DiscoveryRequest{Node: c.node, TypeUrl: typeURL, ResourceNames: resources,
		VersionInfo: c.accepted[typeURL]}))
}

// Answer accepts the response, or refuses it with the text.
func (c *SotwClient) Answer(u Update, refusal string) {
	request := &discovery.DiscoveryRequest{TypeUrl: u.TypeURL, ResponseNonce: u.Nonce, ResourceNames: c.names[u.TypeURL]}
	if refusal == "" {
		c.accepted[u.TypeURL] = u.Version
	} else {
		request.ErrorDetail = &rpcstatus.Status{Code: 13, Message: refusal}
	}
	request.VersionInfo = c.accepted[u.TypeURL]
	testkit.Must(c.t, c.stream.Send(request))
}

// Holds makes the next request claim that the response was accepted before.
func (c *SotwClient) Holds(u Update) { c.accepted[u.TypeURL] = u.Version }

// DeltaClient is the delta variant. Held has the versions of resources that its next request claims
// to hold.
type DeltaClient struct {
	t      *testing.T
	Stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	node   *core.Node
	Held   map[string]string
	received
}

// NewDelta opens a stream of the delta variant.
func NewDelta(t *testing.T, d *Dialer, node *core.Node) Client {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := d.dial(t, node).DeltaAggregatedResources(ctx)
	testkit.Must(t, err)
	return &DeltaClient{t, stream, node, nil, receive(func() (Update, error) {
		r, err := stream.Recv()
		u := Update{r.GetTypeUrl(), r.GetSystemVersionInfo(), r.GetNonce(), nil, r.GetRemovedResources(), map[string]string{}}
		for _, resource := range r.GetResources() {
			u.Versions[resource.GetName()] = resource.GetVersion()
			u.Resources = append(u.Resources, resource.GetResource())
		}
		return u, err
	})}
}

// Subscribe asks for the resources of the type; for all of them without names.
func (c *DeltaClient) Subscribe(typeURL string, resources ...string) {
	testkit.Must(c.t, c.Stream.Send(&discovery.DeltaDiscoveryRequest{Node: c.node, TypeUrl: typeURL, ResourceNamesSubscribe: resources,
		InitialResourceVersions: c.Held}))
	c.Held = nil
}

// Answer accepts the response, or refuses it with the text.
func (c *DeltaClient) Answer(u Update, refusal string) {
	request := &discovery.DeltaDiscoveryRequest{TypeUrl: u.TypeURL, ResponseNonce: u.Nonce}
	if refusal != "" {
		request.ErrorDetail = &rpcstatus.Status{Code: 13, Message: refusal}
	}
	testkit.Must(c.t, c.Stream.Send(request))
}

// Holds claims wrong versions, so that the relay sends everything again.
func (c *DeltaClient) Holds(u Update) { c.Held = map[string]string{names.XdsOutboundRoute: u.Version} }
