package serve

import (
	"crypto/tls"
	"net"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpoints "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	load "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	routes "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

const (
	// connectionAge is how often an Envoy must reconnect (± 10 %, the jitter of gRPC). It then
	// chooses among the relays again, and its certificate is verified again.
	connectionAge   = 30 * time.Minute
	connectionGrace = 5 * time.Second
	handshakeFor    = 5 * time.Second
	streamsPerConn  = 16          // an Envoy needs two
	unreadFor       = time.Second // how long sent data may stay unread when a stream ends
	forceAfter      = 500 * time.Millisecond
)

// Server is the gRPC server of ADS, delta and state-of-the-world, over mutual TLS. It also serves
// routes and endpoints by their own services, and takes reports of load.
type Server struct {
	grpc    *grpc.Server
	streams *Streams
}

// NewServer creates a server of the cache's bundles. `refused` is called with each failed TLS handshake.
func NewServer(cache *Cache, streams *Streams, config *tls.Config, refused func(net.Addr, error)) *Server {
	s := &Server{streams: streams}
	s.grpc = grpc.NewServer(append(lean(),
		grpc.Creds(watched{credentials.NewTLS(config), refused}),
		grpc.ConnectionTimeout(handshakeFor),
		grpc.MaxConcurrentStreams(streamsPerConn),
		// The relay forgets a dead Envoy within this time even when its connection never closes.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 5 * time.Second, Timeout: 3 * time.Second,
			MaxConnectionAge: connectionAge, MaxConnectionAgeGrace: connectionGrace}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)...)
	aggregated := &ads{cache: cache, streams: streams}
	discovery.RegisterAggregatedDiscoveryServiceServer(s.grpc, aggregated)
	routes.RegisterRouteDiscoveryServiceServer(s.grpc, &routeService{ads: aggregated})
	endpoints.RegisterEndpointDiscoveryServiceServer(s.grpc, &endpointService{ads: aggregated})
	load.RegisterLoadReportingServiceServer(s.grpc, &loadService{streams: streams})
	return s
}

// Serve accepts connections until Drain.
func (s *Server) Serve(listener net.Listener) error { return s.grpc.Serve(listener) }

// Drain accepts no more connections and ends the streams one after the other, evenly over `spread`,
// so that the Envoys do not all reconnect to another relay at the same instant.
func (s *Server) Drain(spread time.Duration) {
	stopped := make(chan struct{})
	go func() { s.grpc.GracefulStop(); close(stopped) }()
	s.streams.leave(spread)
	select {
	case <-stopped:
	case <-time.After(forceAfter):
		s.grpc.Stop()
		<-stopped
	}
}

// watched reports failed handshakes, which gRPC itself does not, and records the caller's identity.
type watched struct {
	credentials.TransportCredentials
	refused func(net.Addr, error)
}

// ServerHandshake performs the TLS handshake, and reports its failure to `refused`.
func (w watched) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := w.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		w.refused(raw.RemoteAddr(), err)
		return nil, nil, err
	}
	return conn, newCaller(raw, info.(credentials.TLSInfo).State), nil
}
