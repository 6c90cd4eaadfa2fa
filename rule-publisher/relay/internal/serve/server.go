package serve

import (
	"context"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// NewServer is a gRPC server of ADS, delta and state-of-the-world, over the cache. Every stream
// ends when ctx does.
func NewServer(ctx context.Context, resources cache.Cache, streams *Streams) *grpc.Server {
	grpcServer := grpc.NewServer(
		// A dead Envoy is forgotten within this time even when its connection never closes.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 5 * time.Second, Timeout: 3 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	xds := server.NewServer(ctx, resources, streams.callbacks(), sotw.WithOrderedADS())
	discovery.RegisterAggregatedDiscoveryServiceServer(grpcServer, xds)
	return grpcServer
}
