// Package envoy builds xDS v3 messages from tables. Its functions are pure, and their output is
// sorted and deterministic.
package envoy

import (
	"fmt"
	"net/http"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	uritemplate "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/table"
	"spillway.dev/relay/internal/table/traffic"
)

// unlimited disables a timeout. It must be explicit, because Envoy's defaults cut long requests and
// silent streams.
var unlimited = durationpb.New(0)

// ClusterName returns the name of the Envoy cluster for a service's endpoints in a cluster. That
// Envoy cluster fails over to the service's other clusters except those in `without`, each of which
// the name lists after '!'.
func ClusterName(service, cluster string, without []string) string {
	name := service + names.XdsClusterSeparator + cluster
	for _, denied := range without {
		name += names.XdsClusterSeparator + "!" + denied
	}
	return name
}

// ServiceOf returns the service that a cluster of this name leads to; false: it is not one of the
// relay's clusters.
func ServiceOf(clusterName string) (service string, ok bool) {
	service, _, ok = strings.Cut(clusterName, names.XdsClusterSeparator)
	return service, ok
}

// InboundRoutes returns the inbound routes. Each class of the service has a route of its own, and
// all routes lead to the application.
func InboundRoutes(t table.Table) (*route.RouteConfiguration, error) {
	// There are no timeouts here. The caller's own proxy limits the request, and its reset ends it.
	action := &route.RouteAction{
		ClusterSpecifier: &route.RouteAction_Cluster{Cluster: names.XdsInboundCluster},
		Timeout:          unlimited,
		IdleTimeout:      unlimited,
	}
	host := &route.VirtualHost{Name: names.ValueDirectionInbound, Domains: []string{"*"}}
	for _, class := range t.Inbound {
		match, err := classMatch(class)
		if err != nil {
			return nil, err
		}
		host.Routes = append(host.Routes, newRoute(class.ID(), match, action, nil))
	}
	host.Routes = append(host.Routes, newRoute(names.XdsCatchAllRoute, anyMatch, action, nil))
	return &route.RouteConfiguration{Name: names.XdsInboundRoute, VirtualHosts: []*route.VirtualHost{host},
		TypedPerFilterConfig:    map[string]*anypb.Any{names.XdsAloneHeaderFilter: switchedOff, names.XdsAloneRouteFilter: switchedOff},
		RequestHeadersToRemove:  []string{names.HttpHeaderRoutes},
		ResponseHeadersToRemove: proxiesOnly}, nil
}

// proxiesOnly are response headers that callers' Envoys act upon. If an application set them, its
// requests would be sent again or its endpoint ejected. A proxy adds them to its own answers after
// the routes are applied.
var proxiesOnly = []string{names.HttpHeaderNoAnswer, names.HttpHeaderHealthCheckFail}

// switchedOff disables the filters that infra/envoy/pod.yaml has for the time before these routes
// arrive.
var switchedOff = mustAny(&route.FilterConfig{Disabled: true})

// ReadyRoutes returns the routes that answer probes. An Envoy that has them also has the relay's
// other routes, which are sent together.
func ReadyRoutes() *route.RouteConfiguration {
	answer := &route.Route{Name: names.XdsReadyRoute, Match: anyMatch, Action: &route.Route_DirectResponse{
		DirectResponse: &route.DirectResponseAction{Status: http.StatusOK}}}
	return &route.RouteConfiguration{Name: names.XdsReadyRoute, VirtualHosts: []*route.VirtualHost{
		{Name: names.XdsReadyRoute, Domains: []string{"*"}, Routes: []*route.Route{answer}}}}
}

// OutboundRoutes returns one virtual host per destination service, with a route per class and a
// catch-all. Every route to a service that rules name carries the ruleset version and input window
// that steer it. The other routes are the same for every ruleset.
func OutboundRoutes(t table.Table) (*route.RouteConfiguration, error) {
	metadata, err := provenance(t)
	if err != nil {
		return nil, err
	}
	config := &route.RouteConfiguration{Name: names.XdsOutboundRoute}
	for _, h := range t.Hosts {
		retries, limits := retriesOf(h.Handling), limitsOf(h.Handling)
		host := &route.VirtualHost{Name: h.Service, Domains: []string{h.Service, h.Service + ":*"},
			RetryPolicy: retries.unclassed, IncludeRequestAttemptCount: true}
		for _, r := range h.Routes {
			match, err := classMatch(r.Class)
			if err != nil {
				return nil, err
			}
			host.Routes = append(host.Routes, outboundRoute(h, r.Class.ID(), match, r.Way, limits, retries.of(r.Class.Method), metadata))
		}
		fallbackMetadata := metadata
		if len(h.Routes) == 0 {
			fallbackMetadata = nil
		}
		host.Routes = append(host.Routes, outboundRoute(h, names.XdsCatchAllRoute, anyMatch, h.Fallback, limits, nil, fallbackMetadata))
		config.VirtualHosts = append(config.VirtualHosts, host)
	}
	return config, nil
}

