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

// This file defines what counts as dead. The figures are in docs/adr/0009-failover-inside-envoy.md,
// and docs/adr/0025-what-envoys-do-without-us.md defines what may be sent again.
//
// Answers of an application, whatever their status, cause no ejection and no retry. An overloaded
// endpoint that refuses requests is a matter for the optimizer, and ejecting it would move its
// whole load at once. An application that received a request and broke off causes none either: the
// request may be what crashes it, and would crash the next one. Endpoints are ejected when their
// applications cannot be reached: connections are refused, dropped or time out, or the callee's own
// proxy says so in names.HttpHeaderNoAnswer.

const (
	httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

	// retryAnyOn lists failures in which the application got no request. They are safe to retry
	// with any method.
	retryAnyOn = "connect-failure,refused-stream,reset-before-request,retriable-headers"
	// replayOn adds connections that break before the answer. The application may have received the
	// request.
	replayOn = retryAnyOn + ",reset"
	// neverReached matches the response flags of the callee's proxy that mean "the application got
	// no request".
	neverReached = "UF|UH|NR|NC"
	ejectAfter   = 3 // failures in a row
	// maxAttempts is one more than ejectAfter. If a dead endpoint is the only one that is not ejected,
	// it gets every attempt until it is. The last attempt then goes to any endpoint.
	maxAttempts = ejectAfter + 1
	// maxDeliveries limits how many servers a replayed request may crash.
	maxDeliveries = 3
	// reselections is how often a retry draws another endpoint when it drew one that it has tried.
	// Of two ejected endpoints, one may be dead. A draw meets it with probability 1/2, and all 17
	// draws with 1 in 131 072. A draw costs no traffic.
	reselections = 16
)

// idempotentMethods are those of RFC 9110, section 9.2.2. Repeating such a request has no further
// effect.
var idempotentMethods = []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete}

// retries holds the retry policies of requests for one service.
type retries struct {
	unclassed  *route.RetryPolicy // the virtual host's policy, for any method
	idempotent *route.RetryPolicy // nil: the same as unclassed
}

// of returns the policy for requests with the method, or nil when the virtual host's applies.
func (r retries) of(method string) *route.RetryPolicy {
	if slices.Contains(idempotentMethods, method) {
		return r.idempotent
	}
	return nil
}

// These policies are built once, because every virtual host of every service's routes uses them.
var (
	retryUnreached = retry(maxAttempts, retryAnyOn, notReached())
	retryReplayed  = retry(maxDeliveries, replayOn, noAnswer())
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

// ejectDead returns the outlier detection, which ejects an endpoint after ejectAfter failures in a row.
// Local and remote failures are counted together. If they were counted apart, Envoy would read each
// connection that is accepted and then dropped as a success followed by a failure, and would never
// count three in a row.
//
// All endpoints may be ejected. Envoy then ignores ejections (HealthyPanicThreshold), tries every
// endpoint, and a retry finds one that is alive. A lower percentage would keep the last endpoint
// that died in use, and keep those that recovered out of use.
func ejectDead() *cluster.OutlierDetection {
	never := wrapperspb.UInt32(0)
	return &cluster.OutlierDetection{
		Consecutive_5Xx:                    wrapperspb.UInt32(ejectAfter),
		EnforcingConsecutive_5Xx:           wrapperspb.UInt32(100),
		EnforcingConsecutiveGatewayFailure: never,
		EnforcingSuccessRate:               never,
		// An endpoint that drops only a part of its requests.
		EnforcingFailurePercentage:     wrapperspb.UInt32(100),
		FailurePercentageThreshold:     wrapperspb.UInt32(50),
		FailurePercentageMinimumHosts:  wrapperspb.UInt32(1),
		FailurePercentageRequestVolume: wrapperspb.UInt32(10),
		Interval:                       durationpb.New(time.Second),
		BaseEjectionTime:               durationpb.New(2 * time.Second),
		MaxEjectionTime:                durationpb.New(10 * time.Second),
		MaxEjectionPercent:             wrapperspb.UInt32(100),
		// A proxy that answers checks may still be unable to reach its application.
		SuccessfulActiveHealthCheckUnejectHost: wrapperspb.Bool(false),
	}
}

// onlyUnreachedFails makes outlier detection count as failures only the answers of a proxy whose
// application never received the request, instead of every 5xx.
func onlyUnreachedFails() *anypb.Any {
	marked := &common.MatchPredicate{Rule: &common.MatchPredicate_HttpResponseHeadersMatch{
		HttpResponseHeadersMatch: &common.HttpHeadersMatch{Headers: []*route.HeaderMatcher{notReached()}}}}
	return mustAny(&upstreams.HttpProtocolOptions{
		// The protocol is the caller's, because gRPC needs HTTP/2 on every hop.
		UpstreamProtocolOptions: &upstreams.HttpProtocolOptions_UseDownstreamProtocolConfig{
			UseDownstreamProtocolConfig: &upstreams.HttpProtocolOptions_UseDownstreamHttpConfig{
				HttpProtocolOptions: &core.Http1ProtocolOptions{},
				// A peer that vanished is noticed within 15 s, however many streams it has and
				// however long they may last.
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

// retry returns a policy that repeats requests which failed on the conditions or whose answer
// carries the mark. Each retry goes to the next priority.
func retry(attempts uint32, on string, mark *route.HeaderMatcher) *route.RetryPolicy {
	return &route.RetryPolicy{
		RetryOn:          on,
		NumRetries:       wrapperspb.UInt32(attempts - 1),
		RetriableHeaders: []*route.HeaderMatcher{mark},
		// The next attempt goes to another cluster, which has nothing to recover from, so the
		// back-off is short.
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
		HostSelectionRetryMaxAttempts: reselections,
	}
}

// within returns the policy with a time limit for each attempt; 0 means no limit.
func within(perTry time.Duration, policy *route.RetryPolicy) *route.RetryPolicy {
	if perTry == 0 {
		return policy
	}
	limited := proto.CloneOf(policy)
	limited.PerTryTimeout = durationpb.New(perTry)
	return limited
}
