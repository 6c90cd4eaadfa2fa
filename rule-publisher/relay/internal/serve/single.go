package serve

import (
	endpoints "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	routes "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
)

// An Envoy whose aggregated stream belongs to another control plane (Istio's) asks the relay for
// routes and endpoints by these separate services. Their streams work like an aggregated one,
// because each request names its type.

type routeService struct {
	ads *ads
	routes.UnimplementedRouteDiscoveryServiceServer
}

// StreamRoutes is the state-of-the-world variant.
func (s *routeService) StreamRoutes(grpc routes.RouteDiscoveryService_StreamRoutesServer) error {
	return s.ads.follow(newStream(grpc, false))
}

// DeltaRoutes is the delta variant.
func (s *routeService) DeltaRoutes(grpc routes.RouteDiscoveryService_DeltaRoutesServer) error {
	return s.ads.follow(newStream(grpc, true))
}

type endpointService struct {
	ads *ads
	endpoints.UnimplementedEndpointDiscoveryServiceServer
}

// StreamEndpoints is the state-of-the-world variant.
func (s *endpointService) StreamEndpoints(grpc endpoints.EndpointDiscoveryService_StreamEndpointsServer) error {
	return s.ads.follow(newStream(grpc, false))
}

// DeltaEndpoints is the delta variant.
func (s *endpointService) DeltaEndpoints(grpc endpoints.EndpointDiscoveryService_DeltaEndpointsServer) error {
	return s.ads.follow(newStream(grpc, true))
}
