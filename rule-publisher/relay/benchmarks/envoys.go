package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/identity/identitytest"
)

// extensions has as many entries as a real Envoy lists in its node.
var extensions = func() (out []*core.Extension) {
	for i := range 600 {
		out = append(out, &core.Extension{Name: fmt.Sprint("envoy.filters.http.extension_", i), Category: "envoy.filters.http",
			TypeUrls: []string{fmt.Sprint("envoy.extensions.filters.http.extension.v3.Extension", i)}})
	}
	return out
}()

var routeTables = []string{names.XdsInboundRoute, names.XdsOutboundRoute}

// fleet is all simulated Envoys. Each has its own connection and ADS stream.
type fleet struct {
	envoys []*simulated
	bytes  atomic.Int64 // of responses on the wire, before TLS
}

// simulated does what an Envoy does. It asks for clusters, then for their endpoints, then for both
// route tables, and sends an ACK for every response at once.
type simulated struct {
	service   string
	node      *core.Node
	responses atomic.Int64
	ready     chan struct{} // closed at the first routes
	once      sync.Once
}

// connect connects every Envoy and waits until each has routes. Every `sotwEvery`-th Envoy speaks
// state-of-the-world, the others delta.
func connect(ctx context.Context, m mesh, count, sotwEvery int, address string, authority *identitytest.Authority) (*fleet, error) {
	f := &fleet{}
	for i := range count {
		service := m.service(i)
		e := &simulated{service: service, ready: make(chan struct{}), node: &core.Node{Cluster: service,
			Id: fmt.Sprintf("%s/%s/pod-%d", m.home(), service, i), Locality: &core.Locality{Zone: m.home()}, Extensions: extensions}}
		// Every pod has its own certificate.
		tls := authority.ClientTLS(authority.Envoy(m.home(), service))
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(tls)),
			grpc.WithReadBufferSize(8<<10), grpc.WithWriteBufferSize(1<<10),
			// Like Envoy: a large fixed window, without gRPC's pings for bandwidth estimation.
			grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(1<<20))
		if err != nil {
			return nil, err
		}
		open := e.delta
		if i%sotwEvery == sotwEvery-1 {
			open = e.sotw
		}
		if err := open(ctx, discovery.NewAggregatedDiscoveryServiceClient(conn), &f.bytes); err != nil {
			return nil, err
		}
		f.envoys = append(f.envoys, e)
	}
	for _, e := range f.envoys {
		select {
		case <-e.ready:
		case <-ctx.Done():
			return nil, fmt.Errorf("%s has no routes: %w", e.node.GetId(), context.Cause(ctx))
		}
	}
	return f, nil
}

func (e *simulated) got(typeURL string) {
	e.responses.Add(1)
	if typeURL == resource.RouteType {
		e.once.Do(func() { close(e.ready) })
	}
}

func (e *simulated) delta(ctx context.Context, ads discovery.AggregatedDiscoveryServiceClient, bytes *atomic.Int64) error {
	stream, err := ads.DeltaAggregatedResources(ctx, grpc.ForceCodecV2(newCodec(bytes, true)))
	if err != nil {
		return err
	}
	if err := stream.Send(&discovery.DeltaDiscoveryRequest{Node: e.node, TypeUrl: resource.ClusterType}); err != nil {
		return err
	}
	go func() {
		asked := map[string]bool{}
		ask := func(typeURL string, resources []string) {
			if !asked[typeURL] {
				asked[typeURL] = true
				stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: resources}) //nolint:errcheck // RecvMsg tells
			}
		}
		for {
			var r response
			if err := stream.RecvMsg(&r); err != nil {
				return
			}
			stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.typeURL, ResponseNonce: r.nonce}) //nolint:errcheck // RecvMsg tells
			e.got(r.typeURL)
			switch r.typeURL {
			case resource.ClusterType:
				ask(resource.EndpointType, r.clusters)
			case resource.EndpointType:
				ask(resource.RouteType, routeTables)
			}
		}
	}()
	return nil
}

func (e *simulated) sotw(ctx context.Context, ads discovery.AggregatedDiscoveryServiceClient, bytes *atomic.Int64) error {
	stream, err := ads.StreamAggregatedResources(ctx, grpc.ForceCodecV2(newCodec(bytes, false)))
	if err != nil {
		return err
	}
	if err := stream.Send(&discovery.DiscoveryRequest{Node: e.node, TypeUrl: resource.ClusterType}); err != nil {
		return err
	}
	go func() {
		wanted := map[string][]string{}
		ask := func(typeURL string, resources []string) {
			if wanted[typeURL] == nil {
				wanted[typeURL] = resources
				stream.Send(&discovery.DiscoveryRequest{TypeUrl: typeURL, ResourceNames: resources}) //nolint:errcheck // RecvMsg tells
			}
		}
		for {
			var r response
			if err := stream.RecvMsg(&r); err != nil {
				return
			}
			stream.Send(&discovery.DiscoveryRequest{TypeUrl: r.typeURL, ResponseNonce: r.nonce, //nolint:errcheck // RecvMsg tells
				VersionInfo: r.version, ResourceNames: wanted[r.typeURL]})
			e.got(r.typeURL)
			switch r.typeURL {
			case resource.ClusterType:
				ask(resource.EndpointType, r.clusters)
			case resource.EndpointType:
				ask(resource.RouteType, routeTables)
			}
		}
	}()
	return nil
}