// outboundRoute returns a route that follows the way, or that answers that the way is closed. With
// nil `retries`, the virtual host's policy applies.
func outboundRoute(h table.Host, name string, match *route.RouteMatch, way table.Way, limits limits, retries *route.RetryPolicy, metadata *core.Metadata) *route.Route {
	if len(way.Weights) == 0 {
		return deniedRoute(h.Service, name, match, way.Without, metadata)
	}
	action := weighted(h.Service, way)
	action.RetryPolicy = retries
	action.Timeout, action.IdleTimeout, action.MaxStreamDuration = limits.request, limits.idle, limits.deadline
	return newRoute(name, match, action, metadata)
}

func newRoute(name string, match *route.RouteMatch, action *route.RouteAction, metadata *core.Metadata) *route.Route {
	return &route.Route{Name: name, Match: match, Action: &route.Route_Route{Route: action}, Metadata: metadata}
}

// anyMatch is shared by all routes, like everything here that is the same in each route.
var anyMatch = &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}}

func classMatch(class traffic.Class) (*route.RouteMatch, error) {
	pattern, err := class.Template.Pattern()
	if err != nil {
		return nil, err
	}
	policy, err := marshalAny(&uritemplate.UriTemplateMatchConfig{PathTemplate: pattern})
	if err != nil {
		return nil, err
	}
	method := &route.HeaderMatcher{
		Name: ":method",
		HeaderMatchSpecifier: &route.HeaderMatcher_StringMatch{StringMatch: &matcher.StringMatcher{
			MatchPattern: &matcher.StringMatcher_Exact{Exact: class.Method}}},
	}
	return &route.RouteMatch{
		PathSpecifier: &route.RouteMatch_PathMatchPolicy{PathMatchPolicy: &core.TypedExtensionConfig{
			Name: "envoy.path.match.uri_template.uri_template_matcher", TypedConfig: policy}},
		Headers: []*route.HeaderMatcher{method},
	}, nil
}

// weighted uses weighted_clusters even for a single destination, so that all routes in a
// config_dump look alike.
func weighted(service string, way table.Way) *route.RouteAction {
	clusters := make([]*route.WeightedCluster_ClusterWeight, 0, len(way.Weights))
	for _, w := range way.Weights {
		clusters = append(clusters, &route.WeightedCluster_ClusterWeight{
			Name: ClusterName(service, w.Cluster, way.Without), Weight: wrapperspb.UInt32(w.Weight)})
	}
	return &route.RouteAction{
		ClusterSpecifier: &route.RouteAction_WeightedClusters{WeightedClusters: &route.WeightedCluster{Clusters: clusters}},
	}
}

// limits bounds how long a request and the silences in it may last. A gRPC client's own deadline
// applies as well.
type limits struct {
	request, idle *durationpb.Duration
	deadline      *route.RouteAction_MaxStreamDuration
}

func limitsOf(handling table.Handling) limits {
	request := durationpb.New(handling.Request)
	return limits{request, durationpb.New(handling.Idle), &route.RouteAction_MaxStreamDuration{GrpcTimeoutHeaderMax: request}}
}

// provenance returns the metadata of a route: the ruleset version and the input window.
func provenance(t table.Table) (*core.Metadata, error) {
	fields, err := structpb.NewStruct(map[string]any{
		"ruleset_version": float64(t.Version),
		"input_window":    t.InputWindow,
	})
	if err != nil {
		return nil, fmt.Errorf("route metadata: %w", err)
	}
	return &core.Metadata{FilterMetadata: map[string]*structpb.Struct{names.XdsMetadataNamespace: fields}}, nil
}

func marshalAny(message proto.Message) (*anypb.Any, error) {
	packed := &anypb.Any{}
	if err := anypb.MarshalFrom(packed, message, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("%s: %w", message.ProtoReflect().Descriptor().FullName(), err)
	}
	return packed, nil
}

// mustAny packs constant messages. It panics on an error.
func mustAny(message proto.Message) *anypb.Any {
	packed, err := marshalAny(message)
	if err != nil {
		panic(err)
	}
	return packed
}
