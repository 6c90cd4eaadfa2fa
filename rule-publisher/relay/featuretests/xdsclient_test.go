package featuretests

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/anypb"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/identity/identitytest"
)

// update is one response of either protocol variant.
type update struct {
	typeURL, version, nonce string
	resources               []*anypb.Any
	removed                 []string
	versions                map[string]string // of the resources; delta only
}

// client is one Envoy's ADS stream, in one of the two variants.
type client interface {
	subscribe(typeURL string, resources ...string)
	answer(u update, refusal string) // "" accepts
	holds(u update)                  // the next subscription claims that this was accepted before
	updates() <-chan update
	failed() <-chan error
}

var variants = map[string]func(*testing.T, *dialer, *core.Node) client{"sotw": newSotw, "delta": newDelta}

func node(service, pod string) *core.Node {
	return &core.Node{Id: "north/" + service + "/" + pod, Cluster: service, Locality: &core.Locality{Zone: "north"}}
}

// dialer says where a client connects and with which certificate.
type dialer struct {
	address string
	tls     *tls.Config // nil: the certificate that the node should have
}

func (d *dialer) dial(t *testing.T, node *core.Node) discovery.AggregatedDiscoveryServiceClient {
	t.Helper()
	config := d.tls
	if config == nil {
		config = authority.ClientTLS(authority.Envoy(node.GetLocality().GetZone(), node.GetCluster()))
	}
	conn, err := grpc.NewClient(d.address, grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return discovery.NewAggregatedDiscoveryServiceClient(conn)
}

// as makes the client use this certificate and trust its authority.
func (d *dialer) as(signer *identitytest.Authority, pair identitytest.Pair) *dialer {
	return &dialer{d.address, signer.ClientTLS(pair)}
}

// at returns a dialer to the relay.
func at(r *running) *dialer { return &dialer{address: r.XDSAddr()} }

type sotwClient struct {
	t        *testing.T
	stream   discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node     *core.Node
	names    map[string][]string
	accepted map[string]string
	out      chan update
	errs     chan error
}

func newSotw(t *testing.T, d *dialer, node *core.Node) client {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := d.dial(t, node).StreamAggregatedResources(ctx)
	must(t, err)
	c := &sotwClient{t, stream, node, map[string][]string{}, map[string]string{}, make(chan update, 100), make(chan error, 1)}
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				c.errs <- err
				return
			}
			c.out <- update{r.GetTypeUrl(), r.GetVersionInfo(), r.GetNonce(), r.GetResources(), nil, nil}
		}
	}()
	return c
}

func (c *sotwClient) subscribe(typeURL string, resources ...string) {
	c.names[typeURL] = resources
	must(c.t, c.stream.Send(&discovery.DiscoveryRequest{Node: c.node, TypeUrl: typeURL, ResourceNames: resources,
		VersionInfo: c.accepted[typeURL]}))
}

func (c *sotwClient) answer(u update, refusal string) {
	request := &discovery.DiscoveryRequest{TypeUrl: u.typeURL, ResponseNonce: u.nonce, ResourceNames: c.names[u.typeURL]}
	if refusal == "" {
		c.accepted[u.typeURL] = u.version
	} else {
		request.ErrorDetail = &rpcstatus.Status{Code: 13, Message: refusal}
	}
	request.VersionInfo = c.accepted[u.typeURL]
	must(c.t, c.stream.Send(request))
}

func (c *sotwClient) holds(u update) { c.accepted[u.typeURL] = u.version }

func (c *sotwClient) updates() <-chan update { return c.out }
func (c *sotwClient) failed() <-chan error   { return c.errs }

type deltaClient struct {
	t      *testing.T
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	node   *core.Node
	held   map[string]string
	out    chan update
	errs   chan error
}

func newDelta(t *testing.T, d *dialer, node *core.Node) client {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := d.dial(t, node).DeltaAggregatedResources(ctx)
	must(t, err)
	c := &deltaClient{t, stream, node, nil, make(chan update, 100), make(chan error, 1)}
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				c.errs <- err
				return
			}
			u := update{r.GetTypeUrl(), r.GetSystemVersionInfo(), r.GetNonce(), nil, r.GetRemovedResources(), map[string]string{}}
			for _, resource := range r.GetResources() {
				u.versions[resource.GetName()] = resource.GetVersion()
				u.resources = append(u.resources, resource.GetResource())
			}
			c.out <- u
		}
	}()
	return c
}

func (c *deltaClient) subscribe(typeURL string, resources ...string) {
	must(c.t, c.stream.Send(&discovery.DeltaDiscoveryRequest{Node: c.node, TypeUrl: typeURL, ResourceNamesSubscribe: resources,
		InitialResourceVersions: c.held}))
	c.held = nil
}

func (c *deltaClient) answer(u update, refusal string) {
	request := &discovery.DeltaDiscoveryRequest{TypeUrl: u.typeURL, ResponseNonce: u.nonce}
	if refusal != "" {
		request.ErrorDetail = &rpcstatus.Status{Code: 13, Message: refusal}
	}
	must(c.t, c.stream.Send(request))
}

// holds claims wrong versions, so that the relay sends everything again.
func (c *deltaClient) holds(u update) { c.held = map[string]string{names.XdsOutboundRoute: u.version} }

func (c *deltaClient) updates() <-chan update { return c.out }
func (c *deltaClient) failed() <-chan error   { return c.errs }

// next returns the next response, of any type.
func next(t *testing.T, c client) update {
	t.Helper()
	select {
	case u := <-c.updates():
		return u
	case err := <-c.failed():
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("no response")
	}
	return update{}
}

// silent fails when a response arrives within a short time.
func silent(t *testing.T, c client) {
	t.Helper()
	select {
	case u := <-c.updates():
		t.Fatalf("a response that nobody needs: %s %s", u.typeURL, u.version)
	case <-time.After(300 * time.Millisecond):
	}
}

// weights returns the weights of the class shop GET /items/{id}, or of the catch-all, in an
// outbound update; nil when absent.
func weights(t *testing.T, u update, host, routeName string) map[string]uint32 {
	t.Helper()
	for _, packed := range u.resources {
		config := &route.RouteConfiguration{}
		must(t, packed.UnmarshalTo(config))
		if config.GetName() != names.XdsOutboundRoute {
			continue
		}
		for _, h := range config.GetVirtualHosts() {
			for _, r := range h.GetRoutes() {
				if h.GetName() == host && r.GetName() == routeName {
					found := map[string]uint32{}
					for _, w := range r.GetRoute().GetWeightedClusters().GetClusters() {
						found[w.GetName()] = w.GetWeight().GetValue()
					}
					return found
				}
			}
		}
	}
	return nil
}
