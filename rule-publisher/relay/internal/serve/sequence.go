package serve

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// subscription returns the stream's subscription to the type of the request. It creates the
// subscription at the first request of the type.
func (st *stream) subscription(r request) (*subscription, error) {
	if sub := st.of(r.typeURL); sub != nil {
		return sub, nil
	}
	if len(st.subs) == typesPerStream {
		return nil, status.Errorf(codes.ResourceExhausted, "type_url: %.200q is one more than the %d types that a stream may ask for",
			r.typeURL, typesPerStream)
	}
	sub := newSubscription(r, st.delta)
	st.subs = append(st.subs, sub)
	slices.SortStableFunc(st.subs, func(a, b *subscription) int {
		return cmp.Compare(slices.Index(typeOrder, a.typeURL), slices.Index(typeOrder, b.typeURL))
	})
	return sub, nil
}

// of returns the subscription to the type, or nil when the Envoy has not asked for it.
func (st *stream) of(typeURL string) *subscription {
	for _, sub := range st.subs {
		if sub.typeURL == typeURL {
			return sub
		}
	}
	return nil
}

// take applies a request to the subscription. Endpoints of clusters that were sent before the Envoy
// asked for endpoints are marked to be sent again.
func (st *stream) take(sub *subscription, r request, refused bool) {
	sub.take(r, refused)
	if sub.typeURL == EndpointType && st.warming != nil {
		sub.forget(namesOf(st.warming))
		st.warming = nil
	}
}

// next returns the next response that is due, or nil. The order is clusters, endpoints, routes, and
// then the removal of clusters.
func (st *stream) next() *response {
	bundle := st.service.served()
	if bundle == nil || st.ended {
		return nil
	}
	for _, sub := range st.subs {
		if out := sub.due(bundle[sub.typeURL]); out != nil {
			if sub.typeURL == ClusterType {
				st.warm(sub, out.changed)
			}
			return st.number(sub, out)
		}
	}
	if clusters := st.of(ClusterType); clusters != nil && clusters.leaving && st.routed() {
		if out := clusters.leave(bundle[ClusterType]); out != nil {
			return st.number(clusters, out)
		}
	}
	return nil
}

// number gives the response the next nonce and records it as the newest of its subscription.
func (st *stream) number(sub *subscription, out *response) *response {
	st.nonce++
	out.nonce = strconv.FormatUint(st.nonce, 10)
	sub.sent = sent{out.nonce, out.version, time.Now()}
	return out
}

// warm makes the endpoints of changed clusters follow them, even when the endpoints are the same.
// Without them, Envoy may take up to 15 s until it uses a changed cluster ("resource warming" of
// the protocol).
func (st *stream) warm(clusters *subscription, changed []*item) {
	if endpoints := st.of(EndpointType); endpoints != nil {
		endpoints.forget(namesOf(changed))
	} else if clusters.sent.nonce == "" {
		// A reconnecting Envoy asks for everything before it reads the first response. The
		// endpoints that it will say it holds belong to the clusters before the change.
		st.warming = changed
	}
}

// routed reports whether the Envoy has accepted the routes that are served, and so uses none of the
// clusters to be removed. A reconnecting Envoy asks for its routes before it answers for its
// clusters.
func (st *stream) routed() bool {
	routes := st.of(RouteType)
	return routes == nil || routes.open && !routes.answered.refused
}
