package envoy

import (
	"net/http"
	"slices"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/config/common/matcher/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previoushosts "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	previouspriorities "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	upstreams "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/table"
)

// What counts as dead, in one place: docs/adr/0009-failover-inside-envoy.md has the figures, and
// docs/adr/0025-what-envoys-do-without-us.md what may be sent again.
//
// An application's answers, whatever their status, eject nobody and are never retried: an overloaded
// endpoint that refuses is the optimizer's matter, and ejecting it would move its whole load at once.
// Nor does an application that received a request and broke off: the request may be what crashes it, and
// would crash the next one. What ejects is that applications cannot be reached: connections refused, dropped or
// timed out, and a callee's own proxy that says so in names.HttpHeaderNoAnswer.

const (
	httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

	// Failures in which the application got no request: safe to repeat with any method.
	retryAnyOn = "connect-failure,refused-stream,reset-before-request,retriable-headers"
	// A connection that breaks before the answer may have carried the request to the application.
	replayOn = retryAnyOn + ",reset"
	// Envoy's response flags at the callee's proxy for "the application got no request".
	neverReached = "UF|UH|NR|NC"
	maxAttempts  = 3 // the destination, and the two next priorities
)

// idempotentMethods of RFC 9110, section 9.2.2: repeating them asks for nothing twice.
var idempotentMethods = []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete}

// retries of requests for one service.
type retries struct {
	unclassed  *route.RetryPolicy // the virtual host's; whatever the method
	idempotent *route.RetryPolicy // nil: as unclassed
}

// of the method's requests; nil: as the virtual host's.
func (r retries) of(method string) *route.RetryPolicy {
	if slices.Contains(idempotentMethods, method) {
		return r.idempotent
	}
	return nil
}

// Made once: there is a policy in each virtual host of each service's routes.
var (
	retryUnreached = retry(retryAnyOn, notReached())
	retryReplayed  = retry(replayOn, noAnswer())
)

func retriesOf(handling table.Handling) retries {
	unreached, replayed := within(handling.PerTry, retryUnreached), within(handling.PerTry, retryReplayed)
	switch handling.Replay {
	case table.ReplayAny:
		return retries{unclassed: replayed}
	case table.ReplayIdempotent:
		return retries{unclassed: unreached, idempotent: replayed}
	}
	return retries{unclassed: unreached}
}

// ejectDead takes an endpoint out after three failures without an answer between them. Local and
// remote failures are counted together: counted apart, Envoy takes each connection that is accepted and
// then dropped as a success followed by a failure, which never makes three in a row.
//
// All may be ejected: then Envoy ignores ejections (HealthyPanicThreshold), asks everybody, and a retry finds who is
// alive. A lower percentage would keep the last one that died in use, and those that came back out of it.
func ejectDead() *cluster.OutlierDetection {
	never := wrapperspb.UInt32(0)
	return &cluster.OutlierDetection{
		Consecutive_5Xx:                    wrapperspb.UInt32(3),
		EnforcingConsecutive_5Xx:           wrapperspb.UInt32(100),
		EnforcingConsecutiveGatewayFailure: never,
		EnforcingSuccessRate:               never,
		// One that drops only part of what it gets.
		EnforcingFailurePercentage:     wrapperspb.UInt32(100),
		FailurePercentageThreshold:     wrapperspb.UInt32(50),
		FailurePercentageMinimumHosts:  wrapperspb.UInt32(1),
		FailurePercentageRequestVolume: wrapperspb.UInt32(10),
		Interval:                       durationpb.New(time.Second),
		BaseEjectionTime:               durationpb.New(2 * time.Second),
		MaxEjectionTime:                durationpb.New(10 * time.Second),
		MaxEjectionPercent:             wrapperspb.UInt32(100),
		// A proxy that answers checks may still not reach its application.
		SuccessfulActiveHealthCheckUnejectHost: wrapperspb.Bool(false),
	}
}

// onlyUnreachedFails makes outlier detection see a failure only in answers of a proxy whose application never
// received the request, instead of in every 5xx.
func onlyUnreachedFails() *anypb.Any {
	marked := &common.MatchPredicate{Rule: &common.MatchPredicate_HttpResponseHeadersMatch{
		HttpResponseHeadersMatch: &common.HttpHeadersMatch{Headers: []*route.HeaderMatcher{notReached()}}}}
	return mustAny(&upstreams.HttpProtocolOptions{
		// As the caller came: gRPC needs HTTP/2 all the way.
		UpstreamProtocolOptions: &upstreams.HttpProtocolOptions_UseDownstreamProtocolConfig{
			UseDownstreamProtocolConfig: &upstreams.HttpProtocolOptions_UseDownstreamHttpConfig{
				HttpProtocolOptions: &core.Http1ProtocolOptions{},
				// A peer that vanished is noticed within 15 s, whatever streams it has and however long they may last.
				Http2ProtocolOptions: &core.Http2ProtocolOptions{ConnectionKeepalive: &core.KeepaliveSettings{
					Interval: durationpb.New(10 * time.Second), Timeout: durationpb.New(5 * time.Second)}},
			}},
		OutlierDetection: &upstreams.HttpProtocolOptions_OutlierDetection{ErrorMatcher: marked},
	})
}

func noAnswer() *route.HeaderMatcher {
	return &route.HeaderMatcher{Name: names.HttpHeaderNoAnswer,
		HeaderMatchSpecifier: &route.HeaderMatcher_PresentMatch{PresentMatch: true}}
}

func notReached() *route.HeaderMatcher {
	return &route.HeaderMatcher{Name: names.HttpHeaderNoAnswer,
		HeaderMatchSpecifier: &route.HeaderMatcher_StringMatch{StringMatch: &matcher.StringMatcher{
			MatchPattern: &matcher.StringMatcher_SafeRegex{SafeRegex: &matcher.RegexMatcher{Regex: neverReached}}}}}
}

// retry repeats, each time in the next priority, what failed on the conditions or came with the mark.
func retry(on string, mark *route.HeaderMatcher) *route.RetryPolicy {
	return &route.RetryPolicy{
		RetryOn:          on,
		NumRetries:       wrapperspb.UInt32(maxAttempts - 1),
		RetriableHeaders: []*route.HeaderMatcher{mark},
		// Another cluster has nothing to recover from: no reason to wait as before the same endpoint.
		RetryBackOff: &route.RetryPolicy_RetryBackOff{
			BaseInterval: durationpb.New(2 * time.Millisecond), MaxInterval: durationpb.New(10 * time.Millisecond)},
		RetryPriority: &route.RetryPolicy_RetryPriority{
			Name: "envoy.retry_priorities.previous_priorities",
			ConfigType: &route.RetryPolicy_RetryPriority_TypedConfig{
				TypedConfig: mustAny(&previouspriorities.PreviousPrioritiesConfig{UpdateFrequency: 1})},
		},
		RetryHostPredicate: []*route.RetryPolicy_RetryHostPredicate{{
			Name: "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &route.RetryPolicy_RetryHostPredicate_TypedConfig{
				TypedConfig: mustAny(&previoushosts.PreviousHostsPredicate{})},
		}},
		HostSelectionRetryMaxAttempts: 3,
	}
}

// within is the policy with a limit to each attempt; 0: none.
func within(perTry time.Duration, policy *route.RetryPolicy) *route.RetryPolicy {
	if perTry == 0 {
		return policy
	}
	limited := proto.CloneOf(policy)
	limited.PerTryTimeout = durationpb.New(perTry)
	return limited
}
