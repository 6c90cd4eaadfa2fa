package serve

import (
	"crypto/tls"
	"net"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpoints "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	routes "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

const (
	// An Envoy comes back this often (± 10 %, by the library's jitter): it then chooses among relays
	// again, and its certificate is verified again.
	connectionAge   = 30 * time.Minute
	connectionGrace = 5 * time.Second
	handshakeFor    = 5 * time.Second
	streamsPerConn  = 16          // an Envoy needs one
	unreadFor       = time.Second // what was sent may stay when the stream is to end
	forceAfter      = 500 * time.Millisecond
)

// Server is the gRPC server of ADS, delta and state-of-the-world, over mutual TLS; routes and endpoints also alone.
type Server struct {
	grpc    *grpc.Server
	streams *Streams
}

// NewServer serves the resources. `refused` is called with each failed TLS handshake.
func NewServer(resources *Cache, streams *Streams, config *tls.Config, refused func(net.Addr, error)) *Server {
	s := &Server{streams: streams}
	s.grpc = grpc.NewServer(append(lean(),
		grpc.Creds(watched{credentials.NewTLS(config), refused}),
		grpc.ConnectionTimeout(handshakeFor),
		grpc.MaxConcurrentStreams(streamsPerConn),
		// A dead Envoy is forgotten within this time even when its connection never closes.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 5 * time.Second, Timeout: 3 * time.Second,
			MaxConnectionAge: connectionAge, MaxConnectionAgeGrace: connectionGrace}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)...)
	aggregated := &ads{cache: resources, streams: streams}
	discovery.RegisterAggregatedDiscoveryServiceServer(s.grpc, aggregated)
	routes.RegisterRouteDiscoveryServiceServer(s.grpc, &routeService{ads: aggregated})
	endpoints.RegisterEndpointDiscoveryServiceServer(s.grpc, &endpointService{ads: aggregated})
	return s
}

// Serve until Drain.
func (s *Server) Serve(listener net.Listener) error { return s.grpc.Serve(listener) }

// Drain takes no more connections and ends the streams one after the other, evenly over the time
// given, so that Envoys do not all come to another relay at one instant.
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

// watched tells of failed handshakes, which gRPC itself keeps quiet about, and keeps who came.
type watched struct {
	credentials.TransportCredentials
	refused func(net.Addr, error)
}

func (w watched) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := w.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		w.refused(raw.RemoteAddr(), err)
		return nil, nil, err
	}
	return conn, newCaller(raw, info.(credentials.TLSInfo).State), nil
}
